package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// emptyCalls is how many one measurement makes at most.
const emptyCalls = 60_000

// emptyFloor measures calls that do nothing, which is what gRPC costs whoever asks
// for one task a call, whatever the store: no row with one a call can be faster.
func (b *bencher) emptyFloor(ctx context.Context, e *env) error {
	if len(b.result.Empty) > 0 {
		return nil // for another store
	}
	if err := e.fresh(ctx); err != nil {
		return err
	}
	for _, collectors := range b.cfg.Collectors {
		var rates, cpu []float64
		j := &job{Servers: e.servers(), Collectors: collectors, Tasks: min(b.most(), emptyCalls), Limit: time.Minute}
		for range b.cfg.Repeats {
			before, err := e.read(ctx)
			if err != nil {
				return err
			}
			o, err := e.do(j, opEmpty)
			if err != nil {
				return err
			}
			after, err := e.read(ctx)
			if err != nil {
				return err
			}
			rates, cpu = append(rates, perSecond(o)), append(cpu, costs(before, after, j.Tasks).DispatcherCPU)
		}
		row := EmptyRow{Collectors: collectors, Calls: sampleOf(rates), DispatcherCPU: sampleOf(cpu)}
		b.result.Empty = append(b.result.Empty, row)
		b.tell("empty       %3d collectors  %7.0f calls/s, %s of the dispatcher each", collectors, row.Calls.Median, micros(row.DispatcherCPU.Median))
	}
	return nil
}

// empty makes as many calls as the job has tasks, one by one for each collector.
func (g *load) empty(ctx context.Context, j *job) (*outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, j.Limit)
	defer cancel()
	var next atomic.Int64
	var all errgroup.Group
	began := time.Now()
	for c := range j.Collectors {
		all.Go(func() error {
			client := healthpb.NewHealthClient(g.conns[c%len(g.conns)])
			for next.Add(1) <= int64(j.Tasks) {
				if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
					return fmt.Errorf("empty call: %w", err)
				}
			}
			return nil
		})
	}
	err := all.Wait()
	return &outcome{Count: j.Tasks, Took: time.Since(began)}, err
}
