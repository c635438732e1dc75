package server

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// toTime leaves a zero time out.
func toTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// fillTime is toTime into memory that is there.
func fillTime(out *timestamppb.Timestamp, t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	out.Seconds, out.Nanos = t.Unix(), int32(t.Nanosecond())
	return out
}

// fromTime gives instants as stores have them, in whole milliseconds; zero when
// absent.
func fromTime(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime().Truncate(time.Millisecond)
}

// toDuration leaves a zero duration out.
func toDuration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// fillDuration is durationpb.New into memory that is there.
func fillDuration(out *durationpb.Duration, d time.Duration) *durationpb.Duration {
	out.Seconds, out.Nanos = int64(d/time.Second), int32(d%time.Second)
	return out
}

// or is *value, or what it is when absent.
func or[T any](value *T, absent T) T {
	if value == nil {
		return absent
	}
	return *value
}

func durationOr(d *durationpb.Duration, absent time.Duration) time.Duration {
	if d == nil {
		return absent
	}
	return d.AsDuration()
}

// toGateKind names a gate as the API does. One that the API does not know
// is unspecified, which clients take as a gate all the same.
func toGateKind(kind dispatch.GateKind) pb.GateKind {
	return pb.GateKind(pb.GateKind_value["GATE_KIND_"+string(kind)])
}

func toGate(gate *dispatch.Gate) *pb.Gate {
	if gate == nil {
		return nil
	}
	out := &pb.Gate{
		Kind: toGateKind(gate.Kind), Until: toTime(gate.Until), By: gate.By, Reason: gate.Reason, Time: toTime(gate.Time),
		Rule: gate.Rule,
	}
	if c := gate.Cause; c != nil {
		out.Cause, out.CauseTaskId = toTaskError(&c.Failure), string(c.Task)
	}
	if h := gate.Hold; h != nil {
		out.DrainedCollectorId, out.DrainedLabels = h.Target.Collector, h.Target.Labels
	}
	return out
}

func toGates(gates []dispatch.Gate) []*pb.Gate {
	out := make([]*pb.Gate, len(gates))
	for i := range gates {
		out[i] = toGate(&gates[i])
	}
	return out
}

func toCounts(c dispatch.StateCounts) *pb.TaskCounts {
	return &pb.TaskCounts{
		Scheduled: c.Scheduled, Ready: c.Ready, Leased: c.Leased, Done: c.Done, Dead: c.Dead, Canceled: c.Canceled,
	}
}

// each converts the elements of a list.
func each[From, To any](in []From, convert func(From) To) []To {
	out := make([]To, len(in))
	for i := range in {
		out[i] = convert(in[i])
	}
	return out
}

// messages are n messages as the field of a message wants them, with the memory of all
// got at once. One, which is what a small call has, is got with the pointer to it.
func messages[T any](n int) []*T {
	if n == 1 {
		one := new(struct {
			message T
			list    [1]*T
		})
		one.list[0] = &one.message
		return one.list[:]
	}
	all, list := make([]T, n), make([]*T, n)
	for i := range all {
		list[i] = &all[i]
	}
	return list
}
