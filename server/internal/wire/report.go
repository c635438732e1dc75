package wire

import (
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/history"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	maxFetch      = 24 * time.Hour // fetch_duration and delay of reports
	maxRetryAfter = 366 * 24 * time.Hour
)

// Reports are the reports of a call, to be answered by [Reports.Results].
type Reports struct {
	List    []dispatch.Report
	refused []refusedItems // of each
}

// refusedItems are discovered items that cannot be tasks, by index, with the reason. They fail neither their report nor
// the other items: they are left out on the way in, and answered in their places.
type refusedItems map[int]string

// Report reads a ReportTaskRequest.
func Report(req *pb.ReportTaskRequest) (Reports, error) {
	var c checks
	c.id("collector_id", req.GetCollectorId())
	c.token("session", req.GetSession())
	reports := c.reports(req.GetReports(), 1)
	return reports, c.err()
}

func (c *checks) reports(reports []*pb.TaskReport, least int) Reports {
	var out Reports
	out.List = list(c, "reports", reports, least, MaxBatch, func(_ string, report *pb.TaskReport) dispatch.Report {
		var refused refusedItems
		read := dispatch.Report{ID: c.taskID("task_id", report.GetTaskId()), Token: c.leaseToken("lease_token", report.GetLeaseToken())}
		switch result := report.GetOutcome().GetResult().(type) {
		case *pb.Outcome_Succeeded:
			read.Succeeded, refused = c.succeeded(result.Succeeded)
		case *pb.Outcome_Failed:
			read.Failed = c.failed(result.Failed)
		case *pb.Outcome_Released:
			read.Released = &dispatch.Released{Delay: c.duration("outcome.released.delay", result.Released.GetDelay(), 0, maxFetch)}
		default:
			c.fail("outcome", "", "must be succeeded, failed or released")
		}
		out.refused = append(out.refused, refused)
		return read
	})
	return out
}

func (c *checks) succeeded(s *pb.Succeeded) (*dispatch.Succeeded, refusedItems) {
	const at = "outcome.succeeded."
	c.count(at+"discovered", len(s.GetDiscovered()), 0, engine.MaxDiscovered)
	items, refused := discovered(s.GetDiscovered())
	return &dispatch.Succeeded{
		HTTPStatus:     c.httpStatus(at+"http_status", s.GetHttpStatus()),
		Bytes:          c.number(at+"bytes", s.GetBytes(), 0, math.MaxInt64),
		FetchDuration:  c.duration(at+"fetch_duration", s.GetFetchDuration(), 0, maxFetch),
		Changed:        s.Changed,
		Memo:           c.bytes(at+"memo", s.Memo, bounds.MaxMemoLength),
		QueueDelay:     c.queueDelay(at+"queue_delay", s.GetQueueDelay()),
		NextCrawlDelay: c.duration(at+"next_crawl_delay", s.GetNextCrawlDelay(), 0, bounds.MaxEvery),
		Message:        c.text(at+"message", s.GetMessage(), bounds.MaxMessageLength),
		Discovered:     items,
		Document:       document(s.GetDocument()), BrokenOff: s.GetBrokenOff(),
	}, refused
}

// document is a kind of document; one of a later version is not known.
func document(kind pb.DocumentKind) history.Document {
	if kind < pb.DocumentKind_DOCUMENT_KIND_UNSPECIFIED || kind > pb.DocumentKind_DOCUMENT_KIND_EMPTY {
		return history.Unknown
	}
	return history.Document(kind)
}

func (c *checks) failed(f *pb.Failed) *dispatch.Failed {
	const at = "outcome.failed."
	reason := dispatch.FailureReason(f.GetReason())
	if reason < 0 {
		c.fail(at+"reason", int32(reason), "must be 0 or more")
	}
	if f.GetPermanent() && reason.Scope() != dispatch.ScopeTask {
		c.fail(at+"permanent", true, "must be false unless the reason has scope TASK")
	}
	if reason == 0 {
		reason = dispatch.FailureReason(pb.FailureReason_FAILURE_REASON_OTHER)
	}
	return &dispatch.Failed{
		Reason:        reason,
		Message:       c.text(at+"message", f.GetMessage(), bounds.MaxMessageLength),
		HTTPStatus:    c.httpStatus(at+"http_status", f.GetHttpStatus()),
		RetryAfter:    c.duration(at+"retry_after", f.GetRetryAfter(), 0, maxRetryAfter),
		FetchDuration: c.duration(at+"fetch_duration", f.GetFetchDuration(), 0, maxFetch),
		QueueDelay:    c.queueDelay(at+"queue_delay", f.GetQueueDelay()),
		Permanent:     f.GetPermanent(),
	}
}

