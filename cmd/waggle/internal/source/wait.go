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
		ValidArgsFunction: o.Offer("source"),
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
		w := &sourceWait{client: c, ids: slices.Compact(ids), quiet: quiet, seen: map[string]sourceLook{}}
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
	for _, id := range slices.Clone(w.ids) {
		var reply *pb.GetSourceResponse
		if err := w.patience.Call(ctx, func() (err error) {
			reply, err = w.client.Sources.GetSource(ctx, &pb.GetSourceRequest{Id: id})
			return err
		}); err != nil {
			return false, err
		}
		status, before := reply.GetSource().GetStatus(), w.seen[id]
		found := sourceLook{ID: id, Outstanding: status.GetOutstanding(), Begun: begun(status), Held: held(status)}
		idle := found.Outstanding == 0 && found.Begun
		// Shards are counted one after another, and a task may pass from one that is yet to be counted to one that has been;
		// it does not do so twice.
		found.Finished = idle && before.ID == id && before.Outstanding == 0 && before.Begun
		w.seen[id] = found
		changed = changed || found != before
		if found.Finished {
			w.ids = slices.DeleteFunc(w.ids, func(other string) bool { return other == id })
		}
		if found != before && (!idle || found.Finished) {
			w.report(found, status)
		}
	}
	return changed, nil
}

// report writes what a look found.
func (w *sourceWait) report(found sourceLook, status *pb.SourceStatus) {
	tasks, held := status.GetTasks(), ""
	if found.Held != "" {
		held = ", " + found.Held
	}
	switch {
	case w.quiet:
	case w.client.JSON:
		if err := json.NewEncoder(w.client.Out).Encode(found); err != nil {
			return // a pipe that is closed does not end the wait
		}
	case found.Finished:
		fmt.Fprintf(w.client.Out, "%s: finished; %s done, %s dead, %s canceled\n", found.ID, human.Count(tasks.GetDone()), human.Count(tasks.GetDead()), human.Count(tasks.GetCanceled()))
	case !found.Begun:
		fmt.Fprintf(w.client.Out, "%s: not begun; first crawl %s%s\n", found.ID, human.Since(time.Now(), status.GetNextDueTime()), held)
	default:
		fmt.Fprintf(w.client.Out, "%s: %s outstanding (%s ready, %s leased%s)\n", found.ID, human.Count(found.Outstanding), human.Count(tasks.GetReady()), human.Count(tasks.GetLeased()), held)
	}
}

// begun reports whether anything of a source was ever crawled or is outstanding, or no seed of it will be.
func begun(status *pb.SourceStatus) bool {
	tasks := status.GetTasks()
	return status.GetOutstanding() > 0 || status.GetNextDueTime() == nil ||
		status.GetLastSuccessTime() != nil || status.GetLastFailureTime() != nil || tasks.GetDone() > 0 || tasks.GetDead() > 0
}

// held is what holds a source beside what opens by itself while it is crawled.
func held(status *pb.SourceStatus) string {
	var text human.Phrases
	for _, gate := range status.GetGates() {
		switch gate.GetKind() {
		case pb.GateKind_GATE_KIND_MIN_DELAY, pb.GateKind_GATE_KIND_MAX_IN_FLIGHT, pb.GateKind_GATE_KIND_NOT_DUE:
		case pb.GateKind_GATE_KIND_NO_COLLECTOR:
			text = append(text, gate.GetReason())
		default:
			text = append(text, human.Word(gate.GetKind(), "GATE_KIND_"))
		}
	}
	return text.Text()
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
