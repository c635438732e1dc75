package wire

import (
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// CollectorFilter is which collectors a list shows.
type CollectorFilter struct {
	states []pb.CollectorState
	labels map[string]string
}

// ListCollectors reads the filter of a ListCollectorsRequest.
func ListCollectors(req *pb.ListCollectorsRequest) (CollectorFilter, error) {
	var c checks
	f := CollectorFilter{
		states: list(&c, "states", req.GetStates(), 0, 4, func(field string, state pb.CollectorState) pb.CollectorState {
			return named(&c, field, state, "must name a state")
		}),
		labels: c.labels("labels", req.GetLabels(), bounds.MaxLabels),
	}
	return f, c.err()
}

// Hides reports whether the list leaves a collector out.
func (f *CollectorFilter) Hides(v *operate.CollectorView, now time.Time) bool {
	if len(f.states) > 0 && !slices.Contains(f.states, toCollectorState(v, now)) {
		return true
	}
	for key, want := range f.labels {
		if value, ok := v.Info.Labels[key]; !ok || value != want {
			return true
		}
	}
	return false
}

// Collector converts a collector.
func Collector(v *operate.CollectorView, now time.Time) *pb.Collector {
	c := &v.Info
	return &pb.Collector{
		Info: &pb.CollectorInfo{
			Id: c.ID, Session: c.Session, Version: c.Version, Hostname: c.Hostname,
			Labels: c.Labels, Pools: c.Pools, Slots: int32(c.Slots), Draining: c.Draining,
			Sources: c.Sources, Queues: c.Queues, Ended: c.Ended,
		},
		State: toCollectorState(v, now), Leases: int32(min(v.Held, math.MaxInt32)),
		HeartbeatAge: durationpb.New(max(0, now.Sub(v.Seen))), StartTime: toTime(v.First), Drained: Gate(v.Drained),
	}
}

func toCollectorState(v *operate.CollectorView, now time.Time) pb.CollectorState {
	switch {
	case v.Info.Ended:
		return pb.CollectorState_COLLECTOR_STATE_ENDED
	case v.Gone(now):
		return pb.CollectorState_COLLECTOR_STATE_GONE
	case v.Info.Draining || v.Drained != nil:
		return pb.CollectorState_COLLECTOR_STATE_DRAINING
	default:
		return pb.CollectorState_COLLECTOR_STATE_ACTIVE
	}
}

// drainRequest is what each call has that names a drain.
type drainRequest interface {
	GetCollectorId() string
	GetLabels() map[string]string
}

func (c *checks) drain(req drainRequest) dispatch.HoldTarget {
	id, labels := req.GetCollectorId(), req.GetLabels()
	switch {
	case id == "" && len(labels) == 0:
		c.fail("collector_id", "", "must be set, or labels")
	case id != "" && len(labels) > 0:
		c.fail("collector_id", id, "must be empty when labels are set: a drain goes by one or the other")
	case id != "":
		c.id("collector_id", id)
	default:
		c.labels("labels", labels, bounds.MaxHoldLabels)
	}
	return dispatch.HoldTarget{Collector: id, Labels: labels}
}

// DrainCollectors reads a DrainCollectorsRequest.
func DrainCollectors(req *pb.DrainCollectorsRequest, now time.Time) (dispatch.HoldTarget, dispatch.Gate, error) {
	var c checks
	target, gate := c.drain(req), c.hold(req, now)
	return target, gate, c.err()
}

// ResumeCollectors reads a ResumeCollectorsRequest.
func ResumeCollectors(req *pb.ResumeCollectorsRequest) (dispatch.HoldTarget, error) {
	var c checks
	drain := c.drain(req)
	c.note(req)
	return drain, c.err()
}

// Drain converts a drain.
func Drain(d dispatch.Hold) *pb.Drain {
	return &pb.Drain{CollectorId: d.Target.Collector, Labels: d.Target.Labels, Gate: Gate(&d.Gate)}
}
