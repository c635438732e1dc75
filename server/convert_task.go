package server

import (
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func toState(s dispatch.State) pb.TaskState {
	switch s {
	case dispatch.StateScheduled:
		return pb.TaskState_TASK_STATE_SCHEDULED
	case dispatch.StateReady:
		return pb.TaskState_TASK_STATE_READY
	case dispatch.StateLeased:
		return pb.TaskState_TASK_STATE_LEASED
	case dispatch.StateDone:
		return pb.TaskState_TASK_STATE_DONE
	case dispatch.StateDead:
		return pb.TaskState_TASK_STATE_DEAD
	case dispatch.StateCanceled:
		return pb.TaskState_TASK_STATE_CANCELED
	case dispatch.StateUnknown:
	}
	return pb.TaskState_TASK_STATE_UNSPECIFIED
}

// fromStates converts states that validate has found to be listed ones; none
// stands for all of them.
func fromStates(states []pb.TaskState) []dispatch.State {
	var out []dispatch.State
	for _, listed := range []dispatch.State{
		dispatch.StateScheduled, dispatch.StateReady, dispatch.StateLeased, dispatch.StateDead, dispatch.StateCanceled,
	} {
		if len(states) == 0 || slices.Contains(states, toState(listed)) {
			out = append(out, listed)
		}
	}
	return out
}

func toResult(r dispatch.Result) pb.AttemptResult {
	switch r {
	case dispatch.ResultSucceeded:
		return pb.AttemptResult_ATTEMPT_RESULT_SUCCEEDED
	case dispatch.ResultFailed:
		return pb.AttemptResult_ATTEMPT_RESULT_FAILED
	case dispatch.ResultReleased, dispatch.ResultGivenBack:
		return pb.AttemptResult_ATTEMPT_RESULT_RELEASED
	case dispatch.ResultRevoked:
		return pb.AttemptResult_ATTEMPT_RESULT_REVOKED
	case dispatch.ResultCanceled:
		return pb.AttemptResult_ATTEMPT_RESULT_CANCELED
	case dispatch.ResultNone:
		return pb.AttemptResult_ATTEMPT_RESULT_UNSPECIFIED
	default:
		// Ran out, held too long, its collector replaced: all count as expired.
		return pb.AttemptResult_ATTEMPT_RESULT_EXPIRED
	}
}

// taskMessage is a Task with the messages in it that nearly every task has, so
// that their memory is got at once.
type taskMessage struct {
	task         pb.Task
	due, created timestamppb.Timestamp
}

// toTask converts a task without its holder, payload and history.
func toTask(t *dispatch.Task) *pb.Task { return new(taskMessage).fill(t) }

func (m *taskMessage) fill(t *dispatch.Task) *pb.Task {
	m.task = pb.Task{
		Id: string(t.ID), SourceId: t.SourceID, SourceUid: t.SourceUID, Scope: t.Scope, Queue: t.Queue, Pool: t.Pool,
		Url: t.URL, Key: t.Key, Kind: t.Kind, Relation: pb.Relation(t.Relation), Depth: int32(t.Depth), Priority: int32(t.Priority),
		State: toState(t.State), Recurring: t.Recurring, CancelRequested: t.CancelRequested != dispatch.CancelNone,
		Cycle: int64(t.Counters.Cycle), Attempt: int32(t.Counters.Attempt), Failures: int32(t.Counters.Failures),
		Expirations: int32(t.Counters.Expirations), Throttled: int32(t.Counters.Throttled),
		DueTime: fillTime(&m.due, t.Due), Metadata: t.Metadata, LastError: toTaskError(t.LastError),
		CreateTime: fillTime(&m.created, t.Created), SettleTime: toTime(t.SettledAt),
	}
	if !t.Run.IsZero() {
		m.task.Run = t.Run.UnixMilli()
	}
	return &m.task
}

// toFullTask converts a task with all that GetTask shows.
func toFullTask(t *dispatch.Task, now time.Time) *pb.Task {
	out := toTask(t)
	out.Holder = toHolder(t.Lease, now)
	out.Cursor, out.Memo, out.Payload = t.Cursor, t.Memo, t.Payload
	if c := operate.Cancellation(t); c != nil {
		out.Cancellation = &pb.Cancellation{
			By: c.By, Reason: c.Reason, Time: toTime(c.Time), SourceDeleted: c.Kind == dispatch.GateSourceDeleted,
		}
	}
	for i := range t.History {
		out.History = append(out.History, toAttempt(&t.History[i]))
	}
	return out
}

func toTaskError(f *dispatch.Failure) *pb.TaskError {
	if f == nil {
		return nil
	}
	return &pb.TaskError{
		Result: toResult(f.Result), Reason: toReason(f), Message: f.Message, HttpStatus: int32(f.HTTPStatus),
		Time: toTime(f.Time), Permanent: f.Permanent,
	}
}

// toReason is set where the attempt ended with a report; a report without a
// reason counts as OTHER.
func toReason(f *dispatch.Failure) pb.FailureReason {
	if f.Result == dispatch.ResultFailed && f.Reason == 0 {
		return pb.FailureReason_FAILURE_REASON_OTHER
	}
	return pb.FailureReason(f.Reason)
}

func toAttempt(a *dispatch.Attempt) *pb.Attempt {
	out := &pb.Attempt{
		CollectorId: a.Collector, Cycle: int64(a.Cycle), Fence: int64(a.Fence),
		StartTime: toTime(a.Started), EndTime: toTime(a.Ended), Result: toResult(a.Result),
	}
	if f := a.Failure; f != nil {
		out.Reason, out.Message, out.HttpStatus = toReason(f), f.Message, int32(f.HTTPStatus)
	}
	if a.By != "" {
		out.Message = a.By
	}
	if a.Reason != "" {
		out.Message += ": " + a.Reason
	}
	return out
}

// toHolder says who holds a lease, without the token that proves it.
func toHolder(l *dispatch.Lease, now time.Time) *pb.LeaseHolder {
	if l == nil {
		return nil
	}
	return &pb.LeaseHolder{
		CollectorId: l.Token.Collector, Fence: int64(l.Digest.Fence),
		Age: durationpb.New(now.Sub(l.Granted)), Remaining: durationpb.New(l.Deadline.Sub(now)),
	}
}

func toHeldLease(t *dispatch.Task, now time.Time) *pb.HeldLease {
	return &pb.HeldLease{
		TaskId: string(t.ID), SourceId: t.SourceID, Queue: t.Queue, Url: t.URL, Holder: toHolder(t.Lease, now),
	}
}

func fromSubmitItem(item *pb.SubmitItem) engine.NewTask {
	return engine.NewTask{
		SourceID: item.GetSourceId(), URL: item.GetUrl(), Key: item.GetKey(), Queue: item.GetQueue(), Kind: item.GetKind(),
		Priority: int(or(item.Priority, dispatch.DefaultPriority)), Due: fromTime(item.GetDueTime()),
		Metadata: item.GetMetadata(), Payload: item.GetPayload(), IfExists: fromIfExists(item.GetIfExists()),
	}
}

func fromIfExists(i pb.IfExists) dispatch.IfExists {
	switch i {
	case pb.IfExists_IF_EXISTS_SOONER:
		return dispatch.IfExistsSooner
	case pb.IfExists_IF_EXISTS_AGAIN:
		return dispatch.IfExistsAgain
	default:
		return dispatch.IfExistsKeep
	}
}

// limitedMessage says why a task is LIMITED.
const limitedMessage = "the source has max_outstanding tasks that wait or are leased in the shard"

// answerSubmit fills in what became of an item.
func answerSubmit(out *pb.SubmitResult, r *engine.NewTaskResult) {
	if r.Err != nil {
		refuseSubmit(out, r.Err)
		return
	}
	if r.Code == dispatch.SubmitLimited {
		out.Code = pb.SubmitCode_SUBMIT_CODE_LIMITED
		out.Message = limitedMessage
		return
	}
	out.TaskId, out.State = string(r.ID), toState(r.State)
	switch r.Code {
	case dispatch.SubmitCreated:
		out.Code = pb.SubmitCode_SUBMIT_CODE_CREATED
	case dispatch.SubmitRevisit:
		out.Code = pb.SubmitCode_SUBMIT_CODE_REVISIT
	default:
		out.Code = pb.SubmitCode_SUBMIT_CODE_EXISTS
	}
}

// refuseSubmit answers an item that cannot be a task, err says why.
func refuseSubmit(out *pb.SubmitResult, err error) {
	out.Code = pb.SubmitCode_SUBMIT_CODE_INVALID
	out.Message, out.ErrorReason = whyRefused(err)
}

// whyRefused says for people and for programs why an item was refused.
func whyRefused(err error) (string, pb.ErrorReason) {
	if kind := kindOf(err); kind != nil {
		return err.Error(), kind.reason
	}
	return err.Error(), pb.ErrorReason_ERROR_REASON_INVALID_FIELD
}

// toListedTask converts a task with what lists show of it.
func toListedTask(t *dispatch.Task, now time.Time) *pb.Task {
	out := toTask(t)
	out.Holder = toHolder(t.Lease, now)
	return out
}
