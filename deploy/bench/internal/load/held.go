package load

import (
	"context"
	"fmt"
	"slices"
	"time"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// mostRenewed is how many leases a renewal may name.
const mostRenewed = 1000

// Report reports what Fetch has fetched.
func (l *Load) Report(ctx context.Context) (*Outcome, error) {
	return l.measure(ctx, func(ctx context.Context, c int) error {
		client := pb.NewDispatchServiceClient(l.conn(c))
		for reports := range slices.Chunk(l.held[c], l.workload.Batch) {
			if err := l.report(ctx, client, collectorID(c), reports); err != nil {
				return err
			}
		}
		l.held[c] = nil
		return nil
	})
}

// Renew renews what Fetch has fetched so many times, once in each period. Each collector has a time of its own in it.
// A later Report fails if a lease was lost.
func (l *Load) Renew(ctx context.Context, times int, period time.Duration) (*Outcome, error) {
	return l.measure(ctx, func(ctx context.Context, c int) error {
		client := pb.NewDispatchServiceClient(l.conn(c))
		var leases []*pb.LeaseBeat
		for _, r := range l.held[c] {
			leases = append(leases, &pb.LeaseBeat{TaskId: r.GetTaskId(), LeaseToken: r.GetLeaseToken()})
		}
		ends := time.Now().Add(period)
		for range times {
			if err := pause(ctx, time.Until(ends)-period*time.Duration(c+1)/time.Duration(l.workload.Collectors)); err != nil {
				return err
			}
			for some := range slices.Chunk(leases, mostRenewed) {
				_, err := client.RenewLease(ctx, &pb.RenewLeaseRequest{
					Collector: &pb.CollectorInfo{Id: collectorID(c), Session: l.session}, Leases: some,
				})
				if err != nil {
					return fmt.Errorf("renew: %w", err)
				}
			}
			ends = ends.Add(period)
		}
		return pause(ctx, time.Until(ends)-period)
	})
}
