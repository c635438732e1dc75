package server

import (
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func fromFetch(req *pb.FetchTaskRequest) engine.FetchRequest {
	return engine.FetchRequest{
		Collector: req.GetCollectorId(), Session: req.GetSession(), ClientToken: req.GetClientToken(),
		Pools: req.GetPools(), Sources: req.GetSources(), Queues: req.GetQueues(),
		MaxTasks: int(req.GetMaxTasks()), MaxBytes: int(req.GetMaxBytes()),
		Wait: durationOr(req.GetWait(), engine.DefaultWait), Lease: req.GetLeaseDuration().AsDuration(),
	}
}

// fetchMessage is a FetchTaskResponse with what nearly every one has: so the memory is
// got at once.
type fetchMessage struct {
	response pb.FetchTaskResponse
	waited   durationpb.Duration
	one      [1]*pb.LeasedTask
}

// toFetch converts what a fetch was given, and the answers to what it reported.
func toFetch(r *engine.FetchResult, results []*pb.ReportResult) *pb.FetchTaskResponse {
	m := new(fetchMessage)
	out := &m.response
	out.Waited, out.EmptyReason = fillDuration(&m.waited, r.Waited), toEmptyReason(r.Empty)
	out.RetryAfter, out.ReportResults = toDuration(r.RetryAfter), results
	leased := make([]leasedMessage, len(r.Tasks))
	out.LeasedTasks = slices.Grow(m.one[:0], len(leased))
	for i := range leased {
		out.LeasedTasks = append(out.LeasedTasks, leased[i].fill(&r.Tasks[i]))
	}
	return out
}

// leasedMessage is a LeasedTask with the messages in it.
type leasedMessage struct {
	leased    pb.LeasedTask
	task      taskMessage
	lease     pb.Lease
	remaining durationpb.Duration
}

func (m *leasedMessage) fill(g *dispatch.Grant) *pb.LeasedTask {
	m.leased.Task, m.leased.Lease = m.task.fill(&g.Task), &m.lease
	m.leased.Task.State = pb.TaskState_TASK_STATE_LEASED
	m.leased.Task.Cursor, m.leased.Task.Memo, m.leased.Task.Payload = g.Task.Cursor, g.Task.Memo, g.Task.Payload
	m.lease.TaskId, m.lease.LeaseToken, m.lease.Fence = string(g.Task.ID), g.Token.String(), int64(g.Token.Fence)
	m.lease.Duration = fillDuration(&m.remaining, g.Remaining)
	return &m.leased
}

func toEmptyReason(r engine.EmptyReason) pb.EmptyReason {
	switch r {
	case engine.EmptyNoTasks:
		return pb.EmptyReason_EMPTY_REASON_NO_TASKS
	case engine.EmptyThrottled:
		return pb.EmptyReason_EMPTY_REASON_THROTTLED
	case engine.EmptyPaused:
		return pb.EmptyReason_EMPTY_REASON_PAUSED
	case engine.EmptyDraining:
		return pb.EmptyReason_EMPTY_REASON_DRAINING
	case engine.EmptyTokenUsed:
		return pb.EmptyReason_EMPTY_REASON_TOKEN_USED
	case engine.EmptyNone:
	}
	return pb.EmptyReason_EMPTY_REASON_UNSPECIFIED
}
