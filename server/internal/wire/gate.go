package wire

import (
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Gate converts a gate; nil stays nil. A kind that the API does not know is unspecified, which clients take as a gate
// all the same.
func Gate(gate *dispatch.Gate) *pb.Gate {
	if gate == nil {
		return nil
	}
	out := &pb.Gate{
		Kind: pb.GateKind(pb.GateKind_value["GATE_KIND_"+string(gate.Kind)]), Until: toTime(gate.Until), By: gate.By,
		Reason: gate.Reason, Time: toTime(gate.Time),
	}
	if c := gate.Cause; c != nil {
		out.Cause, out.CauseTaskId = toTaskError(&c.Failure), string(c.Task)
	}
	if h := gate.Hold; h != nil {
		out.Hold = toHold(h)
	}
	return out
}

func toGates(gates []dispatch.Gate) []*pb.Gate {
	return each(gates, func(gate dispatch.Gate) *pb.Gate { return Gate(&gate) })
}

// Pool converts a pool.
func Pool(p operate.PoolView) *pb.Pool {
	return &pb.Pool{Name: p.Name, ReadyQueues: p.Open, WaitingQueues: p.Waiting, Holds: each(p.Holds, toHold)}
}

// Explain checks that an ExplainRequest names one thing.
func Explain(req *pb.ExplainRequest) error {
	var c checks
	var named [][2]string
	for _, one := range [][2]string{
		{"task_id", req.GetTaskId()}, {"source_id", req.GetSourceId()}, {"queue", req.GetQueue()}, {"pool", req.GetPool()},
	} {
		if one[1] != "" {
			named = append(named, one)
		}
	}
	switch {
	case len(named) == 0:
		c.fail("task_id", "", "must be set, or source_id, queue or pool")
	case len(named) > 1:
		last := named[len(named)-1]
		c.fail(last[0], last[1], "must be set alone: of task_id, source_id, queue and pool exactly one")
	case req.GetTaskId() != "":
		c.taskID("task_id", req.GetTaskId())
	case req.GetQueue() != "":
		c.queue("queue", req.GetQueue())
	default:
		c.id(named[0][0], named[0][1])
	}
	return c.err()
}

// ExplainResponse tells what holds something.
func ExplainResponse(e *operate.Explanation) *pb.ExplainResponse {
	out := &pb.ExplainResponse{
		MapsTo: e.MapsTo, Unknown: e.Unknown, Notes: e.Notes, Partly: e.Partly && len(e.Holds) == 0,
		Gates: each(e.Holds, func(h operate.Held) *pb.ExplainedGate {
			return &pb.ExplainedGate{Gate: Gate(&h.Gate), Of: pb.HeldKind(h.Of), Name: h.Name, OpenedBy: e.OpenedBy(&h)}
		}),
	}
	if at, ok := e.OpensAt(); ok {
		out.OpensIn = durationpb.New(at.Sub(e.Now))
	}
	return out
}
