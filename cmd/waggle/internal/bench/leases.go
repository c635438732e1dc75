package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// held is a collector with its leases.
type held struct {
	id    string
	beats []*pb.LeaseBeat
	// ends is, for each of the leases, the earliest moment at which it runs out.
	ends []time.Time
}

// holdLimit is how long collectors try to get the leases that they are to hold.
const holdLimit = time.Minute

// hold fetches the tasks of the job with its collectors, each call with the
// lease that it is told.
func (g *load) hold(ctx context.Context, j *job, lease func() time.Duration) ([]*held, error) {
	holders := make([]*held, j.Collectors)
	var mu sync.Mutex // guards left
	left := j.Tasks
	var all errgroup.Group
	all.SetLimit(16)
	share := (j.Tasks + j.Collectors - 1) / j.Collectors
	for c := range holders {
		h := &held{id: fmt.Sprintf("bench-%s-h%d", j.Series, c)}
		holders[c] = h
		all.Go(func() error {
			for began := time.Now(); len(h.beats) < share && time.Since(began) < holdLimit; {
				request := g.fetchRequest(j, h.id)
				duration := lease()
				request.MaxTasks, request.LeaseDuration = int32(min(1000, share-len(h.beats))), durationpb.New(duration)
				sent := time.Now()
				reply, err := g.dispatch(c).FetchTask(ctx, request)
				if err != nil {
					return fmt.Errorf("fetch: %w", err)
				}
				for _, lt := range reply.GetLeasedTasks() {
					h.beats = append(h.beats, &pb.LeaseBeat{TaskId: lt.GetLease().GetTaskId(), LeaseToken: lt.GetLease().GetLeaseToken()})
					h.ends = append(h.ends, sent.Add(reply.GetWaited().AsDuration()+duration))
				}
				mu.Lock()
				left -= len(reply.GetLeasedTasks())
				none := left <= 0
				mu.Unlock()
				if none {
					return nil
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	if left > 0 {
		return nil, fmt.Errorf("%d of %d leases were given", j.Tasks-left, j.Tasks)
	}
	return holders, nil
}

// lasting gives every lease the same duration.
func lasting(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// beat times heartbeats on one stream that names the leases of the job.
func (g *load) beat(ctx context.Context, j *job) (*outcome, error) {
	holders, err := g.hold(ctx, j, lasting(time.Minute))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var t tally
	began := time.Now()
	var all errgroup.Group
	for c, h := range holders {
		all.Go(func() error {
			stream, err := g.dispatch(c).Heartbeat(ctx)
			if err != nil {
				return fmt.Errorf("heartbeat: %w", err)
			}
			for time.Since(began) < j.Limit {
				sent := time.Now()
				if err := beatOnce(stream, &pb.HeartbeatRequest{Collector: g.info(h), Leases: h.beats}); err != nil {
					return err
				}
				t.sample("heartbeat", time.Since(sent))
				t.add(1)
			}
			return nil
		})
	}
	err = all.Wait()
	return t.outcome(began), err
}

func (g *load) info(h *held) *pb.CollectorInfo {
	return &pb.CollectorInfo{Id: h.id, Session: g.session, Version: "bench", Slots: int32(max(1, len(h.beats)))}
}

// beatOnce sends a beat and waits for its answer; messages that answer no beat
// are passed over.
func beatOnce(stream grpc.BidiStreamingClient[pb.HeartbeatRequest, pb.HeartbeatResponse], beat *pb.HeartbeatRequest) error {
	if err := stream.Send(beat); err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	for {
		reply, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("heartbeat: %w", err)
		}
		if len(reply.GetLost()) > 0 {
			return fmt.Errorf("heartbeat: %d leases were lost: %s", len(reply.GetLost()), reply.GetLost()[0].GetReason())
		}
		if reply.GetNextHeartbeat() != nil {
			return nil
		}
	}
}

// keep holds leases over many collectors until renew has renewed them.
func (g *load) keep(ctx context.Context, j *job) (*outcome, error) {
	var err error
	g.holders, err = g.hold(ctx, j, lasting(5*time.Minute))
	return &outcome{Count: j.Tasks}, err
}

// renew renews what keep holds once, collector after collector, evenly over
// the job's limit.
func (g *load) renew(ctx context.Context, j *job) (*outcome, error) {
	holders := g.holders
	var t tally
	began := time.Now()
	var all errgroup.Group
	for c, h := range holders {
		all.Go(func() error {
			wait(ctx, time.Until(began.Add(j.Limit*time.Duration(c)/time.Duration(len(holders)))))
			sent := time.Now()
			reply, err := g.dispatch(c).RenewLease(ctx, &pb.RenewLeaseRequest{Collector: g.info(h), Leases: h.beats})
			if err != nil {
				return fmt.Errorf("renew: %w", err)
			}
			if len(reply.GetLost()) > 0 {
				return fmt.Errorf("renew: %d leases were lost", len(reply.GetLost()))
			}
			t.sample("renew", time.Since(sent))
			t.add(len(h.beats))
			return nil
		})
	}
	err := all.Wait()
	return t.outcome(began), err
}
