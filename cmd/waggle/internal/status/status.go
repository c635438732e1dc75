// Package status has the command that shows on one screen what stands still, and why.
package status

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// New makes the command.
func New(o *client.Options) *cobra.Command {
	return o.Group(o.Look(&cobra.Command{
		Use: "status", Short: "Show what stands still, and why",
		Long: `Show what stands still and why, the worst first, each with the command to go on with: the dispatcher and its
store, holds, sources that are not OK, pools without collectors, blocked hosts, collectors that are gone, hang or are stuck,
handlers that do not end, tasks that are released again and again.

It answers within 3s. Of very many sources it looks at as many as it can in that time, and says how many. --output json has all
findings.`,
		Args: cli.Exactly(),
	}, func(ctx context.Context, c *client.Client, _ []string) error {
		ctx, cancel := context.WithTimeout(ctx, lookLimit)
		defer cancel()
		l := &look{client: c, now: c.Now, begun: time.Now()}
		err := l.run(ctx)
		if err != nil && len(l.findings) == 0 {
			return err
		}
		order := kinds()
		slices.SortStableFunc(l.findings, func(a, b finding) int { return slices.Index(order, a.Kind) - slices.Index(order, b.Kind) })
		shown := c.Show(l.report(), nil, func() { l.write() })
		if err != nil { // it is among the findings
			return errors.Join(cli.ErrReported, err, shown)
		}
		return shown
	}))
}

func (l *look) run(ctx context.Context) error {
	if err := l.readStats(ctx); err != nil {
		return err
	}
	l.read(ctx)
	l.findHolds()
	l.findSources(ctx)
	l.findPools(ctx)
	l.findBlocked(ctx)
	l.findCollectors()
	l.findStuck()
	l.findLeases(ctx)
	l.findReleased()
	l.findIdle()
	return nil
}

// readStats asks for counts, which shows how the dispatcher and its store are. An error means that nothing can be read.
func (l *look) readStats(ctx context.Context) (err error) {
	first, cancel := context.WithTimeout(ctx, statsLimit)
	defer cancel()
	l.stats, err = l.client.Admin.GetStats(first, &pb.GetStatsRequest{})
	took := time.Since(l.begun)
	switch {
	case err == nil:
	case client.Reason(err) == "STORE_UNAVAILABLE":
		l.add(kindStore, 1, nil, "waggle status --watch",
			"Redis does not answer; leases get grace for as long, at most 30s")
		return err
	case grpcstatus.Code(err) == codes.DeadlineExceeded:
		alive, cancel := context.WithTimeout(ctx, aliveLimit)
		defer cancel()
		if _, silent := l.client.Health.Check(alive, &healthpb.HealthCheckRequest{}); silent != nil {
			l.add(kindDispatcher, 1, nil, "waggle status --server HOST:PORT", "no answer within "+human.Duration(statsLimit))
		} else {
			l.add(kindStore, 1, nil, "waggle status --watch", "Redis does not answer: the dispatcher runs, and gave no counts in "+human.Duration(statsLimit))
		}
		return err
	default:
		return err
	}
	s := l.stats
	if s.GetDispatcher().GetDraining() {
		l.add(kindDispatcher, 1, []string{s.GetDispatcher().GetId()}, "waggle status --server HOST:PORT", "it is about to stop: ask another one")
	}
	if s.GetKeeperId() == "" {
		l.add(kindDispatcher, 1, nil, "waggle stats", "no keeper: nobody requeues expired leases")
	}
	if s.GetStore().GetFull() {
		full := "full: submits are refused, work in hand goes on. Raise maxmemory"
		if s.GetStore().GetKind() == "file" {
			full = "the disk is full: submits are refused, work in hand goes on. Make room"
		}
		l.add(kindStore, 1, nil, "waggle stats", full)
	}
	if took > slowStore {
		l.add(kindStore, 1, nil, "waggle stats", "slow: counts took "+human.Span(took))
	}
	if grace := s.GetGrace().AsDuration(); grace > 0 {
		l.add(kindStore, 1, nil, "waggle status --watch", "was away: overdue leases may be renewed for "+human.Span(grace))
	}
	return nil
}