func (c *checks) httpStatus(field string, code int32) int {
	if code != 0 && (code < 100 || code > 599) {
		c.fail(field, code, "must be 100 to 599, or 0 for none")
	}
	return int(code)
}

// queueDelay is nil when the collector did not report one; zero is no delay.
func (c *checks) queueDelay(field string, d *durationpb.Duration) *time.Duration {
	if d == nil {
		return nil
	}
	return new(c.duration(field, d, 0, bounds.MaxQueueDelay))
}

func (c *checks) taskID(field, value string) dispatch.TaskID {
	if value == "" {
		c.fail(field, value, "must be set")
		return ""
	}
	id, err := dispatch.ParseTaskID(value)
	for _, broken := range fieldErrors(err) {
		c.fail(field, value, "%s", broken.Limit)
	}
	return id
}

func (c *checks) leaseToken(field, value string) dispatch.LeaseToken {
	token, err := dispatch.ParseLeaseToken(value)
	switch {
	case value == "":
		c.fail(field, value, "must be set")
	case err != nil:
		c.fail(field, value, "must be a lease token, \"<collector_id>/<client_token>/<fence>\"")
	}
	return token
}

// Discovery is what a leased task's page leads to, to be answered by [Discovery.Response].
type Discovery struct {
	ID      dispatch.TaskID
	Token   dispatch.LeaseToken
	Items   []dispatch.DiscoveredItem
	refused refusedItems
}

// Discovered reads a SubmitDiscoveredRequest.
func Discovered(req *pb.SubmitDiscoveredRequest) (*Discovery, error) {
	var c checks
	d := &Discovery{ID: c.taskID("task_id", req.GetTaskId()), Token: c.leaseToken("lease_token", req.GetLeaseToken())}
	c.count("items", len(req.GetItems()), 1, engine.MaxDiscovered)
	d.Items, d.refused = discovered(req.GetItems())
	return d, c.err()
}

// Response converts what became of all items.
func (d *Discovery) Response(results []engine.DiscoverResult) *pb.SubmitDiscoveredResponse {
	return &pb.SubmitDiscoveredResponse{Summary: toSummary(results, d.refused)}
}

// discovered reads the items that can be tasks, and why the others cannot.
func discovered(items []*pb.DiscoveredItem) (out []dispatch.DiscoveredItem, refused refusedItems) {
	for i, item := range items[:min(len(items), engine.MaxDiscovered)] {
		var c checks
		c.identity(item.GetUrl(), item.GetKey(), item.GetQueue())
		read := dispatch.DiscoveredItem{
			URL: item.GetUrl(), Key: item.GetKey(), Queue: item.GetQueue(),
			Kind:     c.text("kind", item.GetKind(), bounds.MaxIDLength),
			Priority: c.priority("priority", item.Priority),
			Metadata: c.metadata("metadata", item.GetMetadata()),
			Payload:  c.bytes("payload", item.GetPayload(), bounds.MaxPayloadLength),
			Relation: dispatch.Relation(item.GetRelation()),
			Modified: c.time("modified_time", item.GetModifiedTime()),
		}
		if r := item.GetRelation(); r < pb.Relation_RELATION_LINK || r > pb.Relation_RELATION_REDIRECT {
			read.Relation = dispatch.RelationLink // of a later version
		}
		if err := c.err(); err != nil {
			if refused == nil {
				refused = make(refusedItems)
			}
			refused[i] = err.Error()
			continue
		}
		out = append(out, read)
	}
	return out, refused
}

// identity checks what makes the identity of a task. It does not look at the URL: the domain does, for each item. A key
// may be a URL, too, and is shown like one.
func (c *checks) identity(url, key, queue string) {
	if url == "" && (key == "" || queue == "") {
		c.fail("url", url, "must be set, unless key and queue are")
	}
	if canonical.HasCredentials(key) {
		c.fail("key", key, "must be no URL with a user name or password, since keys are kept and shown")
	}
	c.text("key", key, bounds.MaxURLLength)
	optional(c.queue, "queue", queue)
}

// Results converts what became of the reports, in their order.
func (r *Reports) Results(results []engine.ReportResult) []*pb.ReportResult {
	out := make([]*pb.ReportResult, len(results))
	for i := range results {
		out[i] = toReportResult(&results[i])
		if results[i].Code == engine.ReportOK {
			out[i].Discovered = toSummary(results[i].Discovered, r.refused[i])
		}
	}
	return out
}

