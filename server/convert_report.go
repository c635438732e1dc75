package server

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// reports are TaskReports on their way through the domain. Discovered items
// that cannot be tasks are left out there and answered here, in their places.
type reports struct {
	in      []dispatch.Report
	refused map[int]refusedItems // of the reports that have some, by their index
}

// refusedItems are discovered items that are invalid, by their index.
type refusedItems map[int]string

func fromReports(in []*pb.TaskReport) (reports, error) {
	out := reports{in: make([]dispatch.Report, len(in))}
	succeeded := make([]dispatch.Succeeded, len(in))
	for i, report := range in {
		token, err := dispatch.ParseLeaseToken(report.GetLeaseToken())
		if err != nil {
			return reports{}, err
		}
		out.in[i] = dispatch.Report{ID: dispatch.TaskID(report.GetTaskId()), Token: token}
		switch result := report.GetOutcome().GetResult().(type) {
		case *pb.Outcome_Succeeded:
			var refused refusedItems
			succeeded[i], refused = fromSucceeded(result.Succeeded)
			out.in[i].Succeeded = &succeeded[i]
			out.refuse(i, refused)
		case *pb.Outcome_Failed:
			out.in[i].Failed = fromFailed(result.Failed)
		case *pb.Outcome_Released:
			out.in[i].Released = &dispatch.Released{Delay: result.Released.GetDelay().AsDuration()}
		}
	}
	return out, nil
}

// refuse notes the items of a report that cannot be tasks; hardly any has some.
func (r *reports) refuse(i int, items refusedItems) {
	if len(items) == 0 {
		return
	}
	if r.refused == nil {
		r.refused = make(map[int]refusedItems)
	}
	r.refused[i] = items
}

func fromSucceeded(s *pb.Succeeded) (dispatch.Succeeded, refusedItems) {
	items, refused := fromDiscovered(s.GetDiscovered())
	out := dispatch.Succeeded{
		HTTPStatus: int(s.GetHttpStatus()), Bytes: s.GetBytes(), FetchDuration: s.GetFetchDuration().AsDuration(),
		Changed: s.Changed, Memo: s.Memo, Discovered: items, QueueDelay: fromOptional(s.GetQueueDelay()),
		NextCrawlDelay: s.GetNextCrawlDelay().AsDuration(),
	}
	return out, refused
}

func fromFailed(f *pb.Failed) *dispatch.Failed {
	reason := dispatch.FailureReason(f.GetReason())
	if reason == 0 {
		reason = dispatch.FailureReason(pb.FailureReason_FAILURE_REASON_OTHER)
	}
	return &dispatch.Failed{
		Reason: reason, Message: f.GetMessage(), HTTPStatus: int(f.GetHttpStatus()),
		RetryAfter: f.GetRetryAfter().AsDuration(), FetchDuration: f.GetFetchDuration().AsDuration(), Permanent: f.GetPermanent(),
		QueueDelay: fromOptional(f.GetQueueDelay()),
	}
}

// fromOptional tells a duration of zero from one that was not said.
func fromOptional(d *durationpb.Duration) *time.Duration {
	if d == nil {
		return nil
	}
	said := d.AsDuration()
	return &said
}

// fromDiscovered converts the items that can be tasks, and says why the others
// cannot.
func fromDiscovered(in []*pb.DiscoveredItem) ([]dispatch.DiscoveredItem, refusedItems) {
	out := make([]dispatch.DiscoveredItem, 0, len(in))
	var refused refusedItems
	for i, item := range in {
		if err := validateItem(item); err != nil {
			if refused == nil {
				refused = make(refusedItems)
			}
			refused[i] = err.Error()
			continue
		}
		out = append(out, dispatch.DiscoveredItem{
			URL: item.GetUrl(), Key: item.GetKey(), Queue: item.GetQueue(), Kind: item.GetKind(),
			Priority: int(or(item.Priority, dispatch.DefaultPriority)), Metadata: item.GetMetadata(), Payload: item.GetPayload(),
			Relation: fromRelation(item.GetRelation()), Modified: fromTime(item.GetModifiedTime()),
		})
	}
	return out, refused
}

