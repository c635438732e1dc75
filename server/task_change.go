package server

import (
	"context"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// taskChange is what a bulk call does to tasks.
type taskChange struct {
	method string
	// states in which tasks are changed, those that a filter without any stands for,
	// unless it has to name some.
	states         []dispatch.State
	statesRequired bool
	// standing: what is changed may come to match the filter again, and is not changed
	// twice.
	standing bool
	act      func(context.Context, operate.TaskEdit) ([]operate.TaskChange, error)
	fences   []uint64 // of the leases that are named
	note     dispatch.Note
}

// leased reports whether it is leases that the call ends.
func (c *taskChange) leased() bool { return len(c.states) == 1 && c.states[0] == dispatch.StateLeased }

// CancelTasks takes tasks out.
func (s *taskService) CancelTasks(ctx context.Context, req *pb.CancelTasksRequest) (*pb.CancelTasksResponse, error) {
	r, err := s.change(ctx, req, &taskChange{
		method: "CancelTasks", states: []dispatch.State{dispatch.StateScheduled, dispatch.StateReady, dispatch.StateLeased},
		act: s.o.CancelTasks, note: dispatch.Note{By: byOrPeer(ctx, req.GetBy()), Reason: req.GetReason()},
	})
	if err != nil {
		return nil, err
	}
	return &pb.CancelTasksResponse{Results: r.results, Matched: r.matched, Changed: r.changed, NextPageToken: r.next}, nil
}

// RetryTasks brings settled tasks back.
func (s *taskService) RetryTasks(ctx context.Context, req *pb.RetryTasksRequest) (*pb.RetryTasksResponse, error) {
	r, err := s.change(ctx, req, &taskChange{
		method: "RetryTasks", states: []dispatch.State{dispatch.StateDead, dispatch.StateCanceled}, statesRequired: true, standing: true,
		act: s.o.RetryTasks,
	})
	if err != nil {
		return nil, err
	}
	return &pb.RetryTasksResponse{Results: r.results, Matched: r.matched, Changed: r.changed, NextPageToken: r.next}, nil
}

// RevokeLeases takes leased tasks from their holders.
func (s *taskService) RevokeLeases(ctx context.Context, req *pb.RevokeLeasesRequest) (*pb.RevokeLeasesResponse, error) {
	if err := validateFences(req); err != nil {
		return nil, err
	}
	r, err := s.change(ctx, req, &taskChange{
		method: "RevokeLeases", states: []dispatch.State{dispatch.StateLeased}, standing: true,
		act: s.o.RevokeLeases, note: dispatch.Note{By: byOrPeer(ctx, req.GetBy()), Reason: req.GetReason()},
		fences: each(req.GetFences(), func(fence int64) uint64 { return uint64(fence) }),
	})
	if err != nil {
		return nil, err
	}
	return &pb.RevokeLeasesResponse{Results: r.results, Matched: r.matched, Changed: r.changed, NextPageToken: r.next}, nil
}

// changeResult is what bulk calls on tasks answer.
type changeResult struct {
	bulkResult
	results []*pb.TaskChange
}

// change checks a request, changes the tasks it names, or those of one page that match
// its filter, and notes for the log what came of it. Acting twice does no harm, so a
// call that failed on its way is repeated whole.
func (s *taskService) change(ctx context.Context, req changeRequest, change *taskChange) (r changeResult, err error) {
	if err := validateChange(req, change); err != nil {
		return r, err
	}
	of := operate.TaskEdit{Fences: change.fences, IDs: each(req.GetTaskIds(), func(id string) dispatch.TaskID { return dispatch.TaskID(id) })}
	if len(of.IDs) == 0 {
		if of, r.next, err = s.matching(ctx, req, change); err != nil {
			return r, about(err, "source_id", req.GetFilter().GetSourceId())
		}
	}
	of.Note, of.DryRun = change.note, req.GetValidateOnly()
	changes, err := change.act(ctx, of)
	if err != nil {
		return r, err
	}
	r.results = make([]*pb.TaskChange, len(changes))
	for i := range changes {
		r.results[i] = toTaskChange(of.IDs[i], &changes[i])
		r.count(changes[i].Code)
	}
	if req.GetFilter() != nil { // forgotten since the look
		r.results = slices.DeleteFunc(r.results, func(t *pb.TaskChange) bool {
			return t.GetCode() == pb.TaskChangeCode_TASK_CHANGE_CODE_NOT_FOUND
		})
	}
	logChanged(ctx, r.bulkResult)
	return r, nil
}

// matching are the tasks of a page that match the filter, which are in one of its states,
// or under the lease of fences: so what changes after the look stays as it is.
func (s *taskService) matching(ctx context.Context, req changeRequest, change *taskChange) (of operate.TaskEdit, next string, err error) {
	tokens, err := pagesOf(change.method, req.GetFilter())
	if err != nil {
		return of, "", err
	}
	cursor, err := tokens.cursor(req.GetPageToken())
	if err != nil {
		return of, "", err
	}
	q := fromTaskFilter(req.GetFilter(), change.states)
	q.Standing = change.standing
	found, next, err := s.o.MatchTasks(ctx, q, cursor, maxBatch)
	if err != nil {
		return of, "", err
	}
	of.States = q.States
	for _, t := range found {
		of.IDs, of.Fences = append(of.IDs, t.ID), append(of.Fences, t.Fence)
	}
	return of, tokens.token(next), nil
}

// fromTaskFilter converts a filter that validate has found to be one of tasks; without
// states it stands for tasks in any of states.
func fromTaskFilter(f *pb.Filter, states []dispatch.State) *operate.TaskQuery {
	if len(f.GetStates()) > 0 {
		states = fromStates(f.GetStates())
	}
	q := &operate.TaskQuery{
		SourceID: f.GetSourceId(),
		Sources:  operate.SourceQuery{Prefix: f.GetSourceIdPrefix(), Pool: f.GetPool(), Labels: f.GetLabels()},
		Queue:    f.GetQueue(), QueueSuffix: f.GetQueueSuffix(), Collector: f.GetCollectorId(), States: states,
		CreatedFrom: fromTime(f.GetCreateTimeFrom()), CreatedBefore: fromTime(f.GetCreateTimeBefore()),
	}
	for _, reason := range f.GetFailureReasons() {
		q.Reasons = append(q.Reasons, dispatch.FailureReason(reason))
		if reason == pb.FailureReason_FAILURE_REASON_OTHER { // as toReason tells it
			q.Reasons = append(q.Reasons, 0)
		}
	}
	return q
}

// count adds what became of one task.
func (r *bulkResult) count(code operate.ChangeCode) {
	switch code {
	case operate.ChangeNotFound:
		return
	case operate.ChangeCanceled, operate.ChangeCancelRequested, operate.ChangeRetried, operate.ChangeRevoked:
		r.changed++
	default:
	}
	r.matched++
}

func toTaskChange(id dispatch.TaskID, change *operate.TaskChange) *pb.TaskChange {
	out := &pb.TaskChange{TaskId: string(id), Code: toChangeCode(change.Code), State: toState(change.State)}
	switch change.Code {
	case operate.ChangeLimited:
		out.Message = limitedMessage
	case operate.ChangeRefused:
		out.Message, out.ErrorReason = whyRefused(change.Err)
	default:
	}
	return out
}

func toChangeCode(code operate.ChangeCode) pb.TaskChangeCode {
	switch code {
	case operate.ChangeNotFound:
		return pb.TaskChangeCode_TASK_CHANGE_CODE_NOT_FOUND
	case operate.ChangeCanceled:
		return pb.TaskChangeCode_TASK_CHANGE_CODE_CANCELED
	case operate.ChangeCancelRequested:
		return pb.TaskChangeCode_TASK_CHANGE_CODE_CANCEL_REQUESTED
	case operate.ChangeAlreadyRequested:
		return pb.TaskChangeCode_TASK_CHANGE_CODE_ALREADY_REQUESTED
	case operate.ChangeAlreadySettled:
		return pb.TaskChangeCode_TASK_CHANGE_CODE_ALREADY_SETTLED
	case operate.ChangeRetried:
		return pb.TaskChangeCode_TASK_CHANGE_CODE_RETRIED
	case operate.ChangeNotSettled:
		return pb.TaskChangeCode_TASK_CHANGE_CODE_NOT_SETTLED
	case operate.ChangeLimited:
		return pb.TaskChangeCode_TASK_CHANGE_CODE_LIMITED
	case operate.ChangeRefused:
		return pb.TaskChangeCode_TASK_CHANGE_CODE_REFUSED
	case operate.ChangeRevoked:
		return pb.TaskChangeCode_TASK_CHANGE_CODE_REVOKED
	case operate.ChangeNotLeased:
		return pb.TaskChangeCode_TASK_CHANGE_CODE_NOT_LEASED
	case operate.ChangeOtherLease:
		return pb.TaskChangeCode_TASK_CHANGE_CODE_OTHER_LEASE
	case operate.ChangeOtherState:
		return pb.TaskChangeCode_TASK_CHANGE_CODE_OTHER_STATE
	}
	return pb.TaskChangeCode_TASK_CHANGE_CODE_UNSPECIFIED
}
