package server

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// taskService is what producers call, and operators who look at tasks.
type taskService struct {
	pb.UnsafeTaskServiceServer

	*backend
}

// SubmitTasks takes in the items that can be tasks, and answers the others in their places.
func (s *taskService) SubmitTasks(ctx context.Context, req *pb.SubmitTasksRequest) (*pb.SubmitTasksResponse, error) {
	submission, err := wire.SubmitTasks(req, time.Now(), traceOf(ctx))
	if err != nil {
		return nil, err
	}
	taken, err := s.d().SubmitTasks(ctx, submission.Tasks)
	if err != nil {
		return nil, err
	}
	return submission.Response(taken), nil
}

// GetTask shows a task, found by its id or by what makes its identity.
func (s *taskService) GetTask(ctx context.Context, req *pb.GetTaskRequest) (*pb.GetTaskResponse, error) {
	if err := wire.GetTask(req); err != nil {
		return nil, err
	}
	id, what := dispatch.TaskID(req.GetTaskId()), []string{"task_id", req.GetTaskId()}
	if id == "" {
		what = []string{"source_id", req.GetSourceId(), "url", req.GetUrl(), "key", req.GetKey()}
		var err error
		if id, err = s.o().FindTaskID(ctx, req.GetSourceId(), req.GetUrl(), req.GetKey(), req.GetQueue()); err != nil {
			return nil, wire.About(err, what[:2]...)
		}
	}
	task, err := s.o().Task(ctx, id)
	if err != nil {
		return nil, wire.About(err, what...)
	}
	now, err := s.o().Now(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.GetTaskResponse{Task: wire.Task(task, now)}, nil
}

// ListTasks lists tasks of a source or a queue.
func (s *taskService) ListTasks(ctx context.Context, req *pb.ListTasksRequest) (*pb.ListTasksResponse, error) {
	states, err := wire.ListTasks(req)
	if err != nil {
		return nil, err
	}
	now, err := s.o().Now(ctx)
	if err != nil {
		return nil, err
	}
	tasks, next, err := wire.List(req, func(after string, limit int) ([]*dispatch.Task, string, error) {
		return s.o().ListTasks(ctx, req.GetFilter().GetSourceId(), req.GetFilter().GetQueue(), states, after, limit)
	}, func(t *dispatch.Task) *pb.Task { return wire.ListedTask(t, now) })
	if err != nil {
		return nil, wire.About(err, "source_id", req.GetFilter().GetSourceId())
	}
	return &pb.ListTasksResponse{Tasks: tasks, NextPageToken: next}, nil
}

// CancelTasks takes tasks out.
func (s *taskService) CancelTasks(ctx context.Context, req *pb.CancelTasksRequest) (*pb.CancelTasksResponse, error) {
	of, err := wire.TaskChange(req, []dispatch.State{dispatch.StateScheduled, dispatch.StateReady, dispatch.StateLeased}, false)
	if err != nil {
		return nil, err
	}
	r, err := s.change(ctx, of, false, s.o().CancelTasks)
	if err != nil {
		return nil, err
	}
	return &pb.CancelTasksResponse{Results: r.results, Matched: r.matched, Changed: r.changed, NextPageToken: r.next}, nil
}

// RetryTasks brings settled tasks back.
func (s *taskService) RetryTasks(ctx context.Context, req *pb.RetryTasksRequest) (*pb.RetryTasksResponse, error) {
	of, err := wire.TaskChange(req, []dispatch.State{dispatch.StateDead, dispatch.StateCanceled}, true)
	if err != nil {
		return nil, err
	}
	r, err := s.change(ctx, of, true, s.o().RetryTasks)
	if err != nil {
		return nil, err
	}
	return &pb.RetryTasksResponse{Results: r.results, Matched: r.matched, Changed: r.changed, NextPageToken: r.next}, nil
}

// RevokeLeases takes leased tasks from their holders.
func (s *taskService) RevokeLeases(ctx context.Context, req *pb.RevokeLeasesRequest) (*pb.RevokeLeasesResponse, error) {
	of, err := wire.TaskChange(req, []dispatch.State{dispatch.StateLeased}, false)
	if err != nil {
		return nil, err
	}
	r, err := s.change(ctx, of, true, s.o().RevokeLeases)
	if err != nil {
		return nil, err
	}
	return &pb.RevokeLeasesResponse{Results: r.results, Matched: r.matched, Changed: r.changed, NextPageToken: r.next}, nil
}

// taskChanges is what bulk calls on tasks answer.
type taskChanges struct {
	results          []*pb.TaskChange
	matched, changed int32
	next             string
}

// change changes the tasks of a selection: named ones, or those of one page that match its filter. Of those that a filter
// found it leaves alone what has changed since: what is in another state, or under another lease. Acting twice does no
// harm, so a call that failed on its way is repeated whole. standing: what is changed may come to match the filter again,
// and is not changed twice.
func (s *taskService) change(ctx context.Context, of *wire.TaskSelection, standing bool,
	act func(context.Context, operate.TaskEdit) ([]operate.TaskChange, error),
) (r taskChanges, err error) {
	of.Note.By = who(ctx, of.Note.By)
	edit := operate.TaskEdit{Note: of.Note, DryRun: of.ValidateOnly}
	if of.Query != nil {
		of.Query.Standing, edit.States = standing, of.Query.States
		found, next, err := s.o().MatchTasks(ctx, of.Query, of.After, wire.MaxBatch)
		if err != nil {
			return r, wire.About(err, "source_id", of.Query.SourceID)
		}
		for _, t := range found {
			of.IDs, of.Fences = append(of.IDs, t.ID), append(of.Fences, t.Fence)
		}
		r.next = of.NextPageToken(next)
	}
	edit.IDs, edit.Fences = of.IDs, of.Fences
	changes, err := act(ctx, edit)
	if err != nil {
		return r, err
	}
	for i := range changes {
		r.add(wire.TaskChanged(of.IDs[i], &changes[i]))
	}
	if of.Query != nil { // forgotten since the look
		r.results = slices.DeleteFunc(r.results, func(t *pb.TaskChange) bool {
			return t.GetCode() == pb.TaskChangeCode_TASK_CHANGE_CODE_NOT_FOUND
		})
	}
	addFields(ctx, zap.Int32("matched", r.matched), zap.Int32("changed", r.changed))
	return r, nil
}

// add adds what became of one task.
func (r *taskChanges) add(t *pb.TaskChange) {
	r.results = append(r.results, t)
	switch t.GetCode() {
	case pb.TaskChangeCode_TASK_CHANGE_CODE_NOT_FOUND:
		return
	case pb.TaskChangeCode_TASK_CHANGE_CODE_CANCELED, pb.TaskChangeCode_TASK_CHANGE_CODE_CANCEL_REQUESTED,
		pb.TaskChangeCode_TASK_CHANGE_CODE_RETRIED, pb.TaskChangeCode_TASK_CHANGE_CODE_REVOKED:
		r.changed++
	default:
	}
	r.matched++
}
