package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Burst has a fetch of one task wait for each collector, submits as many tasks in one call, and returns how long after the call was
// sent each was handed out.
func (l *Load) Burst(ctx context.Context) ([]time.Duration, error) {
	n := l.workload.Collectors
	l.mu.Lock()
	first := len(l.given)
	l.mu.Unlock()
	var sent time.Time
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error {
		_, err := l.Work(ctx, n)
		return err
	})
	both.Go(func() error {
		if err := pause(ctx, time.Second); err != nil { // until all wait
			return err
		}
		sent = time.Now()
		return l.submit(ctx, n, n)
	})
	if err := both.Wait(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	lags := make([]time.Duration, n)
	for i := range lags {
		lags[i] = l.given[first+i].Sub(sent)
	}
	return lags, nil
}

// Requeue has all tasks leased and lets the leases run out, while fetches wait that take them again. It returns how long after its
// deadline each was handed out.
func (l *Load) Requeue(ctx context.Context, n int, lease time.Duration) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var mu sync.Mutex // guards what follows
	deadlines := make(map[string]time.Time, n)
	var lags []time.Duration
	all, ctx := errgroup.WithContext(ctx)
	for c := range l.workload.Collectors {
		all.Go(func() error {
			client := pb.NewDispatchServiceClient(l.conn(c))
			for {
				mu.Lock()
				done := len(lags) >= n
				mu.Unlock()
				if done {
					return nil
				}
				reply, err := client.FetchTask(ctx, &pb.FetchTaskRequest{
					CollectorId: collectorID(c), Session: l.session, ClientToken: uuid.NewString(), MaxTasks: int32(l.workload.Batch),
					Wait: durationpb.New(time.Second), LeaseDuration: durationpb.New(lease),
				})
				if err != nil {
					return fmt.Errorf("fetch: %w", err)
				}
				now := time.Now()
				mu.Lock()
				for _, t := range reply.GetLeasedTasks() {
					id := t.GetTask().GetId()
					if deadline, again := deadlines[id]; again {
						lags = append(lags, now.Sub(deadline))
					}
					deadlines[id] = now.Add(t.GetLease().GetDuration().AsDuration())
				}
				mu.Unlock()
			}
		})
	}
	return lags, all.Wait()
}