func toReportResult(r *engine.ReportResult) *pb.ReportResult {
	out := &pb.ReportResult{
		TaskId: string(r.ID), Code: pb.ReportCode(r.Code), DueTime: toTime(r.Due), RetryAfter: toDuration(r.RetryAfter),
	}
	switch {
	case r.Code == engine.ReportOK || r.Code == engine.ReportAlready:
		out.State, out.Result = pb.TaskState(r.State), attemptResults[r.Result]
	case r.Code == engine.ReportLeaseLost:
		out.LostReason = lostReasons[r.Lost]
	case r.Code == engine.ReportStoreFull && out.RetryAfter == nil:
		out.RetryAfter = durationpb.New(retryFull)
	}
	return out
}

// attemptResults are the API's names of how attempts ended.
var attemptResults = map[dispatch.Result]pb.AttemptResult{
	dispatch.ResultSucceeded: pb.AttemptResult_ATTEMPT_RESULT_SUCCEEDED,
	dispatch.ResultFailed:    pb.AttemptResult_ATTEMPT_RESULT_FAILED,
	dispatch.ResultReleased:  pb.AttemptResult_ATTEMPT_RESULT_RELEASED,
	dispatch.ResultGivenBack: pb.AttemptResult_ATTEMPT_RESULT_RELEASED,
	dispatch.ResultRevoked:   pb.AttemptResult_ATTEMPT_RESULT_REVOKED,
	dispatch.ResultCanceled:  pb.AttemptResult_ATTEMPT_RESULT_CANCELED,
	dispatch.ResultHeld:      pb.AttemptResult_ATTEMPT_RESULT_HELD,
	// All of these count as expirations.
	dispatch.ResultExpired:  pb.AttemptResult_ATTEMPT_RESULT_EXPIRED,
	dispatch.ResultMaxHold:  pb.AttemptResult_ATTEMPT_RESULT_EXPIRED,
	dispatch.ResultReplaced: pb.AttemptResult_ATTEMPT_RESULT_EXPIRED,
}

// lostReasons are the API's names of why a lease is lost.
var lostReasons = map[dispatch.LostReason]pb.LostReason{
	dispatch.LostUnknownTask: pb.LostReason_LOST_REASON_NOT_FOUND,
	dispatch.LostNotLeased:   pb.LostReason_LOST_REASON_NOT_LEASED,
	dispatch.LostTaken:       pb.LostReason_LOST_REASON_TAKEN,
	dispatch.LostMaxHold:     pb.LostReason_LOST_REASON_MAX_HOLD,
	dispatch.LostLockDeleted: pb.LostReason_LOST_REASON_LOCK_DELETED,
	dispatch.LostReplaced:    pb.LostReason_LOST_REASON_COLLECTOR_REPLACED,
	dispatch.LostReported:    pb.LostReason_LOST_REASON_SETTLED,
	dispatch.LostExpired:     pb.LostReason_LOST_REASON_EXPIRED,
	dispatch.LostRevoked:     pb.LostReason_LOST_REASON_REVOKED,
	dispatch.LostMalformed:   pb.LostReason_LOST_REASON_MALFORMED,
}

// toSummary puts the results of the items that were taken between those of the refused ones, and counts both.
func toSummary(results []engine.DiscoverResult, refused refusedItems) *pb.DiscoverSummary {
	total := len(results) + len(refused)
	if total == 0 {
		return nil
	}
	out := &pb.DiscoverSummary{Results: make([]*pb.DiscoverResult, total)}
	for i := range out.Results {
		r := engine.DiscoverResult{Code: engine.DiscoverInvalid, Message: refused[i]}
		if _, bad := refused[i]; !bad {
			r, results = results[0], results[1:]
		}
		*counterOf(out, r.Code)++
		out.Results[i] = &pb.DiscoverResult{
			Code: pb.DiscoverCode(r.Code), TaskId: string(r.ID), Message: r.Message, FilterReason: pb.FilterReason(r.Filter),
		}
	}
	return out
}

func counterOf(s *pb.DiscoverSummary, code engine.DiscoverCode) *int32 {
	switch code {
	case engine.DiscoverCreated:
		return &s.Created
	case engine.DiscoverExists:
		return &s.Existing
	case engine.DiscoverRevisit:
		return &s.Revisited
	case engine.DiscoverFiltered:
		return &s.Filtered
	case engine.DiscoverLimited:
		return &s.Limited
	default:
		return &s.Invalid
	}
}
