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
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Bounds of the pause between two looks: it grows while nothing changes.
const (
	waitAtFirst = 250 * time.Millisecond
	waitAtLast  = 5 * time.Second
)

func newSourceWait(o *client.Options) *cobra.Command {
	var longest time.Duration
	var quiet bool
	cmd := &cobra.Command{
		Use:   "wait ID...",
		Short: "Wait until sources have nothing outstanding",
		Long: `Wait until sources have nothing outstanding: no task of theirs is due, leased, or waits
for another attempt. Submitted tasks that are due later count, and so does the first
crawl of a source that was never crawled; seeds that wait for their next cycle do not.
Tasks that ended DEAD or CANCELED are not outstanding.

The exit code is 1 if --for ends first. A dispatcher that is away is waited for up to
a minute. With --output json each change is an object on a line of its own.`,
		Example:           "  waggle source trigger docs --revisit && waggle source wait docs --for 2h",
		ValidArgsFunction: o.Offer(client.SourceIDs),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("which sources? say their ids")
			}
			return nil
		},
	}
	cli.SpanVar(cmd.Flags(), &longest, "for", "longest wait in all (default: as long as it takes)")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "do not report progress")
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, ids []string) error {
		if err := cli.RefuseZero(cmd.Flags()); err != nil {
			return err
		}
		slices.Sort(ids)
		w := &sourceWait{client: c, ids: slices.Compact(ids), quiet: quiet, seen: map[string]sourceLook{}, clear: map[string]bool{}}
		w.patience = client.Patience{For: client.RestartPatience, Note: c.Note}
		return w.run(ctx, longest)
	})
	return cmd
}

// sourceWait looks at sources until nothing of them is outstanding.
type sourceWait struct {
	client   *client.Client
	patience client.Patience
	ids      []string // that are not finished
	quiet    bool
	seen     map[string]sourceLook // at the last look
	// clear are those that had nothing outstanding at the last look. Shards are counted one after another, and a task
	// may pass from one that is yet to be counted to one that has been; it does not do so twice.
	clear map[string]bool
}

// sourceLook is what a look at a source found: a change of it is reported.
type sourceLook struct {
	ID          string `json:"id"`
	Outstanding int64  `json:"outstanding"`
	Begun       bool   `json:"begun"` // its first crawl is not still to come
	Finished    bool   `json:"finished"`
	alone       bool   // no collector takes its pool
}

func (w *sourceWait) run(ctx context.Context, longest time.Duration) error {
	var over <-chan time.Time
	if longest > 0 {
		w.patience.For = min(w.patience.For, longest)
		over = time.After(longest)
	}
	late := false
	for pause := waitAtFirst; ; pause = min(pause*3/2, waitAtLast) {
		changed, err := w.look(ctx)
		switch {
		case err != nil || len(w.ids) == 0:
			return err
		case late:
			return w.late()
		case changed:
			pause = waitAtFirst
		}
		select {
		case <-time.After(pause):
		case <-over:
			late = true // after one last look
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look asks for each source, and leaves those that are finished out of ids.
func (w *sourceWait) look(ctx context.Context) (changed bool, err error) {
	var open []string
	for _, id := range w.ids {
		var reply *pb.GetSourceResponse
		if err := w.patience.Call(ctx, func() (err error) {
			reply, err = w.client.Sources.GetSource(ctx, &pb.GetSourceRequest{Id: id})
			return err
		}); err != nil {
			return false, err
		}
		status := reply.GetSource().GetStatus()
		found := sourceLook{ID: id, Outstanding: status.GetOutstanding(), Begun: !notBegun(status), alone: slices.ContainsFunc(status.GetGates(), isNoCollector)}
		before := w.seen[id]
		w.seen[id] = found
		changed = changed || found.Outstanding != before.Outstanding || found.Begun != before.Begun
		switch {
		case found.Outstanding > 0 || !found.Begun:
			if found != before {
				w.report(found, waitingText(status))
			}
			w.clear[id] = false
		case w.clear[id]:
			tasks := status.GetTasks()
			found.Finished = true
			w.report(found, fmt.Sprintf("finished; %s done, %s dead, %s canceled", human.Count(tasks.GetDone()), human.Count(tasks.GetDead()), human.Count(tasks.GetCanceled())))
			continue
		default:
			w.clear[id], changed = true, true
		}
		open = append(open, id)
	}
	w.ids = open
	return changed, nil
}

// report writes what a look found.
func (w *sourceWait) report(found sourceLook, text string) {
	switch {
	case w.quiet:
	case w.client.JSON:
		_ = json.NewEncoder(w.client.Out).Encode(found) // a pipe that is closed does not end the wait
	default:
		fmt.Fprintf(w.client.Out, "%s: %s\n", found.ID, text)
	}
}

// notBegun reports whether nothing of a source was ever crawled, and a seed of it will be.
func notBegun(status *pb.SourceStatus) bool {
	tasks := status.GetTasks()
	return status.GetOutstanding() == 0 && status.GetNextDueTime() != nil &&
		status.GetLastSuccessTime() == nil && status.GetLastFailureTime() == nil && tasks.GetDone() == 0 && tasks.GetDead() == 0
}

// waitingText is what of a source is outstanding, and what holds it.
func waitingText(status *pb.SourceStatus) string {
	if notBegun(status) {
		return "not begun; first crawl " + human.Since(time.Now(), status.GetNextDueTime()) + heldBesides(status)
	}
	tasks := status.GetTasks()
	return fmt.Sprintf("%s outstanding (%s ready, %s leased%s)", human.Count(status.GetOutstanding()), human.Count(tasks.GetReady()), human.Count(tasks.GetLeased()), heldBesides(status))
}

// heldBesides is what holds a source beside what opens by itself while it is crawled.
func heldBesides(status *pb.SourceStatus) (text string) {
	for _, gate := range status.GetGates() {
		switch gate.GetKind() {
		case pb.GateKind_GATE_KIND_MIN_DELAY, pb.GateKind_GATE_KIND_MAX_IN_FLIGHT, pb.GateKind_GATE_KIND_NOT_DUE:
		case pb.GateKind_GATE_KIND_NO_COLLECTOR:
			text += ", " + gate.GetReason()
		default:
			text += ", " + human.Word(gate.GetKind(), "GATE_KIND_")
		}
	}
	return text
}

func isNoCollector(g *pb.Gate) bool { return g.GetKind() == pb.GateKind_GATE_KIND_NO_COLLECTOR }

// late ends a wait that took too long.
func (w *sourceWait) late() error {
	var text human.Phrases
	for _, id := range w.ids {
		text.AddIf(!w.seen[id].Begun, "%s: not begun", id)
		text.AddIf(w.seen[id].Begun, "%s: %s outstanding", id, human.Count(w.seen[id].Outstanding))
	}
	return cli.Advise(fmt.Errorf("not finished within --for: %s", text.Text()), "`waggle explain source ID` shows what holds one")
}
