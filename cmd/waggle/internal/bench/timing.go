package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// calls times single fetches and reports, with work waiting, for as long as
// the job says.
func (g *load) calls(ctx context.Context, j *job) (*outcome, error) {
	var t tally
	var all errgroup.Group
	began := time.Now()
	for c := range j.Collectors {
		all.Go(func() error {
			client, id := g.dispatch(c), fmt.Sprintf("bench-%s-%d", j.Series, c)
			for time.Since(began) < j.Limit {
				request := g.fetchRequest(j, id)
				sent := time.Now()
				reply, err := client.FetchTask(ctx, request)
				if err != nil {
					return fmt.Errorf("fetch: %w", err)
				}
				reports := reportsOf(reply)
				if len(reports) == 0 {
					return nil // the backlog is used up
				}
				t.sample("fetch", time.Since(sent))
				sent = time.Now()
				if err := g.send(ctx, client, &t, id, reports); err != nil {
					return err
				}
				t.sample("report", time.Since(sent))
			}
			return nil
		})
	}
	err := all.Wait()
	return t.outcome(began), err
}

// parking keeps collectors parked; each task that arrives is given to take.
// stop ends them all.
func (g *load) parking(ctx context.Context, j *job, take func(client pb.DispatchServiceClient, id string, reply *pb.FetchTaskResponse) error) (stop func() error) {
	running, cancel := context.WithCancel(ctx)
	var all errgroup.Group
	for c := range j.Collectors {
		all.Go(func() error {
			client, id := g.dispatch(c), fmt.Sprintf("bench-%s-%d", j.Series, c)
			var t tally
			for {
				request := g.fetchRequest(j, id)
				request.Wait = durationpb.New(30 * time.Second)
				var reply *pb.FetchTaskResponse
				err := again(running, &t, func() (err error) {
					reply, err = client.FetchTask(running, request)
					return err
				})
				if canceled(running, err) {
					return nil
				}
				if err != nil {
					return fmt.Errorf("fetch: %w", err)
				}
				if len(reply.GetLeasedTasks()) == 0 {
					continue
				}
				if err := take(client, id, reply); err != nil && !canceled(running, err) {
					return err
				}
			}
		})
	}
	return func() error {
		cancel()
		return all.Wait()
	}
}

// settleTime is how long collectors have to park.
func settleTime(collectors int) time.Duration {
	return 300*time.Millisecond + time.Duration(collectors)*500*time.Microsecond
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// wake submits tasks one by one, at an even pace, to parked collectors, and
// times each from its submission to its delivery.
func (g *load) wake(ctx context.Context, j *job) (*outcome, error) {
	var t tally
	var mu sync.Mutex // guards sent
	sent := map[string]time.Time{}
	stop := g.parking(ctx, j, func(client pb.DispatchServiceClient, id string, reply *pb.FetchTaskResponse) error {
		arrived := time.Now()
		for _, lt := range reply.GetLeasedTasks() {
			mu.Lock()
			at, ok := sent[lt.GetTask().GetUrl()]
			mu.Unlock()
			if ok {
				t.sample("wake-up", arrived.Sub(at))
			}
		}
		return g.send(ctx, client, &t, id, reportsOf(reply))
	})
	wait(ctx, settleTime(j.Collectors))
	began := time.Now()
	pace := j.Limit / time.Duration(max(1, j.Tasks))
	tasks := pb.NewTaskServiceClient(g.conns[0])
	payload := make([]byte, payloadBytes)
	for i := range j.Tasks {
		wait(ctx, time.Until(began.Add(time.Duration(i)*pace)))
		url := urlOf(j, j.First+i)
		mu.Lock()
		sent[url] = time.Now()
		mu.Unlock()
		reply, err := tasks.SubmitTasks(ctx, &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{{SourceId: sourceOf(j), Url: url, Payload: payload}}})
		if err == nil {
			err = refusedSubmit(reply)
		}
		if err != nil {
			_ = stop() // what went wrong first is told
			return nil, fmt.Errorf("submit: %w", err)
		}
	}
	for deadline := time.Now().Add(5 * time.Second); t.reached() < j.Tasks && time.Now().Before(deadline); {
		wait(ctx, 5*time.Millisecond)
	}
	if err := stop(); err != nil {
		return nil, err
	}
	if got := t.reached(); got < j.Tasks {
		return nil, fmt.Errorf("%d of %d tasks were delivered", got, j.Tasks)
	}
	return t.outcome(began), nil
}

// park keeps collectors waiting for as long as the job says.
func (g *load) park(ctx context.Context, j *job) (*outcome, error) {
	stop := g.parking(ctx, j, func(_ pb.DispatchServiceClient, _ string, reply *pb.FetchTaskResponse) error {
		return fmt.Errorf("%d tasks came where none were submitted", len(reply.GetLeasedTasks()))
	})
	began := time.Now()
	wait(ctx, j.Limit)
	return &outcome{Count: j.Collectors, Took: time.Since(began)}, stop()
}

// loneCollector is who fetches and reports.
const loneCollector = "bench"

// fetch fetches the tasks of the job with one collector, and keeps them for
// report. It times each call.
func (g *load) fetch(ctx context.Context, j *job) (*outcome, error) {
	var t tally
	began := time.Now()
	for t.reached() < j.Tasks {
		request := g.fetchRequest(j, loneCollector)
		request.MaxTasks = int32(min(j.Batch, j.Tasks-t.reached()))
		sent := time.Now()
		reply, err := g.dispatch(0).FetchTask(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("fetch: %w", err)
		}
		if len(reply.GetLeasedTasks()) == 0 {
			if time.Since(sent) > 50*pollWait || time.Since(began) > j.Limit {
				return nil, fmt.Errorf("%d of %d tasks were there: %s", t.reached(), j.Tasks, reply.GetEmptyReason())
			}
			continue
		}
		t.sample("fetch", time.Since(sent))
		g.kept = append(g.kept, reportsOf(reply)...)
		t.add(len(reply.GetLeasedTasks()))
	}
	return t.outcome(began), nil
}

// report reports what fetch kept, in calls of the job's batch.
func (g *load) report(ctx context.Context, j *job) (*outcome, error) {
	var t tally
	began := time.Now()
	for len(g.kept) > 0 {
		n := min(j.Batch, len(g.kept))
		sent := time.Now()
		if err := g.send(ctx, g.dispatch(0), &t, loneCollector, g.kept[:n]); err != nil {
			return nil, err
		}
		t.sample("report", time.Since(sent))
		g.kept = g.kept[n:]
	}
	g.kept = nil
	return t.outcome(began), nil
}
