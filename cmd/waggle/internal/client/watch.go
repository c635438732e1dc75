package client

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/dispatch/duration"
)

// watchInterval is how often --watch looks again unless it is given another interval.
const watchInterval = "2s"

// Look completes a command that only looks, and gives it --watch, which repeats f until an interrupt: on a terminal each look
// takes the place of the one before, in a pipe an empty line stands between them.
func (o *Options) Look(cmd *cobra.Command, f func(ctx context.Context, c *Client, args []string) error) *cobra.Command {
	every := time.Duration(0)
	cli.SpanVar(cmd.Flags(), &every, "watch", "repeat until Ctrl-C, each `interval`, as --watch=10s (without a value 2s)")
	cmd.Flags().Lookup("watch").NoOptDefVal = watchInterval
	cmd.RunE = o.Call(func(ctx context.Context, c *Client, args []string) error {
		look := func() error { return f(ctx, c, args) }
		switch {
		case !cmd.Flags().Changed("watch"):
			return look()
		case every <= 0:
			return cli.Usagef("--watch: %s: want more than 0", every)
		}
		return o.watch(ctx, c, cmd.CommandPath(), every, look)
	})
	return cmd
}

// watch looks each interval until ctx ends. A look that fails after the first is reported and repeated if the next may
// succeed, as when a dispatcher restarts.
func (o *Options) watch(ctx context.Context, c *Client, command string, every time.Duration, look func() error) error {
	stdout, stderr := c.Out.Writer, c.Err
	c.Watching = true
	next := time.NewTicker(every)
	defer next.Stop()
	for first := true; ; first = false {
		var page bytes.Buffer
		screen := human.NewOutput(stdout, o.Console.Env) // its size may be another one by now
		c.Now, c.Out, c.Err = time.Now(), screen, stderr
		c.Out.Writer = &page
		switch {
		case screen.Redraws():
			c.Err = &page
			fmt.Fprintf(c.Out, "%s, every %s, at %s\n\n", command, duration.Text(every), c.Now.Format(time.TimeOnly))
		case !first:
			fmt.Fprintln(c.Out)
		}
		if err := look(); ctx.Err() != nil {
			return nil
		} else if _, again := Repeatable(err); again && !first {
			problem, _ := o.explained(err).Words()
			c.Note("%s; looking again", human.Plain(problem))
		} else if err != nil {
			return err
		}
		if err := screen.Redraw(page.String()); err != nil {
			return err
		}
		select {
		case <-next.C:
		case <-ctx.Done():
			return nil
		}
	}
}
