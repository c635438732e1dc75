package wire

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
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
)

// spec reads the form and size of each field of a spec. What fields mean together, and whether cron lines and
// expressions parse, is for [dispatch.SourceSpec.Validate] to check. What is absent is zero, for
// [dispatch.SourceSpec.FillDefaults] to fill.
func (c *checks) spec(s *pb.SourceSpec) dispatch.SourceSpec {
	if s == nil {
		s = &pb.SourceSpec{}
	}
	c.id("spec.id", s.GetId())
	out := dispatch.SourceSpec{
		DisplayName:   c.text("spec.display_name", s.GetDisplayName(), maxDisplayName),
		Labels:        c.labels("spec.labels", s.GetLabels(), bounds.MaxLabels),
		Scope:         optional(c.id, "spec.scope", s.GetScope()),
		Pool:          optional(c.id, "spec.pool", s.GetPool()),
		Seeds:         list(c, "spec.seeds", s.GetSeeds(), 0, bounds.MaxSeeds, c.seed),
		Schedule:      c.schedule(s.GetSchedule()),
		FirstCrawl:    dispatch.FirstCrawlNow,
		Priority:      c.priority("spec.priority", s.Priority),
		LeaseDuration: c.duration("spec.lease_duration", s.GetLeaseDuration(), bounds.MinLeaseDuration, bounds.MaxLeaseDuration),
		MaxHold:       c.duration("spec.max_hold", s.GetMaxHold(), bounds.MinLeaseDuration, bounds.MaxHold),
		Retry:         c.retry(s.GetRetry()),
		Remember:      c.duration("spec.remember", s.GetRemember(), minRemember, bounds.MaxRemember),
		RevisitAfter:  c.duration("spec.revisit_after", s.GetRevisitAfter(), time.Second, bounds.MaxRemember),
		QuietAfter:    c.duration("spec.quiet_after", s.GetQuietAfter(), time.Minute, bounds.MaxRemember),
		Follow:        c.follow(s.GetFollow()),
		Metadata:      c.metadata("spec.metadata", s.GetMetadata()),

		CanonicalRules: int(s.GetCanonicalRules()), MaxOutstanding: s.GetMaxOutstanding(),
	}
	if c.enum("spec.first_crawl", s.GetFirstCrawl()); s.GetFirstCrawl() == pb.FirstCrawl_FIRST_CRAWL_SPREAD {
		out.FirstCrawl = dispatch.FirstCrawlSpread
	}
	if s.MaxOutstanding != nil {
		c.number("spec.max_outstanding", s.GetMaxOutstanding(), 1, maxOutstanding)
	}
	if len(s.GetPayload()) > 0 {
		out.Payload = c.bytes("spec.payload", s.GetPayload(), bounds.MaxPayloadLength)
	}
	return out
}

// replaceSpec checks a spec and puts it in the place of another.
func replaceSpec(spec *dispatch.SourceSpec, with *pb.SourceSpec) error {
	var c checks
	read := c.spec(with)
	if err := c.err(); err != nil {
		return err
	}
	*spec = read
	return nil
}

// toSpec is the spec as people can write it. It and [checks.spec] give back what the other was given: UpdateSource lays
// fields over toSpec of what is kept.
func toSpec(id string, s *dispatch.SourceSpec) *pb.SourceSpec {
	out := &pb.SourceSpec{
		Id: id, DisplayName: s.DisplayName, Labels: s.Labels, Scope: s.Scope, Pool: s.Pool, CanonicalRules: int32(s.CanonicalRules),
		Schedule: toSchedule(s.Schedule), FirstCrawl: pb.FirstCrawl_FIRST_CRAWL_NOW, Priority: new(int32(s.Priority)),
		LeaseDuration: toDuration(s.LeaseDuration), MaxHold: toDuration(s.MaxHold), Retry: toRetry(s.Retry),
		Remember: toDuration(s.Remember), RevisitAfter: toDuration(s.RevisitAfter), QuietAfter: toDuration(s.QuietAfter), Follow: toFollow(s.Follow),
		Metadata: s.Metadata, Payload: s.Payload,
	}
	if s.FirstCrawl == dispatch.FirstCrawlSpread {
		out.FirstCrawl = pb.FirstCrawl_FIRST_CRAWL_SPREAD
	}
	if s.MaxOutstanding > 0 {
		out.MaxOutstanding = &s.MaxOutstanding
	}
	for _, seed := range s.Seeds {
		out.Seeds = append(out.Seeds, &pb.Seed{Url: seed.URL, Key: seed.Key, Queue: seed.Queue, Kind: seed.Kind})
	}
	return out
}

func (c *checks) seed(_ string, seed *pb.Seed) dispatch.Seed {
	url := canonical.WebAddress(seed.GetUrl())
	c.target(url, seed.GetKey(), seed.GetQueue())
	return dispatch.Seed{
		URL: canonical.Escape(url), Key: seed.GetKey(), Queue: seed.GetQueue(),
		Kind: c.text("kind", seed.GetKind(), bounds.MaxIDLength), Priority: dispatch.DefaultPriority,
	}
}

