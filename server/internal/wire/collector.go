package wire

import (
	"cmp"
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
	states   []pb.CollectorState
	id, pool string
	labels   map[string]string
}

// ListCollectors reads the filter of a ListCollectorsRequest.
func ListCollectors(req *pb.ListCollectorsRequest) (CollectorFilter, error) {
	var c checks
	c.conditions(req)
	f := CollectorFilter{
		states: list(&c, "states", req.GetStates(), 0, 6, func(field string, state pb.CollectorState) pb.CollectorState {
			return named(&c, field, state, "must name a state")
		}),
		id:     optional(c.id, "filter.collector_id", req.GetFilter().GetCollectorId()),
		pool:   optional(c.id, "filter.pool", req.GetFilter().GetPool()),
		labels: c.labels("filter.labels", req.GetFilter().GetLabels(), bounds.MaxLabels),
	}
	return f, c.err()
}

// Hides reports whether the list leaves a collector out.
func (f *CollectorFilter) Hides(v *operate.CollectorView, now time.Time) bool {
	if len(f.states) > 0 && !slices.Contains(f.states, toCollectorState(v, now)) {
		return true
	}
	if f.id != "" && v.Info.ID != f.id || f.pool != "" && !takesPool(&v.Info, f.pool) {
		return true
	}
	for key, want := range f.labels {
		if value, ok := v.Info.Labels[key]; !ok || value != want {
			return true
		}
	}
	return false
}

// takesPool reports whether a collector takes tasks of a pool; one that names no pools takes those of the default one.
func takesPool(info *dispatch.CollectorInfo, pool string) bool {
	return slices.Contains(info.Pools, pool) || len(info.Pools) == 0 && pool == dispatch.DefaultPool
}

// Collector converts a collector.
func Collector(v *operate.CollectorView, now time.Time) *pb.Collector {
	c := &v.Info
	return &pb.Collector{
		Info: &pb.CollectorInfo{
			Id: c.ID, Session: c.Session, Version: c.Version, Hostname: c.Hostname,
			Labels: c.Labels, Pools: c.Pools, Slots: int32(c.Slots), Stopping: c.Stopping,
			Sources: c.Sources, Queues: c.Queues, Ended: c.Ended, StuckSlots: int32(c.StuckSlots),
			Problem: c.Problem, ProblemDuration: toDuration(c.ProblemDuration),
		},
		State: toCollectorState(v, now), Leases: int32(min(v.Held, math.MaxInt32)),
		HeartbeatAge: durationpb.New(max(0, now.Sub(v.Seen))), StartTime: toTime(v.First), Holds: each(v.Holds, toHold),
		Outcomes: toOutcomes(v.Outcomes), Client: c.Client,
	}
}

func toOutcomes(o *dispatch.Outcomes) *pb.Outcomes {
	if o == nil {
		return nil
	}
	out := &pb.Outcomes{
		Answered: int64(o.Answered), Released: int64(o.Released), Unable: o.Unable(), SinceTime: toTime(o.Since), LastError: toTaskError(o.LastError),
	}
	for reason, n := range o.Failed {
		out.Failed = append(out.Failed, &pb.FailureCount{Reason: pb.FailureReason(reason), Count: int64(n)})
	}
	slices.SortFunc(out.Failed, func(a, b *pb.FailureCount) int {
		return cmp.Or(cmp.Compare(b.GetCount(), a.GetCount()), cmp.Compare(a.GetReason(), b.GetReason()))
	})
	return out
}

func toCollectorState(v *operate.CollectorView, now time.Time) pb.CollectorState {
	switch {
	case v.Info.Ended:
		return pb.CollectorState_COLLECTOR_STATE_ENDED
	case v.Gone(now):
		return pb.CollectorState_COLLECTOR_STATE_GONE
	case v.Info.Stopping:
		return pb.CollectorState_COLLECTOR_STATE_STOPPING
	case len(v.Holds) > 0:
		return pb.CollectorState_COLLECTOR_STATE_HELD
	case v.Info.Stuck():
		return pb.CollectorState_COLLECTOR_STATE_STUCK
	default:
		return pb.CollectorState_COLLECTOR_STATE_ACTIVE
	}
}
