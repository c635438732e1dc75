package server

import (
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func fromCollector(c *pb.CollectorInfo) dispatch.CollectorInfo {
	return dispatch.CollectorInfo{
		ID: c.GetId(), Session: c.GetSession(), Version: c.GetVersion(), Hostname: c.GetHostname(),
		Labels: c.GetLabels(), Pools: c.GetPools(), Slots: int(c.GetSlots()), Draining: c.GetDraining(),
		Sources: c.GetSources(), Queues: c.GetQueues(), Ended: c.GetEnded(),
	}
}

func toCollector(r *operate.CollectorView, now time.Time) *pb.Collector {
	c := &r.Info
	return &pb.Collector{
		Info: &pb.CollectorInfo{
			Id: c.ID, Session: c.Session, Version: c.Version, Hostname: c.Hostname,
			Labels: c.Labels, Pools: c.Pools, Slots: int32(c.Slots), Draining: c.Draining,
			Sources: c.Sources, Queues: c.Queues, Ended: c.Ended,
		},
		State: toCollectorState(r, now), Leases: int32(min(r.Held, math.MaxInt32)),
		HeartbeatAge: durationpb.New(max(0, now.Sub(r.Seen))), StartTime: toTime(r.First), Drained: toGate(r.Drained),
	}
}

func toCollectorState(r *operate.CollectorView, now time.Time) pb.CollectorState {
	switch {
	case r.Info.Ended:
		return pb.CollectorState_COLLECTOR_STATE_ENDED
	case r.Gone(now):
		return pb.CollectorState_COLLECTOR_STATE_GONE
	case r.Info.Draining || r.Drained != nil:
		return pb.CollectorState_COLLECTOR_STATE_DRAINING
	default:
		return pb.CollectorState_COLLECTOR_STATE_ACTIVE
	}
}

// fromBeats converts the leases of a beat. Those whose task id is none are lost
// before anything else is asked, and come back apart.
func fromBeats(leases []*pb.LeaseBeat) (beats []engine.LeaseBeat, malformed []*pb.LostLease) {
	for _, lease := range leases {
		id, err := dispatch.ParseTaskID(lease.GetTaskId())
		if err != nil {
			malformed = append(malformed, &pb.LostLease{
				TaskId: lease.GetTaskId(), LeaseToken: lease.GetLeaseToken(), Reason: pb.LostReason_LOST_REASON_MALFORMED,
			})
			continue
		}
		beats = append(beats, engine.LeaseBeat{ID: id, Token: lease.GetLeaseToken(), Cursor: lease.Cursor})
	}
	return beats, malformed
}

func toBeat(r *engine.BeatResult, malformed []*pb.LostLease) *pb.RenewLeaseResponse {
	out := &pb.RenewLeaseResponse{
		LeaseDuration: toDuration(r.LeaseDuration), Lost: malformed, Drain: r.Drain, NextHeartbeat: toDuration(r.Next),
	}
	for _, lost := range r.Lost {
		out.Lost = append(out.Lost, &pb.LostLease{TaskId: string(lost.ID), LeaseToken: lost.Token, Reason: toLost(lost.Reason)})
	}
	for _, notice := range r.Cancel {
		out.Cancel = append(out.Cancel, &pb.CancelNotice{TaskId: string(notice.ID), Reason: toCancel(notice.Reason)})
	}
	for _, lease := range r.Limited {
		out.Limited = append(out.Limited, &pb.LimitedLease{TaskId: string(lease.ID), Duration: durationpb.New(lease.Remaining)})
	}
	return out
}

// toStreamBeat is the same answer as a message of the stream.
func toStreamBeat(r *pb.RenewLeaseResponse) *pb.HeartbeatResponse {
	return &pb.HeartbeatResponse{
		LeaseDuration: r.GetLeaseDuration(), Lost: r.GetLost(), Cancel: r.GetCancel(), Limited: r.GetLimited(),
		Drain: r.GetDrain(), NextHeartbeat: r.GetNextHeartbeat(),
	}
}

func toLost(reason dispatch.LostReason) pb.LostReason {
	switch reason {
	case dispatch.LostUnknownTask:
		return pb.LostReason_LOST_REASON_NOT_FOUND
	case dispatch.LostNotLeased:
		return pb.LostReason_LOST_REASON_NOT_LEASED
	case dispatch.LostTaken:
		return pb.LostReason_LOST_REASON_TAKEN
	case dispatch.LostMaxHold:
		return pb.LostReason_LOST_REASON_MAX_HOLD
	case dispatch.LostLockDeleted:
		return pb.LostReason_LOST_REASON_LOCK_DELETED
	case dispatch.LostReplaced:
		return pb.LostReason_LOST_REASON_COLLECTOR_REPLACED
	case dispatch.LostReported:
		return pb.LostReason_LOST_REASON_SETTLED
	case dispatch.LostExpired:
		return pb.LostReason_LOST_REASON_EXPIRED
	case dispatch.LostRevoked:
		return pb.LostReason_LOST_REASON_REVOKED
	case dispatch.LostMalformed:
		return pb.LostReason_LOST_REASON_MALFORMED
	case dispatch.LostNone:
	}
	return pb.LostReason_LOST_REASON_UNSPECIFIED
}

func toCancel(reason dispatch.CancelReason) pb.CancelReason {
	switch reason {
	case dispatch.CancelTask:
		return pb.CancelReason_CANCEL_REASON_TASK_CANCELED
	case dispatch.CancelSourceDeleted:
		return pb.CancelReason_CANCEL_REASON_SOURCE_DELETED
	case dispatch.CancelNone:
	}
	return pb.CancelReason_CANCEL_REASON_UNSPECIFIED
}