func (c *checks) schedule(s *pb.Schedule) dispatch.Schedule {
	const at = "spec.schedule."
	out := dispatch.Schedule{Revisit: s.GetRevisit()}
	every := func(field string, d *durationpb.Duration) time.Duration {
		return c.duration(at+field, d, bounds.MinEvery, bounds.MaxEvery)
	}
	switch rule := s.GetRule().(type) {
	case *pb.Schedule_Every:
		out.Every = every("every", rule.Every)
	case *pb.Schedule_Cron:
		if rule.Cron == "" {
			c.fail(at+"cron", "", "must be five cron fields or a descriptor such as @daily")
		}
		out.Cron = c.text(at+"cron", rule.Cron, maxCron)
	case *pb.Schedule_Adaptive:
		bound := func(field string, d *durationpb.Duration) time.Duration {
			if d == nil {
				c.fail(at+field, "", "must be set, to %v to %v", bounds.MinEvery, bounds.MaxEvery)
			}
			return every(field, d)
		}
		out.Adaptive = dispatch.Adaptive{
			Min: bound("adaptive.min_interval", rule.Adaptive.GetMinInterval()), Max: bound("adaptive.max_interval", rule.Adaptive.GetMaxInterval()),
		}
	}
	out.Jitter = c.duration(at+"jitter", s.GetJitter(), time.Millisecond, bounds.MaxEvery)
	out.TimeZone = c.text(at+"time_zone", s.GetTimeZone(), maxLabelLength)
	return out
}

func toSchedule(s dispatch.Schedule) *pb.Schedule {
	if s == (dispatch.Schedule{}) {
		return nil
	}
	out := &pb.Schedule{TimeZone: s.TimeZone, Revisit: s.Revisit, Jitter: toDuration(s.Jitter)}
	switch {
	case s.Every > 0:
		out.Rule = &pb.Schedule_Every{Every: durationpb.New(s.Every)}
	case s.Cron != "":
		out.Rule = &pb.Schedule_Cron{Cron: s.Cron}
	case s.Adaptive != (dispatch.Adaptive{}):
		out.Rule = &pb.Schedule_Adaptive{Adaptive: &pb.Adaptive{
			MinInterval: durationpb.New(s.Adaptive.Min), MaxInterval: durationpb.New(s.Adaptive.Max),
		}}
	}
	return out
}

func (c *checks) retry(r *pb.RetryPolicy) dispatch.Retry {
	if r == nil {
		return dispatch.Retry{}
	}
	budget := func(field string, n *int32, most int64) int {
		if n == nil {
			return 0
		}
		return int(c.number("spec.retry."+field, int64(*n), 1, most))
	}
	backoff := func(field string, d *durationpb.Duration, most time.Duration) time.Duration {
		if d == nil {
			return 0
		}
		// Zero means the default there, and a millisecond is the store's finest wait.
		return max(c.duration("spec.retry."+field, d, 0, most), time.Millisecond)
	}
	return dispatch.Retry{
		MaxAttempts:    budget("max_attempts", r.MaxAttempts, 100),
		MaxExpirations: budget("max_expirations", r.MaxExpirations, 100),
		MaxThrottled:   budget("max_throttled", r.MaxThrottled, 1000),
		MinBackoff:     backoff("min_backoff", r.GetMinBackoff(), maxFetch),
		MaxBackoff:     backoff("max_backoff", r.GetMaxBackoff(), maxBackoff),
	}
}

func toRetry(r dispatch.Retry) *pb.RetryPolicy {
	return &pb.RetryPolicy{
		MaxAttempts: new(int32(r.MaxAttempts)), MaxExpirations: new(int32(r.MaxExpirations)), MaxThrottled: new(int32(r.MaxThrottled)),
		MinBackoff: durationpb.New(r.MinBackoff), MaxBackoff: durationpb.New(r.MaxBackoff),
	}
}

func (c *checks) follow(f *pb.Follow) *dispatch.Follow {
	if f == nil {
		return nil
	}
	const at = "spec.follow."
	out := &dispatch.Follow{}
	if f.MaxDepth != nil {
		out.MaxDepth = new(int(c.number(at+"max_depth", int64(f.GetMaxDepth()), 0, bounds.MaxDepth)))
	}
	expression := func(field, value string) string {
		if value == "" {
			c.fail(field, value, "must be set")
		}
		c.size(field, len(value), maxExpression)
		return value
	}
	out.AllowHosts = list(c, at+"allow_hosts", f.GetAllowHosts(), 0, maxHosts, c.pattern)
	out.Include = list(c, at+"include", f.GetInclude(), 0, bounds.MaxFollowPatterns, expression)
	out.Exclude = list(c, at+"exclude", f.GetExclude(), 0, bounds.MaxFollowPatterns, expression)
	return out
}

func toFollow(f *dispatch.Follow) *pb.Follow {
	if f == nil {
		return nil
	}
	out := &pb.Follow{AllowHosts: f.AllowHosts, Include: f.Include, Exclude: f.Exclude}
	if f.MaxDepth != nil {
		out.MaxDepth = new(int32(*f.MaxDepth))
	}
	return out
}
