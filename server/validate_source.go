package server

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/waggle-crawl/waggle/dispatch/bounds"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	maxDisplayName = 256
	maxHosts       = 1000 // of follow.allow_hosts
	maxExpression  = 1 << 10
	maxCron        = 256
	maxOutstanding = 1_000_000_000
	maxBackoff     = 7 * 24 * time.Hour
	minRemember    = time.Minute
	maxApply       = 500 // specs in a call
)

func validateID(id string) error {
	var c checks
	c.id("id", id)
	return c.err()
}

// validateSpec checks the form and size of each field of a spec. What fields
// mean together, and whether cron lines and expressions parse, is
// [dispatch.SourceSpec.Validate]'s to check.
func validateSpec(spec *pb.SourceSpec) error {
	var c checks
	c.spec(spec)
	return c.err()
}

func validateCreate(req *pb.CreateSourceRequest) error {
	var c checks
	c.spec(req.GetSpec())
	c.operator(req.GetBy(), req.GetReason())
	return c.err()
}

func (c *checks) spec(spec *pb.SourceSpec) {
	c.id("spec.id", spec.GetId())
	c.text("spec.display_name", spec.GetDisplayName(), maxDisplayName)
	c.labels("spec.labels", spec.GetLabels(), bounds.MaxLabels)
	c.optionalID("spec.scope", spec.GetScope())
	c.optionalID("spec.pool", spec.GetPool())
	c.seeds(spec.GetSeeds())
	c.schedule(spec.GetSchedule())
	c.enum("spec.first_crawl", spec.GetFirstCrawl())
	if spec != nil {
		c.priority("spec.priority", spec.Priority)
	}
	c.duration("spec.lease_duration", spec.GetLeaseDuration(), bounds.MinLeaseDuration, bounds.MaxLeaseDuration)
	c.duration("spec.max_hold", spec.GetMaxHold(), bounds.MinLeaseDuration, bounds.MaxHold)
	c.retry(spec.GetRetry())
	c.duration("spec.remember", spec.GetRemember(), minRemember, bounds.MaxRemember)
	c.duration("spec.revisit_after", spec.GetRevisitAfter(), time.Second, bounds.MaxRemember)
	c.follow(spec.GetFollow())
	if spec != nil && spec.MaxOutstanding != nil {
		c.number("spec.max_outstanding", spec.GetMaxOutstanding(), 1, maxOutstanding)
	}
	c.metadata("spec.metadata", spec.GetMetadata())
	c.size("spec.payload", len(spec.GetPayload()), bounds.MaxPayloadLength)
}

func (c *checks) seeds(seeds []*pb.Seed) {
	c.count("spec.seeds", len(seeds), 0, bounds.MaxSeeds)
	for i, seed := range seeds[:min(len(seeds), bounds.MaxSeeds)] {
		n := len(c.broken)
		c.target(seed.GetUrl(), seed.GetKey(), seed.GetQueue())
		c.text("kind", seed.GetKind(), bounds.MaxIDLength)
		c.within(n, "spec.seeds", i)
	}
}

func (c *checks) schedule(schedule *pb.Schedule) {
	switch rule := schedule.GetRule().(type) {
	case *pb.Schedule_Every:
		c.duration("spec.schedule.every", rule.Every, bounds.MinEvery, bounds.MaxEvery)
	case *pb.Schedule_Cron:
		if rule.Cron == "" {
			c.fail("spec.schedule.cron", "", "must be five cron fields or a descriptor such as @daily")
		}
		c.text("spec.schedule.cron", rule.Cron, maxCron)
	case *pb.Schedule_Adaptive:
		for _, bound := range []struct {
			field string
			value *durationpb.Duration
		}{
			{"min_interval", rule.Adaptive.GetMinInterval()}, {"max_interval", rule.Adaptive.GetMaxInterval()},
		} {
			if bound.value == nil {
				c.fail("spec.schedule.adaptive."+bound.field, "", "must be set, to %v to %v", bounds.MinEvery, bounds.MaxEvery)
			}
			c.duration("spec.schedule.adaptive."+bound.field, bound.value, bounds.MinEvery, bounds.MaxEvery)
		}
	}
	c.duration("spec.schedule.jitter", schedule.GetJitter(), time.Millisecond, bounds.MaxEvery)
	c.text("spec.schedule.time_zone", schedule.GetTimeZone(), maxLabelLength)
}

func (c *checks) retry(retry *pb.RetryPolicy) {
	if retry == nil {
		return
	}
	for _, budget := range []struct {
		field string
		value *int32
		most  int64
	}{
		{"max_attempts", retry.MaxAttempts, 100},
		{"max_expirations", retry.MaxExpirations, 100},
		{"max_throttled", retry.MaxThrottled, 1000},
	} {
		if budget.value != nil {
			c.number("spec.retry."+budget.field, int64(*budget.value), 1, budget.most)
		}
	}
	c.duration("spec.retry.min_backoff", retry.GetMinBackoff(), 0, maxFetch)
	c.duration("spec.retry.max_backoff", retry.GetMaxBackoff(), 0, maxBackoff)
}

