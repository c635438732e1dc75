package server

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func fromFetch(req *pb.FetchTaskRequest) dispatch.FetchRequest {
	out := dispatch.FetchRequest{
		Collector: req.GetCollectorId(), Session: req.GetSession(), ClientToken: req.GetClientToken(),
		Pools: req.GetPools(), Sources: req.GetSources(), Queues: req.GetQueues(),
		MaxTasks: int(req.GetMaxTasks()), MaxBytes: int(req.GetMaxBytes()),
		Wait: durationOr(req.GetWait(), dispatch.DefaultWait), Lease: req.GetLeaseDuration().AsDuration(),
	}
	if out.MaxTasks == 0 {
		out.MaxTasks = 1
	}
	if out.MaxBytes == 0 {
		out.MaxBytes = dispatch.MaxFetchBytes
	}
	return out
}

// toFetch converts what a fetch was given, and the answers to what it reported.
func toFetch(r *dispatch.FetchResult, results []*pb.ReportResult) *pb.FetchTaskResponse {
	out := &pb.FetchTaskResponse{
		Waited: durationpb.New(r.Waited), EmptyReason: toEmptyReason(r.Empty),
		RetryAfter: toDuration(r.RetryAfter), ReportResults: results,
	}
	leased := make([]leasedMessage, len(r.Tasks))
	out.LeasedTasks = make([]*pb.LeasedTask, len(r.Tasks))
	for i := range r.Tasks {
		out.LeasedTasks[i] = leased[i].fill(&r.Tasks[i])
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
	m.remaining.Seconds, m.remaining.Nanos = int64(g.Remaining/time.Second), int32(g.Remaining%time.Second)
	m.lease.TaskId, m.lease.LeaseToken, m.lease.Fence = string(g.Task.ID), g.Token.String(), int64(g.Token.Fence)
	m.lease.Duration = &m.remaining
	return &m.leased
}

func toEmptyReason(r dispatch.EmptyReason) pb.EmptyReason {
	switch r {
	case dispatch.EmptyNoTasks:
		return pb.EmptyReason_EMPTY_REASON_NO_TASKS
	case dispatch.EmptyThrottled:
		return pb.EmptyReason_EMPTY_REASON_THROTTLED
	case dispatch.EmptyPaused:
		return pb.EmptyReason_EMPTY_REASON_PAUSED
	case dispatch.EmptyDraining:
		return pb.EmptyReason_EMPTY_REASON_DRAINING
	case dispatch.EmptyTokenUsed:
		return pb.EmptyReason_EMPTY_REASON_TOKEN_USED
	case dispatch.EmptyNone:
	}
	return pb.EmptyReason_EMPTY_REASON_UNSPECIFIED
}
