// Package status has the command that shows on one screen what stands still, and why.
package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/dispatch/duration"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// How long a look takes at most: an operator who asks what is wrong does not wait for it.
const (
	statsLimit = 2 * time.Second        // for the first answer
	aliveLimit = 400 * time.Millisecond // for the health check that follows, if there was none
	lookLimit  = 2900 * time.Millisecond
)

// New makes the command.
func New(o *client.Options) *cobra.Command {
	check := false
	cmd := &cobra.Command{
		Use: "status", Short: "Show what stands still, and why",
		Long: `Show what stands still and why, the worst first, each with the command to go on with: the dispatcher and its
store, holds, collectors that can do nothing, sources that are not OK or have never succeeded, pools without collectors, blocked
hosts, dead tasks, collectors that are gone, hang or are stuck, handlers that do not end, tasks that are released again and again.

It answers within 3s. Of very many sources it looks at as many as it can in that time, and says how many. --output json has all
findings. For monitoring, --check exits with 0 if there is no finding, 1 if there is one, and 3 if no dispatcher answers; HELD and
IDLE are no findings then.`,
		Example: "  waggle status --check || echo 'look at it'",
		Args:    cli.Exactly(),
	}
	cmd.Flags().BoolVar(&check, "check", false, "exit with 1 if there is a finding, 3 if no dispatcher answers")
	return o.Group(o.Look(cmd, func(ctx context.Context, c *client.Client, _ []string) error {
		if check && c.Watching {
			return cli.Usagef("--check looks once: leave out --watch")
		}
		ctx, cancel := context.WithTimeout(ctx, lookLimit)
		defer cancel()
		l := &look{client: c, now: c.Now, begun: time.Now()}
		err := l.run(ctx)
		if check && l.silent {
			err = fmt.Errorf("%w: %w", cli.ErrNoAnswer, err)
		}
		if err != nil && len(l.findings) == 0 {
			return err
		}
		shown := c.Show(l.report(), nil, func() { l.write() })
		switch {
		case err != nil: // it is among the findings
			return errors.Join(cli.ErrReported, err, shown)
		case check && slices.ContainsFunc(l.findings, func(f finding) bool { return f.Kind != kindHeld && f.Kind != kindIdle }):
			return errors.Join(cli.ErrReported, shown)
		}
		return shown
	}))
}

// Kinds of findings that this package knows: those of its own, and those that are no fault.
const (
	kindDispatcher = "DISPATCHER"
	kindStore      = "STORE"
	kindHeld       = "HELD"
	kindIdle       = "IDLE"
	kindUnread     = "UNREAD"
)

// finding is something that stands still, why, and the command that shows more or ends it.
type finding struct {
	Kind  string     `json:"kind"`
	Since *time.Time `json:"since,omitempty"`
	Count int64      `json:"count"`
	Names []string   `json:"names,omitempty"` // the worst first
	Text  string     `json:"text"`
	Next  string     `json:"next"`
}

// look is one look at a Waggle.
type look struct {
	client *client.Client
	now    time.Time
	begun  time.Time
	stats  *pb.GetStatsResponse
	found  *pb.ListFindingsResponse
	silent bool // no dispatcher has answered

	findings []finding
}

// run asks for counts, which shows whether the dispatcher and its store answer, and for the findings. An error means that
// nothing can be looked at.
func (l *look) run(ctx context.Context) error {
	if err := l.readStats(ctx); err != nil {
		return err
	}
	var err error
	l.found, err = l.client.Admin.ListFindings(ctx, &pb.ListFindingsRequest{})
	switch {
	case grpcstatus.Code(err) == codes.DeadlineExceeded:
		l.add(kindUnread, "waggle stats", "no findings within "+duration.Text(lookLimit))
		return nil
	case err != nil:
		return err
	}
	for _, f := range l.found.GetFindings() {
		l.findings = append(l.findings, l.finding(f))
	}
	return nil
}

// add adds a finding of its own.
func (l *look) add(kind, next, text string) {
	l.findings = append(l.findings, finding{Kind: kind, Count: 1, Text: text, Next: next})
}

func (l *look) readStats(ctx context.Context) (err error) {
	first, cancel := context.WithTimeout(ctx, statsLimit)
	defer cancel()
	l.stats, err = l.client.Admin.GetStats(first, &pb.GetStatsRequest{})
	switch {
	case err == nil:
	case client.Reason(err) == "STORE_UNAVAILABLE":
		l.add(kindStore, "waggle status --watch", "the store does not answer, or has no owner; leases get 30s more")
	case grpcstatus.Code(err) == codes.DeadlineExceeded:
		alive, cancel := context.WithTimeout(ctx, aliveLimit)
		defer cancel()
		if _, silent := l.client.Health.Check(alive, &healthpb.HealthCheckRequest{}); silent != nil {
			l.silent = true
			l.add(kindDispatcher, "waggle status --server HOST:PORT", "no answer within "+duration.Text(statsLimit))
		} else {
			l.add(kindStore, "waggle status --watch", "the store does not answer, or has no owner: no counts in "+duration.Text(statsLimit))
		}
	default:
		l.silent = grpcstatus.Code(err) == codes.Unavailable && client.Reason(err) == ""
	}
	return err
}
