package server

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Explain tells what holds a task, source, queue or pool.
func (s *adminService) Explain(ctx context.Context, req *pb.ExplainRequest) (*pb.ExplainResponse, error) {
	if err := validateExplain(req); err != nil {
		return nil, err
	}
	explanation, err := s.explain(ctx, req)
	if err != nil {
		return nil, err
	}
	out := &pb.ExplainResponse{
		Holds: toHolds(explanation), MapsTo: explanation.MapsTo, Unknown: explanation.Unknown, Notes: explanation.Notes,
		Partly: explanation.Partly && len(explanation.Holds) == 0,
	}
	if at, ok := explanation.OpensAt(); ok {
		out.OpensIn = durationpb.New(at.Sub(explanation.Now))
	}
	return out, nil
}

func (s *adminService) explain(ctx context.Context, req *pb.ExplainRequest) (*operate.Explanation, error) {
	switch {
	case req.GetTaskId() != "":
		explanation, err := s.o.ExplainTask(ctx, dispatch.TaskID(req.GetTaskId()))
		return explanation, about(err, "task_id", req.GetTaskId())
	case req.GetSourceId() != "":
		explanation, err := s.o.ExplainSource(ctx, req.GetSourceId())
		return explanation, about(err, "source_id", req.GetSourceId())
	case req.GetQueue() != "":
		explanation, err := s.o.ExplainQueue(ctx, req.GetQueue())
		return explanation, about(err, "queue", req.GetQueue())
	default:
		return s.o.ExplainPool(ctx, req.GetPool())
	}
}

func toHolds(e *operate.Explanation) []*pb.Hold {
	return each(e.Holds, func(h operate.Held) *pb.Hold {
		return &pb.Hold{Gate: toGate(&h.Gate), Of: pb.HeldKind(h.Of), Name: h.Name, OpenedBy: e.OpenedBy(&h)}
	})
}