// fromRelation takes a relation of a later version for a link.
func fromRelation(r pb.Relation) dispatch.Relation {
	if r < pb.Relation_RELATION_LINK || r > pb.Relation_RELATION_REDIRECT {
		return dispatch.RelationLink
	}
	return dispatch.Relation(r)
}

// toSummary puts the answers of the items that were taken between those of the
// refused ones, and counts both.
func toSummary(results []engine.DiscoverResult, refused refusedItems) *pb.DiscoverSummary {
	total := len(results) + len(refused)
	if total == 0 {
		return nil
	}
	out := &pb.DiscoverSummary{Results: make([]*pb.DiscoverResult, 0, total)}
	for i := range total {
		if why, bad := refused[i]; bad {
			out.Results = append(out.Results, &pb.DiscoverResult{Code: pb.DiscoverCode_DISCOVER_CODE_INVALID, Message: why})
			out.Invalid++
			continue
		}
		r := results[0]
		results = results[1:]
		out.Results = append(out.Results, &pb.DiscoverResult{
			Code: countCode(out, r.Code), TaskId: string(r.ID), Message: r.Message, FilterReason: pb.FilterReason(r.Filter),
		})
	}
	return out
}

// countCode converts the code of an item and counts it.
func countCode(out *pb.DiscoverSummary, code engine.DiscoverCode) pb.DiscoverCode {
	switch code {
	case engine.DiscoverCreated:
		out.Created++
		return pb.DiscoverCode_DISCOVER_CODE_CREATED
	case engine.DiscoverExists:
		out.Existing++
		return pb.DiscoverCode_DISCOVER_CODE_EXISTS
	case engine.DiscoverRevisit:
		out.Revisited++
		return pb.DiscoverCode_DISCOVER_CODE_REVISIT
	case engine.DiscoverFiltered:
		out.Filtered++
		return pb.DiscoverCode_DISCOVER_CODE_FILTERED
	case engine.DiscoverLimited:
		out.Limited++
		return pb.DiscoverCode_DISCOVER_CODE_LIMITED
	default:
		out.Invalid++
		return pb.DiscoverCode_DISCOVER_CODE_INVALID
	}
}

// results answers the reports, in their order.
func (r reports) results(out []engine.ReportResult) []*pb.ReportResult {
	results := messages[pb.ReportResult](len(out))
	for i := range out {
		answerReport(results[i], &out[i])
		if out[i].Code == engine.ReportOK {
			results[i].Discovered = toSummary(out[i].Discovered, r.refused[i])
		}
	}
	return results
}

// answerReport fills in what became of a report.
func answerReport(out *pb.ReportResult, r *engine.ReportResult) {
	out.TaskId, out.DueTime, out.RetryAfter = string(r.ID), toTime(r.Due), toDuration(r.RetryAfter)
	switch r.Code {
	case engine.ReportOK:
		out.Code = pb.ReportCode_REPORT_CODE_OK
	case engine.ReportAlready:
		out.Code = pb.ReportCode_REPORT_CODE_ALREADY_REPORTED
	case engine.ReportLeaseLost:
		out.Code, out.LostReason = pb.ReportCode_REPORT_CODE_LEASE_LOST, toLost(r.Lost)
		return
	case engine.ReportNotFound:
		out.Code = pb.ReportCode_REPORT_CODE_NOT_FOUND
		return
	case engine.ReportStoreFull:
		out.Code = pb.ReportCode_REPORT_CODE_STORE_FULL
		if out.RetryAfter == nil {
			out.RetryAfter = durationpb.New(retryFull)
		}
		return
	case engine.ReportUnavailable:
		out.Code = pb.ReportCode_REPORT_CODE_STORE_UNAVAILABLE
		return
	}
	out.State, out.Result = toState(r.State), toResult(r.Result)
}
