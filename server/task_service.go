package server

import (
	"context"
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// taskService is what producers call, and operators who look at tasks.
type taskService struct {
	pb.UnsafeTaskServiceServer

	*backend
}

// SubmitTasks takes in the items that can be tasks, and answers the others in
// their places.
func (s *taskService) SubmitTasks(ctx context.Context, req *pb.SubmitTasksRequest) (*pb.SubmitTasksResponse, error) {
	if err := validateSubmitTasks(req); err != nil {
		return nil, err
	}
	items := req.GetItems()
	results, tasks := messages[pb.SubmitResult](len(items)), make([]engine.NewTask, 0, len(items))
	now := time.Now()
	for i, item := range items {
		if err := validateSubmit(item, now); err != nil {
			refuseSubmit(results[i], err)
			continue
		}
		tasks = append(tasks, fromSubmitItem(item))
	}
	taken, err := s.d.SubmitTasks(ctx, tasks)
	if err != nil {
		return nil, err
	}
	for _, result := range results {
		if result.Code == pb.SubmitCode_SUBMIT_CODE_UNSPECIFIED { // not answered yet
			answerSubmit(result, &taken[0])
			taken = taken[1:]
		}
	}
	return &pb.SubmitTasksResponse{Results: results}, nil
}

// GetTask shows a task, found by its id or by what makes its identity.
func (s *taskService) GetTask(ctx context.Context, req *pb.GetTaskRequest) (*pb.GetTaskResponse, error) {
	if err := validateGetTask(req); err != nil {
		return nil, err
	}
	id, what := dispatch.TaskID(req.GetTaskId()), []string{"task_id", req.GetTaskId()}
	if id == "" {
		what = []string{"source_id", req.GetSourceId(), "url", req.GetUrl(), "key", req.GetKey()}
		var err error
		if id, err = s.o.FindTaskID(ctx, req.GetSourceId(), req.GetUrl(), req.GetKey(), req.GetQueue()); err != nil {
			return nil, about(err, what[:2]...)
		}
	}
	task, err := s.o.Task(ctx, id)
	if err != nil {
		return nil, about(err, what...)
	}
	now, err := s.o.Now(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.GetTaskResponse{Task: toFullTask(task, now)}, nil
}

// ListTasks lists tasks of a source or a queue.
func (s *taskService) ListTasks(ctx context.Context, req *pb.ListTasksRequest) (*pb.ListTasksResponse, error) {
	if err := validateListTasks(req); err != nil {
		return nil, err
	}
	tokens, err := pagesOf("ListTasks", req)
	if err != nil {
		return nil, err
	}
	cursor, err := tokens.cursor(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	now, err := s.o.Now(ctx)
	if err != nil {
		return nil, err
	}
	tasks, next, err := fitting(pageSize(req.GetPageSize()), func(limit int) ([]*pb.Task, string, error) {
		found, next, err := s.o.ListTasks(ctx, req.GetSourceId(), req.GetQueue(), fromStates(req.GetStates()), cursor, limit)
		if err != nil {
			return nil, "", fmt.Errorf("list: %w", err)
		}
		return each(found, func(t *dispatch.Task) *pb.Task { return toListedTask(t, now) }), next, nil
	})
	if err != nil {
		return nil, about(err, "source_id", req.GetSourceId())
	}
	return &pb.ListTasksResponse{Tasks: tasks, NextPageToken: tokens.token(next)}, nil
}
