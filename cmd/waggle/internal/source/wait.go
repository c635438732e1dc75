package source

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// waitInterval is how often the sources are looked at.
const waitInterval = time.Second

func newSourceWait(o *client.Options) *cobra.Command {
	var longest time.Duration
	cmd := &cobra.Command{
		Use:   "wait ID...",
		Short: "Wait until sources have nothing outstanding",
		Long: `Wait until sources have nothing outstanding: no task of theirs is due, leased, or waits for another attempt.
Submitted tasks that are due later count, and so does the first crawl of a source that was never crawled; seeds that wait for
their next cycle do not. Tasks that ended DEAD or CANCELED are not outstanding.

The exit code is 1 if --for ends first. A dispatcher that is away is waited for up to a minute. With --output json each change
is an object on a line of its own.`,
		Example:           "  waggle source trigger docs --revisit && waggle source wait docs --for 2h",
		ValidArgsFunction: o.Offer("source"),
		Args:              cobra.ArbitraryArgs,
	}
	cli.SpanVar(cmd.Flags(), &longest, "for", "longest wait in all (default: as long as it takes)")
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, ids []string) error {
		if len(ids) == 0 {
			return cli.Usagef("which sources? say their ids")
		}
		if err := cli.RefuseZero(cmd.Flags()); err != nil {
			return err
		}
		slices.Sort(ids)
		w := &sourceWait{client: c, ids: slices.Compact(ids), seen: map[string]sourceLook{}}
		w.patience = client.Patience{For: client.RestartPatience, Note: c.Note}
		return w.run(ctx, longest)
	})
	return cmd
}

// sourceWait looks at sources until nothing of them is outstanding.
type sourceWait struct {
	client   *client.Client
	patience client.Patience
	ids      []string              // that are not finished
	seen     map[string]sourceLook // at the last look
}

// sourceLook is what a look at a source found: a change of it is reported.
type sourceLook struct {
	ID          string `json:"id"`
	Outstanding int64  `json:"outstanding"`
	Begun       bool   `json:"begun"`    // its first crawl is not still to come
	Held        string `json:"held"`     // by what does not open by itself while it is crawled
	Finished    bool   `json:"finished"` // nothing was outstanding at two looks
}

func (w *sourceWait) run(ctx context.Context, longest time.Duration) error {
	if longest > 0 {
		w.patience.For = min(w.patience.For, longest)
	}
	for began := time.Now(); ; {
		if err := w.look(ctx); err != nil || len(w.ids) == 0 {
			return err
		}
		pause := waitInterval
		if longest > 0 {
			left := longest - time.Since(began)
			if left <= 0 {
				return w.late()
			}
			pause = min(pause, left)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look asks for each source, reports what changed, and leaves those that are finished out of ids.
func (w *sourceWait) look(ctx context.Context) error {
	for _, id := range slices.Clone(w.ids) {
		var reply *pb.GetSourceResponse
		if err := w.patience.Call(ctx, func() (err error) {
			reply, err = w.client.Sources.GetSource(ctx, &pb.GetSourceRequest{Id: id})
			return err
		}); err != nil {
			return err
		}
		status, before := reply.GetSource().GetStatus(), w.seen[id]
		found := sourceLook{ID: id, Outstanding: status.GetOutstanding(), Begun: begun(status), Held: describe.Gates(lasting(status.GetGates()))}
		idle := found.Outstanding == 0 && found.Begun
		// Shards are counted one after another, and a task may pass from one that is yet to be counted to one that has been;
		// it does not do so twice.
		found.Finished = idle && before.ID == id && before.Outstanding == 0 && before.Begun
		w.seen[id] = found
		if found.Finished {
			w.ids = slices.DeleteFunc(w.ids, func(other string) bool { return other == id })
		}
		if found != before && (!idle || found.Finished) {
			w.report(found, status)
		}
	}
	return nil
}

// report writes what a look found. A pipe that is closed does not end the wait.
func (w *sourceWait) report(found sourceLook, status *pb.SourceStatus) {
	tasks := status.GetTasks()
	var text human.Phrases
	switch {
	case w.client.JSON:
		_ = json.NewEncoder(w.client.Out).Encode(found) //nolint:errchkjson // see above
		return
	case found.Finished:
		fmt.Fprintf(w.client.Out, "%s: finished; %s done, %s dead, %s canceled\n", found.ID,
			human.Count(tasks.GetDone()), human.Count(tasks.GetDead()), human.Count(tasks.GetCanceled()))
		return
	case !found.Begun:
		text.AddIf(true, "not begun; first crawl %s", human.Since(time.Now(), status.GetNextDueTime()))
	default:
		text.AddIf(true, "%s outstanding; %s ready", human.Count(found.Outstanding), human.Count(tasks.GetReady()))
		text.AddIf(true, "%s leased", human.Count(tasks.GetLeased()))
	}
	text.AddIf(found.Held != "", "waits for %s", found.Held)
	fmt.Fprintf(w.client.Out, "%s: %s\n", found.ID, text.Text())
}

// begun reports whether anything of a source was ever crawled or is outstanding, or no seed of it will be.
func begun(status *pb.SourceStatus) bool {
	tasks := status.GetTasks()
	return status.GetOutstanding() > 0 || status.GetNextDueTime() == nil ||
		status.GetLastSuccessTime() != nil || status.GetLastFailureTime() != nil || tasks.GetDone() > 0 || tasks.GetDead() > 0
}

// late ends a wait that took too long.
func (w *sourceWait) late() error {
	var text human.Phrases
	for _, id := range w.ids {
		text.AddIf(!w.seen[id].Begun, "%s: not begun", id)
		text.AddIf(w.seen[id].Begun, "%s: %s outstanding", id, human.Count(w.seen[id].Outstanding))
	}
	return cli.Advise(fmt.Errorf("not finished within --for: %s", text.Text()), "`waggle explain source ID` shows what holds one")
}
