package bench

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// requeue lets leases run out, and times from the deadline of each, at the
// latest, to its delivery at other collectors.
func (g *load) requeue(ctx context.Context, j *job) (*outcome, error) {
	lease := time.Second + time.Duration(j.Tasks/5)*time.Millisecond // all are given before the first runs out
	holders, err := g.hold(ctx, j, lasting(lease))
	if err != nil {
		return nil, err
	}
	ends := map[string]time.Time{}
	for _, h := range holders {
		for i, b := range h.beats {
			ends[b.GetTaskId()] = h.ends[i]
		}
	}
	var t tally
	began := time.Now()
	heirs := *j
	heirs.Collectors, heirs.Batch = 16, 100
	stop := g.parking(ctx, &heirs, func(client pb.DispatchServiceClient, id string, reply *pb.FetchTaskResponse) error {
		arrived := time.Now()
		for _, lt := range reply.GetLeasedTasks() {
			if end, ok := ends[lt.GetTask().GetId()]; ok {
				t.sample("requeue", max(0, arrived.Sub(end)))
			}
		}
		return g.send(ctx, client, &t, id, reportsOf(reply))
	})
	for deadline := time.Now().Add(lease + 30*time.Second); t.reached() < j.Tasks && time.Now().Before(deadline); {
		wait(ctx, 5*time.Millisecond)
	}
	if err := stop(); err != nil {
		return nil, err
	}
	if got := t.reached(); got < j.Tasks {
		return nil, fmt.Errorf("%d of %d leases that ran out were handed out again", got, j.Tasks)
	}
	return t.outcome(began), nil
}

const (
	// probeEvery is the pace of the fetches that are timed while leases run out.
	probeEvery = 5 * time.Millisecond
	// probes is how many tasks are there for them.
	probes = 4000
)

// expire lets all leases run out at the same moment, and times how long the
// dispatchers take to requeue them, and single fetches meanwhile. The job's
// tasks and the probes were submitted before.
func (g *load) expire(ctx context.Context, j *job) (*outcome, error) {
	end := time.Now().Add(2*time.Second + time.Duration(j.Tasks/5)*time.Millisecond)
	if _, err := g.hold(ctx, j, func() time.Duration { return max(time.Second, time.Until(end)) }); err != nil {
		return nil, err
	}
	if left := time.Until(end); left < time.Second {
		return nil, fmt.Errorf("holding %d leases took until %s before their end", j.Tasks, left)
	}
	wait(ctx, time.Until(end))
	var t tally
	probing, stop := context.WithCancel(ctx)
	probed := make(chan error, 1)
	go func() { probed <- g.probe(probing, j, &t) }()
	took, err := g.requeued(ctx, j, end)
	stop()
	if failed := <-probed; err == nil {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	t.add(j.Tasks)
	o := t.outcome(end)
	o.Took = took
	return o, nil
}

// requeued waits until no lease stands but the probe's, and tells how long
// after end that was.
func (g *load) requeued(ctx context.Context, j *job, end time.Time) (time.Duration, error) {
	admin := pb.NewAdminServiceClient(g.conns[0])
	for deadline := end.Add(time.Minute); ; {
		stats, err := admin.GetStats(ctx, &pb.GetStatsRequest{})
		if err != nil {
			return 0, fmt.Errorf("read stats: %w", err)
		}
		if stats.GetLeases() <= 1 {
			return time.Since(end), nil
		}
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("%d of %d leases still stand a minute after they ran out", stats.GetLeases(), j.Tasks)
		}
		wait(ctx, 10*time.Millisecond)
	}
}

// probe fetches and reports one task at a time, at an even pace, until ctx ends.
func (g *load) probe(ctx context.Context, j *job, t *tally) error {
	client, id := g.dispatch(0), fmt.Sprintf("bench-%s-probe", j.Series)
	began := time.Now()
	for i := range probes {
		wait(ctx, time.Until(began.Add(time.Duration(i)*probeEvery)))
		if ctx.Err() != nil {
			return nil
		}
		request := g.fetchRequest(j, id)
		request.MaxTasks, request.Wait = 1, durationpb.New(0)
		sent := time.Now()
		reply, err := client.FetchTask(ctx, request)
		if canceled(ctx, err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("fetch: %w", err)
		}
		t.sample("fetch", time.Since(sent))
		if err := g.send(ctx, client, &tally{}, id, reportsOf(reply)); err != nil && !canceled(ctx, err) {
			return err
		}
	}
	return nil
}
