package server

import (
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Bounds of requests that the domain has no name for.
const (
	maxBatch      = 1000 // items, reports, leases or ids of one call
	maxHostname   = 253
	maxSlots      = 100_000
	maxRetryAfter = 366 * 24 * time.Hour
	maxFetch      = 24 * time.Hour // fetch_duration and delay of reports
)

func validateFetch(req *pb.FetchTaskRequest) error {
	var c checks
	c.id("collector_id", req.GetCollectorId())
	c.token("session", req.GetSession())
	if req.GetClientToken() != "" {
		c.token("client_token", req.GetClientToken())
	}
	c.ids("pools", req.GetPools(), engine.MaxNarrow, c.id)
	c.ids("sources", req.GetSources(), engine.MaxNarrow, c.id)
	c.ids("queues", req.GetQueues(), engine.MaxNarrow, c.queue)
	c.number("max_tasks", int64(req.GetMaxTasks()), 0, engine.MaxFetchTasks)
	c.number("max_bytes", int64(req.GetMaxBytes()), 0, engine.MaxFetchBytes)
	c.duration("wait", req.GetWait(), 0, bounds.MaxWait)
	c.duration("lease_duration", req.GetLeaseDuration(), bounds.MinLeaseDuration, bounds.MaxLeaseDuration)
	c.count("reports", len(req.GetReports()), 0, maxBatch)
	c.reports(req.GetReports())
	return c.err()
}

func validateReports(req *pb.ReportTaskRequest) error {
	var c checks
	c.id("collector_id", req.GetCollectorId())
	c.token("session", req.GetSession())
	c.count("reports", len(req.GetReports()), 1, maxBatch)
	c.reports(req.GetReports())
	return c.err()
}

// reports checks all but the discovered items, of which none may fail a report;
// those have validateItem.
func (c *checks) reports(reports []*pb.TaskReport) {
	for i, report := range reports[:min(len(reports), maxBatch)] {
		n := len(c.broken)
		c.taskID("task_id", report.GetTaskId())
		c.leaseToken("lease_token", report.GetLeaseToken())
		c.outcome(report.GetOutcome())
		c.within(n, "reports", i)
	}
}

func (c *checks) outcome(outcome *pb.Outcome) {
	switch result := outcome.GetResult().(type) {
	case *pb.Outcome_Succeeded:
		c.succeeded(result.Succeeded)
	case *pb.Outcome_Failed:
		c.failed(result.Failed)
	case *pb.Outcome_Released:
		c.duration("outcome.released.delay", result.Released.GetDelay(), 0, maxFetch)
	default:
		c.fail("outcome", "", "must be succeeded, failed or released")
	}
}

func (c *checks) succeeded(s *pb.Succeeded) {
	const at = "outcome.succeeded."
	c.httpStatus(at+"http_status", s.GetHttpStatus())
	c.number(at+"bytes", s.GetBytes(), 0, math.MaxInt64)
	c.duration(at+"fetch_duration", s.GetFetchDuration(), 0, maxFetch)
	c.size(at+"memo", len(s.GetMemo()), bounds.MaxMemoLength)
	c.count(at+"discovered", len(s.GetDiscovered()), 0, engine.MaxDiscovered)
	c.duration(at+"queue_delay", s.GetQueueDelay(), 0, bounds.MaxQueueDelay)
	c.duration(at+"next_crawl_delay", s.GetNextCrawlDelay(), 0, bounds.MaxEvery)
}

func (c *checks) failed(f *pb.Failed) {
	const at = "outcome.failed."
	reason := dispatch.FailureReason(f.GetReason())
	if reason < 0 {
		c.fail(at+"reason", int32(reason), "must be 0 or more")
	}
	c.text(at+"message", f.GetMessage(), bounds.MaxMessageLength)
	c.httpStatus(at+"http_status", f.GetHttpStatus())
	c.duration(at+"retry_after", f.GetRetryAfter(), 0, maxRetryAfter)
	c.duration(at+"fetch_duration", f.GetFetchDuration(), 0, maxFetch)
	c.duration(at+"queue_delay", f.GetQueueDelay(), 0, bounds.MaxQueueDelay)
	if f.GetPermanent() && reason.Scope() != dispatch.ScopeTask {
		c.fail(at+"permanent", true, "must be false with a reason of scope HOST or COLLECTOR")
	}
}

func (c *checks) httpStatus(field string, code int32) {
	if code != 0 && (code < 100 || code > 599) {
		c.fail(field, code, "must be 100 to 599, or 0 for none")
	}
}

func validateDiscovered(req *pb.SubmitDiscoveredRequest) error {
	var c checks
	c.taskID("task_id", req.GetTaskId())
	c.leaseToken("lease_token", req.GetLeaseToken())
	c.count("items", len(req.GetItems()), 1, engine.MaxDiscovered)
	return c.err()
}

// newItem is what submitted and discovered items have in common.
type newItem interface {
	GetUrl() string
	GetKey() string
	GetQueue() string
	GetKind() string
	GetMetadata() map[string]string
	GetPayload() []byte
}

// validateItem checks one discovered item.
func validateItem(item *pb.DiscoveredItem) error {
	var c checks
	c.item(item, item.Priority)
	c.time("modified_time", item.GetModifiedTime())
	return c.err()
}

// validateSubmit checks one submitted item.
func validateSubmit(item *pb.SubmitItem, now time.Time) error {
	var c checks
	c.id("source_id", item.GetSourceId())
	c.item(item, item.Priority)
	c.until("due_time", item.GetDueTime(), now)
	c.enum("if_exists", item.GetIfExists())
	return c.err()
}

func (c *checks) item(item newItem, priority *int32) {
	c.identity(item.GetUrl(), item.GetKey(), item.GetQueue())
	c.text("kind", item.GetKind(), bounds.MaxIDLength)
	c.priority("priority", priority)
	c.metadata("metadata", item.GetMetadata())
	c.size("payload", len(item.GetPayload()), bounds.MaxPayloadLength)
}

// beat is what Heartbeat and RenewLease have in common.
type beat interface {
	GetCollector() *pb.CollectorInfo
	GetLeases() []*pb.LeaseBeat
}

// validateBeat checks all but task ids and lease tokens: one that is none is a
// lease that is lost, and a lost lease fails no beat.
func validateBeat(b beat) error {
	var c checks
	info := b.GetCollector()
	c.id("collector.id", info.GetId())
	c.token("collector.session", info.GetSession())
	c.text("collector.version", info.GetVersion(), bounds.MaxIDLength)
	c.text("collector.hostname", info.GetHostname(), maxHostname)
	c.labels("collector.labels", info.GetLabels(), bounds.MaxLabels)
	c.ids("collector.pools", info.GetPools(), engine.MaxNarrow, c.id)
	c.ids("collector.sources", info.GetSources(), engine.MaxNarrow, c.id)
	c.ids("collector.queues", info.GetQueues(), engine.MaxNarrow, c.queue)
	c.number("collector.slots", int64(info.GetSlots()), 0, maxSlots)
	c.count("leases", len(b.GetLeases()), 0, maxBatch)
	if info.GetEnded() && len(b.GetLeases()) > 0 {
		c.fail("collector.ended", true, "must be false in a beat that names leases")
	}
	for i, lease := range b.GetLeases()[:min(len(b.GetLeases()), maxBatch)] {
		n := len(c.broken)
		c.size("cursor", len(lease.GetCursor()), bounds.MaxCursorLength)
		if p := lease.GetProgress(); !(p >= 0 && p <= 1) {
			c.fail("progress", p, "must be 0 to 1")
		}
		c.within(n, "leases", i)
	}
	return c.err()
}

func validateSubmitTasks(req *pb.SubmitTasksRequest) error {
	var c checks
	c.count("items", len(req.GetItems()), 1, maxBatch)
	return c.err()
}

func validateGetTask(req *pb.GetTaskRequest) error {
	var c checks
	if req.GetTaskId() != "" {
		c.taskID("task_id", req.GetTaskId())
		for _, other := range []struct{ field, value string }{
			{"source_id", req.GetSourceId()}, {"url", req.GetUrl()}, {"key", req.GetKey()}, {"queue", req.GetQueue()},
		} {
			if other.value != "" {
				c.fail(other.field, other.value, "must be empty when task_id is set")
			}
		}
		return c.err()
	}
	if req.GetSourceId() == "" {
		c.fail("task_id", "", "must be set, unless source_id and url, or source_id, key and queue are")
		return c.err()
	}
	c.id("source_id", req.GetSourceId())
	c.target(req.GetUrl(), req.GetKey(), req.GetQueue())
	return c.err()
}

func validateListTasks(req *pb.ListTasksRequest) error {
	var c checks
	if req.GetSourceId() == "" && req.GetQueue() == "" {
		c.fail("source_id", "", "must be set, or queue")
	}
	c.optionalID("source_id", req.GetSourceId())
	c.optionalQueue("queue", req.GetQueue())
	c.count("states", len(req.GetStates()), 0, 6)
	for i, state := range req.GetStates() {
		switch field := fmt.Sprintf("states[%d]", i); state {
		case pb.TaskState_TASK_STATE_SCHEDULED, pb.TaskState_TASK_STATE_READY, pb.TaskState_TASK_STATE_LEASED,
			pb.TaskState_TASK_STATE_DEAD, pb.TaskState_TASK_STATE_CANCELED:
		case pb.TaskState_TASK_STATE_DONE:
			c.fail(field, state, "is not listed: a task that is DONE is found by GetTask")
		default:
			c.fail(field, state, "must be SCHEDULED, READY, LEASED, DEAD or CANCELED")
		}
	}
	c.page(req.GetPageSize())
	return c.err()
}

func validateQueueName(field, name string) error {
	var c checks
	c.queue(field, name)
	return c.err()
}

func validateListQueues(req *pb.ListQueuesRequest) error {
	var c checks
	c.suffix("suffix", req.GetSuffix())
	c.page(req.GetPageSize())
	return c.err()
}

// holdRequest is what every call that closes a gate of one thing has.
type holdRequest interface {
	GetName() string
	GetUntil() *timestamppb.Timestamp
	GetBy() string
	GetReason() string
}

func validateHoldQueue(req holdRequest, now time.Time) error {
	var c checks
	c.queue("name", req.GetName())
	c.until("until", req.GetUntil(), now)
	c.operator(req.GetBy(), req.GetReason())
	return c.err()
}

func validateSetQueueRule(req *pb.SetQueueRuleRequest) error {
	var c checks
	rule := req.GetRule()
	c.pattern("rule.pattern", rule.GetPattern())
	c.optionalQueue("rule.queue", rule.GetQueue())
	c.duration("rule.min_delay", rule.GetMinDelay(), 0, bounds.MaxMinDelay)
	if rule != nil && rule.MaxInFlight != nil {
		c.number("rule.max_in_flight", int64(rule.GetMaxInFlight()), 1, bounds.MaxInFlight)
	}
	if f := rule.GetDelayFactor(); !(f >= 0 && f <= 100) {
		c.fail("rule.delay_factor", f, "must be 0 to 100")
	}
	c.duration("rule.max_delay", rule.GetMaxDelay(), time.Millisecond, bounds.MaxMinDelay)
	c.duration("rule.max_block", rule.GetMaxBlock(), time.Second, 30*24*time.Hour)
	c.mask(req.GetUpdateMask(), ruleField, "must name settings of a rule: queue, min_delay, max_in_flight, delay_factor, max_delay, max_block, paused, deny")
	c.rulesEtag(req.GetEtag())
	c.operator(req.GetBy(), req.GetReason())
	return c.err()
}

// ruleField reports whether a mask may name the path: a setting of a rule, or the pattern,
// which names the rule and changes nothing.
func ruleField(path string) bool {
	switch path {
	case "pattern", "queue", "min_delay", "max_in_flight", "delay_factor", "max_delay", "max_block", "paused", "deny":
		return true
	}
	return false
}

func validatePattern(req *pb.DeleteQueueRuleRequest) error {
	var c checks
	c.pattern("pattern", req.GetPattern())
	c.rulesEtag(req.GetEtag())
	c.operator(req.GetBy(), req.GetReason())
	return c.err()
}

func (c *checks) rulesEtag(etag string) {
	if _, ok := parseRuleEtag(etag); !ok {
		c.fail("etag", etag, "must be an etag as the queue rules were read with")
	}
}

func validatePage(size int32) error {
	var c checks
	c.page(size)
	return c.err()
}