func (c *checks) follow(follow *pb.Follow) {
	if follow == nil {
		return
	}
	if follow.MaxDepth != nil {
		c.number("spec.follow.max_depth", int64(follow.GetMaxDepth()), 0, bounds.MaxDepth)
	}
	c.ids("spec.follow.allow_hosts", follow.GetAllowHosts(), maxHosts, c.pattern)
	expression := func(field, value string) {
		if value == "" {
			c.fail(field, value, "must be set")
		}
		c.size(field, len(value), maxExpression)
	}
	c.ids("spec.follow.include", follow.GetInclude(), bounds.MaxFollowPatterns, expression)
	c.ids("spec.follow.exclude", follow.GetExclude(), bounds.MaxFollowPatterns, expression)
}

// validateApply checks how many specs there are; each of them is checked, and
// answered, on its own.
func validateApply(req *pb.ApplySourcesRequest) error {
	var c checks
	c.count("specs", len(req.GetSpecs()), 1, maxApply)
	c.operator(req.GetBy(), req.GetReason())
	return c.err()
}

func validateListSources(req *pb.ListSourcesRequest) error {
	var c checks
	c.optionalID("id_prefix", req.GetIdPrefix())
	c.optionalID("pool", req.GetPool())
	c.labels("labels", req.GetLabels(), bounds.MaxLabels)
	c.count("health", len(req.GetHealth()), 0, 5)
	for i, health := range req.GetHealth() {
		field := fmt.Sprintf("health[%d]", i)
		if c.enum(field, health); health == pb.SourceHealth_SOURCE_HEALTH_UNSPECIFIED {
			c.fail(field, health, "must name a health")
		}
	}
	c.page(req.GetPageSize())
	return c.err()
}

// validateUpdate checks which source is meant and the paths of the mask. What
// becomes of the spec is checked with [validateSpec] once the named fields are
// laid over what there is: a field that the mask leaves out is not read.
func validateUpdate(req *pb.UpdateSourceRequest) error {
	var c checks
	c.id("spec.id", req.GetSpec().GetId())
	c.mask(req.GetUpdateMask(), specField, "must name fields of SourceSpec, such as \"seeds\" or \"retry.max_attempts\"")
	if etag := req.GetEtag(); etag != "" {
		if _, _, ok := parseEtag(etag); !ok {
			c.fail("etag", etag, "must be an etag as the source was read with")
		}
	}
	c.operator(req.GetBy(), req.GetReason())
	return c.err()
}

// specField reports whether the path is of a field of a spec.
func specField(path string) bool {
	_, err := fieldmaskpb.New(&pb.SourceSpec{}, path)
	return err == nil
}

// mask checks that an update's mask names what can be changed; limit says that in words.
func (c *checks) mask(mask *fieldmaskpb.FieldMask, settable func(path string) bool, limit string) {
	const field = "update_mask"
	c.count(field, len(mask.GetPaths()), 0, maxLabelLength)
	for _, path := range mask.GetPaths() {
		if !settable(path) {
			c.fail(field, path, limit)
		}
	}
}

// bulkRequest is what the bulk calls on sources have in common.
type bulkRequest interface {
	GetIds() []string
	GetFilter() *pb.Filter
	GetValidateOnly() bool
	GetPageToken() string
}

// validateBulk checks that a bulk call names ids, or a filter on purpose.
func validateBulk(req bulkRequest) error {
	var c checks
	switch {
	case len(req.GetIds()) > 0 && req.GetFilter() != nil:
		c.fail("filter", "set", "must be absent when ids are given")
	case len(req.GetIds()) == 0 && req.GetFilter() == nil:
		c.fail("ids", "", "must be set, or filter")
	case len(req.GetIds()) > 0 && req.GetPageToken() != "":
		c.fail("page_token", req.GetPageToken(), "must be empty when ids are given")
	}
	c.ids("ids", req.GetIds(), maxBatch, c.id)
	if req.GetFilter() != nil {
		c.sourceFilter(req.GetFilter())
	}
	return c.err()
}

// sourceFilter checks a filter of sources. A condition that does not apply to
// them is refused, or it would widen what is acted on.
func (c *checks) sourceFilter(f *pb.Filter) {
	for _, other := range []struct {
		field string
		set   bool
	}{
		{"filter.queue_suffix", f.GetQueueSuffix() != ""},
		{"filter.states", len(f.GetStates()) > 0},
		{"filter.failure_reasons", len(f.GetFailureReasons()) > 0},
		{"filter.source_id", f.GetSourceId() != ""},
		{"filter.queue", f.GetQueue() != ""},
		{"filter.collector_id", f.GetCollectorId() != ""},
	} {
		if other.set {
			c.fail(other.field, "set", "does not apply to sources")
		}
	}
	some := f.GetSourceIdPrefix() != "" || f.GetPool() != "" || len(f.GetLabels()) > 0 ||
		f.GetCreateTimeFrom() != nil || f.GetCreateTimeBefore() != nil
	if some == f.GetAll() {
		c.fail("filter.all", f.GetAll(), "must be true when no other condition is set, and false when one is")
	}
	c.optionalID("filter.source_id_prefix", f.GetSourceIdPrefix())
	c.optionalID("filter.pool", f.GetPool())
	c.labels("filter.labels", f.GetLabels(), bounds.MaxLabels)
	c.time("filter.create_time_from", f.GetCreateTimeFrom())
	c.time("filter.create_time_before", f.GetCreateTimeBefore())
}

// bulkWords checks who and why of a bulk call, and until when.
func bulkWords(by, reason string, more func(*checks)) error {
	var c checks
	c.operator(by, reason)
	if more != nil {
		more(&c)
	}
	return c.err()
}
