// Package owner has the commands for the dispatcher that owns the store.
package owner

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// New makes the commands.
func New(o *client.Options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "owner", Short: "Show who owns the store",
		Long: `Show which dispatcher owns the store, which one is its standby, what has no owner or no standby, and what a crash
of the owner costs now. Takeovers are those of this owner since it started.`,
		Args: cli.Exactly(),
	}
	return o.Group(o.Look(cmd, func(ctx context.Context, c *client.Client, _ []string) error {
		stats, err := read(ctx, c)
		if err != nil {
			return err
		}
		return c.Show(stats.GetOwnership(), nil, func() { write(c, stats) })
	}), newMove(o))
}

// read reads the counts of a store that has an owner.
func read(ctx context.Context, c *client.Client) (*pb.GetStatsResponse, error) {
	stats, err := c.Admin.GetStats(ctx, &pb.GetStatsRequest{})
	if err == nil && stats.GetOwnership() == nil {
		return nil, cli.Advise(fmt.Errorf("a store of the kind %s has no owner", stats.GetStore().GetKind()),
			"`waggle stats` shows this store; one that several dispatchers share has an owner: see `waggle serve --help`")
	}
	return stats, err
}

func write(c *client.Client, stats *pb.GetStatsResponse) {
	o, sh := stats.GetOwnership(), human.Sheet{}
	describe.Owner(&sh, o, stats.GetStore())
	sh.Linef("Takeovers", "%s forced, %s warm, %s loaded", human.Count(o.GetTakeoversForced()), human.Count(o.GetTakeoversWarm()), human.Count(o.GetTakeoversLoaded()))
	sh.Line("At a crash", crashCost(o))
	sh.Write(c.Out)
}

// crashCost is how long work stands still if the owner dies now.
func crashCost(o *pb.Ownership) string {
	load := o.GetLoadDuration().AsDuration()
	switch {
	case o.GetStandby() != "" && o.GetShardsWithoutStandby() == 0:
		return "a standby is warm: about a second"
	case load == 0:
		return "no warm standby: about 3s, and the time to load the store"
	default:
		return fmt.Sprintf("no warm standby: about 3s, and loading %s took %s the last time", human.Plural(o.GetItemsLoaded(), "item"), human.Span(load))
	}
}

const (
	moveLimit = 10 * time.Second
	lookEach  = 20 * time.Millisecond
)

// moved is what programs get of a move.
type moved struct {
	From string `json:"from"`
	To   string `json:"to"`
	Took string `json:"took"` // as durations of the API
}

func newMove(o *client.Options) *cobra.Command {
	var record cli.Record
	cmd := &cobra.Command{
		Use: "move", Short: "Give the store to the standby",
		Long: `Give the store from its owner to the standby, and wait until it is there, at most 10s. Calls wait meanwhile, some
200ms; no lease is lost. An owner that is stopped by SIGTERM does the same by itself.`,
		Example: "  waggle owner move --reason 'new kernel'",
		Args:    cli.Exactly(),
	}
	record.Register(cmd, o.Console)
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, _ []string) error {
		before, err := read(ctx, c)
		if err != nil {
			return err
		}
		began, from := time.Now(), before.GetOwnership().GetOwner()
		_, err = c.Admin.MoveOwner(ctx, &pb.MoveOwnerRequest{Owner: from, By: record.By, Reason: record.Reason})
		if _, begun := client.Repeatable(err); err != nil && !begun { // else it may have begun
			return err
		}
		to, err := await(ctx, c, from, err)
		took := time.Since(began)
		return c.Show(moved{from, to, fmt.Sprintf("%.3fs", took.Seconds())}, err, func() {
			fmt.Fprintf(c.Out, "the store moved from %s to %s in %s\n", human.Plain(from), human.Plain(to), human.Span(took))
		})
	})
	return cmd
}

// await waits until another dispatcher than from owns the store, and returns its name. asked is how the call that asked for it failed.
func await(ctx context.Context, c *client.Client, from string, asked error) (to string, err error) {
	for late := time.After(moveLimit); ; {
		stats, err := read(ctx, c)
		if _, again := client.Repeatable(err); err != nil && !again {
			return "", err
		}
		if to := stats.GetOwnership().GetOwner(); to != "" && to != from {
			return to, nil
		}
		select {
		case <-time.After(lookEach):
		case <-late:
			if asked == nil {
				asked = cli.Advise(fmt.Errorf("the store has not left %s within %s", from, human.Span(moveLimit)),
					"`waggle status` shows what is wrong; the same command may be repeated")
			}
			return "", asked
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}
