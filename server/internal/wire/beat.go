package wire

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	maxHostname = 253
	maxSlots    = 100_000
	maxProblem  = 300

	maxProblemDuration = 366 * 24 * time.Hour
)

// Beat is one exchange of Heartbeat or RenewLease, to be answered by its Status.
type Beat struct {
	Collector dispatch.CollectorInfo
	Leases    []engine.LeaseBeat
	malformed []*pb.LostLease // whose task ids are none: they are lost without a look
}

// beatRequest is what Heartbeat and RenewLease have in common.
type beatRequest interface {
	GetCollector() *pb.CollectorInfo
	GetLeases() []*pb.LeaseBeat
}

// ReadBeat reads a HeartbeatRequest or a RenewLeaseRequest. A task id or lease token that is none is a lease that is
// lost, and a lost lease fails no beat.
func ReadBeat(req beatRequest) (*Beat, error) {
	var c checks
	info := req.GetCollector()
	b := &Beat{Collector: dispatch.CollectorInfo{
		ID:       c.id("collector.id", info.GetId()),
		Session:  c.token("collector.session", info.GetSession()),
		Version:  c.text("collector.version", info.GetVersion(), bounds.MaxIDLength),
		Hostname: c.text("collector.hostname", info.GetHostname(), maxHostname),
		Labels:   c.labels("collector.labels", info.GetLabels(), bounds.MaxLabels),
		Pools:    list(&c, "collector.pools", info.GetPools(), 0, engine.MaxNarrow, c.id),
		Sources:  list(&c, "collector.sources", info.GetSources(), 0, engine.MaxNarrow, c.id),
		Queues:   list(&c, "collector.queues", info.GetQueues(), 0, engine.MaxNarrow, c.queue),
		Slots:    int(c.number("collector.slots", int64(info.GetSlots()), 0, maxSlots)),
		Stopping: info.GetStopping(), Ended: info.GetEnded(),
		StuckSlots:      int(c.number("collector.stuck_slots", int64(info.GetStuckSlots()), 0, maxSlots)),
		Problem:         c.text("collector.problem", info.GetProblem(), maxProblem),
		ProblemDuration: c.duration("collector.problem_duration", info.GetProblemDuration(), 0, maxProblemDuration),
	}}
	if info.GetEnded() && len(req.GetLeases()) > 0 {
		c.fail("collector.ended", true, "must be false in a beat that names leases")
	}
	list(&c, "leases", req.GetLeases(), 0, MaxBatch, func(_ string, lease *pb.LeaseBeat) *pb.LeaseBeat {
		b.addLease(&c, lease)
		return lease
	})
	return b, c.err()
}

func (b *Beat) addLease(c *checks, lease *pb.LeaseBeat) {
	cursor := c.bytes("cursor", lease.Cursor, bounds.MaxCursorLength)
	if p := lease.GetProgress(); !(p >= 0 && p <= 1) {
		c.fail("progress", p, "must be 0 to 1")
	}
	id, err := dispatch.ParseTaskID(lease.GetTaskId())
	if err != nil {
		b.malformed = append(b.malformed, &pb.LostLease{
			TaskId: lease.GetTaskId(), LeaseToken: lease.GetLeaseToken(), Reason: pb.LostReason_LOST_REASON_MALFORMED,
		})
		return
	}
	b.Leases = append(b.Leases, engine.LeaseBeat{ID: id, Token: lease.GetLeaseToken(), Cursor: cursor})
}

// IsOf checks that a beat is of the collector and session with which its stream began.
func (b *Beat) IsOf(collector, session string) error {
	var c checks
	if b.Collector.ID != collector {
		c.fail("collector.id", b.Collector.ID, "must be %q, with which the stream began", collector)
	}
	if b.Collector.Session != session {
		c.fail("collector.session", b.Collector.Session, "must be %q, with which the stream began", session)
	}
	return c.err()
}

// Status is how the leases stand, as the answer to the beat.
func (b *Beat) Status(r *engine.BeatResult) *pb.LeaseStatus {
	return &pb.LeaseStatus{
		LeaseDuration: toDuration(r.LeaseDuration), Lost: append(b.malformed, toLost(r.Lost)...), Cancel: toCancels(r.Cancel),
		Limited: toLimited(r.Limited), Held: r.Held, NextHeartbeat: durationpb.New(r.Next),
	}
}

// Push is what is pushed on a heartbeat stream: unlike the answer to a beat it wants no next one.
func Push(p engine.Push) *pb.HeartbeatResponse {
	return &pb.HeartbeatResponse{Status: &pb.LeaseStatus{Cancel: toCancels(p.Cancel), Held: p.Held}}
}

func toLost(leases []engine.LostLease) []*pb.LostLease {
	return each(leases, func(lost engine.LostLease) *pb.LostLease {
		return &pb.LostLease{TaskId: string(lost.ID), LeaseToken: lost.Token, Reason: lostReasons[lost.Reason]}
	})
}

func toCancels(notices []engine.CancelNotice) []*pb.CancelNotice {
	return each(notices, func(notice engine.CancelNotice) *pb.CancelNotice {
		return &pb.CancelNotice{TaskId: string(notice.ID), Reason: pb.CancelReason(notice.Reason)}
	})
}

func toLimited(leases []engine.LimitedLease) []*pb.LimitedLease {
	return each(leases, func(lease engine.LimitedLease) *pb.LimitedLease {
		return &pb.LimitedLease{TaskId: string(lease.ID), Duration: durationpb.New(lease.Remaining)}
	})
}
