package server

import (
	"context"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// CancelTasks takes tasks out.
func (s *taskService) CancelTasks(ctx context.Context, req *pb.CancelTasksRequest) (*pb.CancelTasksResponse, error) {
	results, err := changeTasks(ctx, req, s.d.CancelTasks)
	if err != nil {
		return nil, err
	}
	return &pb.CancelTasksResponse{Results: results}, nil
}

// RetryTasks brings settled tasks back.
func (s *taskService) RetryTasks(ctx context.Context, req *pb.RetryTasksRequest) (*pb.RetryTasksResponse, error) {
	results, err := changeTasks(ctx, req, s.d.RetryTasks)
	if err != nil {
		return nil, err
	}
	return &pb.RetryTasksResponse{Results: results}, nil
}

// RevokeLeases takes leased tasks from their holders.
func (s *taskService) RevokeLeases(ctx context.Context, req *pb.RevokeLeasesRequest) (*pb.RevokeLeasesResponse, error) {
	if err := validateFences(req); err != nil {
		return nil, err
	}
	why := byOrPeer(ctx, req.GetBy())
	if req.GetReason() != "" {
		why += ": " + req.GetReason()
	}
	var fences []uint64
	if n := len(req.GetFences()); n > 0 {
		fences = make([]uint64, n)
		for i, fence := range req.GetFences() {
			fences[i] = uint64(fence)
		}
	}
	results, err := changeTasks(ctx, req, func(ctx context.Context, ids []dispatch.TaskID) ([]dispatch.TaskChange, error) {
		return s.d.RevokeLeases(ctx, ids, fences, why)
	})
	if err != nil {
		return nil, err
	}
	return &pb.RevokeLeasesResponse{Results: results}, nil
}

// changeTasks checks a request, changes the tasks it names, and notes for the
// log who did it and what came of it.
func changeTasks(ctx context.Context, req changeRequest,
	change func(context.Context, []dispatch.TaskID) ([]dispatch.TaskChange, error),
) ([]*pb.TaskChange, error) {
	if err := validateChange(req); err != nil {
		return nil, err
	}
	ids := make([]dispatch.TaskID, len(req.GetTaskIds()))
	for i, id := range req.GetTaskIds() {
		ids[i] = dispatch.TaskID(id)
	}
	changes, err := change(ctx, ids)
	if err != nil {
		return nil, err
	}
	out := make([]*pb.TaskChange, len(changes))
	var did bulkResult
	for i := range changes {
		out[i] = toTaskChange(ids[i], &changes[i])
		switch changes[i].Code {
		case dispatch.ChangeCanceled, dispatch.ChangeCancelRequested, dispatch.ChangeRetried, dispatch.ChangeRevoked:
			did.matched, did.changed = did.matched+1, did.changed+1
		case dispatch.ChangeNotFound:
		default:
			did.matched++
		}
	}
	logChanged(ctx, did)
	return out, nil
}

func toTaskChange(id dispatch.TaskID, change *dispatch.TaskChange) *pb.TaskChange {
	out := &pb.TaskChange{TaskId: string(id), Code: toChangeCode(change.Code), State: toState(change.State)}
	switch change.Code {
	case dispatch.ChangeLimited:
		out.Message = limitedMessage
	case dispatch.ChangeRefused:
		out.Message, out.ErrorReason = whyRefused(change.Err)
	default:
	}
	return out
}

func toChangeCode(code dispatch.ChangeCode) pb.TaskChangeCode {
	switch code {
	case dispatch.ChangeNotFound:
		return pb.TaskChangeCode_TASK_CHANGE_CODE_NOT_FOUND
	case dispatch.ChangeCanceled:
		return pb.TaskChangeCode_TASK_CHANGE_CODE_CANCELED
	case dispatch.ChangeCancelRequested:
		return pb.TaskChangeCode_TASK_CHANGE_CODE_CANCEL_REQUESTED
	case dispatch.ChangeAlreadyRequested:
		return pb.TaskChangeCode_TASK_CHANGE_CODE_ALREADY_REQUESTED
	case dispatch.ChangeAlreadySettled:
		return pb.TaskChangeCode_TASK_CHANGE_CODE_ALREADY_SETTLED
	case dispatch.ChangeRetried:
		return pb.TaskChangeCode_TASK_CHANGE_CODE_RETRIED
	case dispatch.ChangeNotSettled:
		return pb.TaskChangeCode_TASK_CHANGE_CODE_NOT_SETTLED
	case dispatch.ChangeLimited:
		return pb.TaskChangeCode_TASK_CHANGE_CODE_LIMITED
	case dispatch.ChangeRefused:
		return pb.TaskChangeCode_TASK_CHANGE_CODE_REFUSED
	case dispatch.ChangeRevoked:
		return pb.TaskChangeCode_TASK_CHANGE_CODE_REVOKED
	case dispatch.ChangeNotLeased:
		return pb.TaskChangeCode_TASK_CHANGE_CODE_NOT_LEASED
	case dispatch.ChangeOtherLease:
		return pb.TaskChangeCode_TASK_CHANGE_CODE_OTHER_LEASE
	}
	return pb.TaskChangeCode_TASK_CHANGE_CODE_UNSPECIFIED
}
