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
	// would answers what act would.
	would, act func(context.Context, *changed) ([]operate.TaskChange, error)
}

// changed is what a bulk call is about: tasks by their ids. Those that a filter found
// are in one of states, or under the lease of fences; so what has changed since the
// look stays as it is.
type changed struct {
	ids    []dispatch.TaskID
	fences []uint64
	states []dispatch.State
}

// leased reports whether it is leases that the call ends.
func (c *taskChange) leased() bool { return len(c.states) == 1 && c.states[0] == dispatch.StateLeased }

// inStates makes of a change of tasks in some states one of what a call is about.
func inStates(change func(context.Context, []dispatch.TaskID, ...dispatch.State) ([]operate.TaskChange, error),
) func(context.Context, *changed) ([]operate.TaskChange, error) {
	return func(ctx context.Context, of *changed) ([]operate.TaskChange, error) {
		return change(ctx, of.ids, of.states...)
	}
}

// CancelTasks takes tasks out.
func (s *taskService) CancelTasks(ctx context.Context, req *pb.CancelTasksRequest) (*pb.CancelTasksResponse, error) {
	note := dispatch.Note{By: byOrPeer(ctx, req.GetBy()), Reason: req.GetReason()}
	r, err := s.change(ctx, req, nil, &taskChange{
		method: "CancelTasks", states: []dispatch.State{dispatch.StateScheduled, dispatch.StateReady, dispatch.StateLeased},
		would: inStates(s.o.WouldCancelTasks),
		act: func(ctx context.Context, of *changed) ([]operate.TaskChange, error) {
			return s.o.CancelTasks(ctx, of.ids, note, of.states...)
		},
	})
	if err != nil {
		return nil, err
	}
	return &pb.CancelTasksResponse{Results: r.results, Matched: r.matched, Changed: r.changed, NextPageToken: r.next}, nil
}

// RetryTasks brings settled tasks back.
func (s *taskService) RetryTasks(ctx context.Context, req *pb.RetryTasksRequest) (*pb.RetryTasksResponse, error) {
	r, err := s.change(ctx, req, nil, &taskChange{
		method: "RetryTasks", states: []dispatch.State{dispatch.StateDead, dispatch.StateCanceled}, statesRequired: true, standing: true,
		would: inStates(s.o.WouldRetryTasks), act: inStates(s.o.RetryTasks),
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
	note := dispatch.Note{By: byOrPeer(ctx, req.GetBy()), Reason: req.GetReason()}
	r, err := s.change(ctx, req, each(req.GetFences(), func(fence int64) uint64 { return uint64(fence) }), &taskChange{
		method: "RevokeLeases", states: []dispatch.State{dispatch.StateLeased}, standing: true,
		would: func(ctx context.Context, of *changed) ([]operate.TaskChange, error) {
			return s.o.WouldRevokeLeases(ctx, of.ids, of.fences)
		},
		act: func(ctx context.Context, of *changed) ([]operate.TaskChange, error) {
			return s.o.RevokeLeases(ctx, of.ids, of.fences, note)
		},
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
func (s *taskService) change(ctx context.Context, req changeRequest, fences []uint64, change *taskChange) (r changeResult, err error) {
	if err := validateChange(req, change); err != nil {
		return r, err
	}
	of := &changed{fences: fences, ids: each(req.GetTaskIds(), func(id string) dispatch.TaskID { return dispatch.TaskID(id) })}
	if len(of.ids) == 0 {
		if of, r.next, err = s.matching(ctx, req, change); err != nil {
			return r, about(err, "source_id", req.GetFilter().GetSourceId())
		}
	}
	do := change.act
	if req.GetValidateOnly() {
		do = change.would
	}
	changes, err := do(ctx, of)
	if err != nil {
		return r, err
	}
	r.results = make([]*pb.TaskChange, len(changes))
	for i := range changes {
		r.results[i] = toTaskChange(of.ids[i], &changes[i])
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

// matching are the tasks of a page that match the filter.
func (s *taskService) matching(ctx context.Context, req changeRequest, change *taskChange) (of *changed, next string, err error) {
	tokens, err := pagesOf(change.method, req.GetFilter())
	if err != nil {
		return nil, "", err
	}
	cursor, err := tokens.cursor(req.GetPageToken())
	if err != nil {
		return nil, "", err
	}
	q := fromTaskFilter(req.GetFilter(), change.states)
	q.Standing = change.standing
	found, next, err := s.o.MatchTasks(ctx, q, cursor, maxBatch)
	if err != nil {
		return nil, "", err
	}
	of = &changed{states: q.States}
	for _, t := range found {
		of.ids, of.fences = append(of.ids, t.ID), append(of.fences, t.Fence)
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
