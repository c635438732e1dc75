package wire

import (
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Fetch reads a FetchTaskRequest, and the reports that it carries: they are in the fetch, and answered by Reports.
func Fetch(req *pb.FetchTaskRequest) (engine.FetchRequest, Reports, error) {
	var c checks
	fetch := engine.FetchRequest{
		Collector:   c.id("collector_id", req.GetCollectorId()),
		Session:     c.token("session", req.GetSession()),
		ClientToken: optional(c.token, "client_token", req.GetClientToken()),
		Pools:       list(&c, "pools", req.GetPools(), 0, engine.MaxNarrow, c.id),
		Sources:     list(&c, "sources", req.GetSources(), 0, engine.MaxNarrow, c.id),
		Queues:      list(&c, "queues", req.GetQueues(), 0, engine.MaxNarrow, c.queue),
		MaxTasks:    int(c.number("max_tasks", int64(req.GetMaxTasks()), 0, engine.MaxFetchTasks)),
		MaxBytes:    int(c.number("max_bytes", int64(req.GetMaxBytes()), 0, engine.MaxFetchBytes)),
		Wait:        c.duration("wait", req.GetWait(), 0, bounds.MaxWait),
		Lease:       c.duration("lease_duration", req.GetLeaseDuration(), bounds.MinLeaseDuration, bounds.MaxLeaseDuration),
		Labels:      c.labels("labels", req.GetLabels(), bounds.MaxLabels),
	}
	if req.GetWait() == nil {
		fetch.Wait = engine.DefaultWait
	}
	reports := c.reports(req.GetReports(), 0)
	fetch.Reports = reports.List
	return fetch, reports, c.err()
}

// FetchTaskResponse converts what a fetch was given, with the results of the reports that it carried.
func FetchTaskResponse(r *engine.FetchResult, results []*pb.ReportResult) *pb.FetchTaskResponse {
	out := &pb.FetchTaskResponse{
		LeasedTasks: make([]*pb.LeasedTask, len(r.Tasks)), Waited: durationpb.New(r.Waited),
		EmptyReason: pb.EmptyReason(r.Empty), RetryAfter: toDuration(r.RetryAfter), ReportResults: results,
	}
	for i := range r.Tasks {
		out.LeasedTasks[i] = toLeasedTask(&r.Tasks[i])
	}
	return out
}

func toLeasedTask(g *dispatch.Grant) *pb.LeasedTask {
	task := toTask(&g.Task)
	task.State = pb.TaskState_TASK_STATE_LEASED
	task.Cursor, task.Memo, task.Payload = g.Task.Cursor, g.Task.Memo, g.Task.Payload
	return &pb.LeasedTask{Task: task, Lease: &pb.Lease{
		TaskId: string(g.Task.ID), LeaseToken: g.Token.String(), Fence: int64(g.Token.Fence), Duration: durationpb.New(g.Remaining),
	}}
}

// toTask converts a task without its holder, cursor, memo, payload and history.
func toTask(t *dispatch.Task) *pb.Task {
	out := &pb.Task{
		Id: string(t.ID), SourceId: t.SourceID, SourceUid: t.SourceUID, Scope: t.Scope, Queue: t.Queue, Pool: t.Pool,
		Url: t.URL, Key: t.Key, Kind: t.Kind, Relation: pb.Relation(t.Relation),
		Redirects: int32(t.Redirect.Hops), RedirectedFrom: t.Redirect.From, Depth: int32(t.Depth), Priority: int32(t.Priority),
		State: pb.TaskState(t.State), Recurring: t.Recurring, CancelRequested: t.CancelRequested != dispatch.CancelNone,
		Cycle: int64(t.Counters.Cycle), Attempt: int32(t.Counters.Attempt), Failures: int32(t.Counters.Failures),
		Expirations: int32(t.Counters.Expirations), Throttled: int32(t.Counters.Throttled), Releases: int32(t.Counters.Released),
		DueTime: toTime(t.Due), Metadata: t.Metadata, LastError: toTaskError(t.LastError),
		CreateTime: toTime(t.Created), SettleTime: toTime(t.SettledAt), Traceparent: t.Traceparent,
	}
	if !t.Run.IsZero() {
		out.Run = t.Run.UnixMilli()
	}
	return out
}

func toTaskError(f *dispatch.Failure) *pb.TaskError {
	if f == nil {
		return nil
	}
	return &pb.TaskError{
		Result: attemptResults[f.Result], Reason: toFailureReason(f), Message: f.Message, HttpStatus: int32(f.HTTPStatus),
		Time: toTime(f.Time), Permanent: f.Permanent,
	}
}

// toFailureReason is set where the attempt ended with a report; a report without a reason counts as OTHER.
func toFailureReason(f *dispatch.Failure) pb.FailureReason {
	if f.Result == dispatch.ResultFailed && f.Reason == 0 {
		return pb.FailureReason_FAILURE_REASON_OTHER
	}
	return pb.FailureReason(f.Reason)
}
