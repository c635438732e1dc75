package wire

import (
	"slices"
	"strings"

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
		Kind: gateKind(gate.Kind), Until: toTime(gate.Until), By: gate.By,
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

func gateKind(kind dispatch.GateKind) pb.GateKind {
	return pb.GateKind(pb.GateKind_value["GATE_KIND_"+string(kind)])
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
	switch set := slices.Collect(fieldsSet(req.ProtoReflect())); {
	case len(set) == 0:
		c.fail("task_id", "", "must be set, or source_id, queue or pool")
	case len(set) > 1:
		c.fail(set[len(set)-1], "set", "must be set alone: exactly one of task_id, source_id, queue and pool")
	case req.GetTaskId() != "":
		c.taskID("task_id", req.GetTaskId())
	}
	optional(c.id, "source_id", req.GetSourceId())
	optional(c.queue, "queue", req.GetQueue())
	optional(c.id, "pool", req.GetPool())
	return c.err()
}

// ExplainResponse converts an explanation.
func ExplainResponse(e *operate.Explanation) *pb.ExplainResponse {
	out := &pb.ExplainResponse{
		MapsTo: e.MapsTo, Unknown: e.Unknown, Notes: e.Notes, Partly: e.Partly && len(e.Holds) == 0, LastError: toTaskError(e.LastError),
		Gates: each(e.Holds, func(h operate.Held) *pb.ExplainedGate {
			return &pb.ExplainedGate{Gate: Gate(&h.Gate), Of: pb.HeldKind(h.Of), Name: h.Name, OpenedBy: e.OpenedBy(&h)}
		}),
	}
	if v := e.Silent; v != nil {
		out.Health = strings.TrimPrefix(pb.SourceHealth(v.Health).String(), "SOURCE_HEALTH_") + ": " + v.Silence(e.Now)
		if v.Health == operate.HealthPagesFail {
			out.Health += ReasonsText(v.Reasons())
		}
	}
	if at, ok := e.OpensAt(); ok {
		out.OpensIn = durationpb.New(at.Sub(e.Now))
	}
	return out
}
