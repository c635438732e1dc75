package source

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
		Short: "Wait until nothing of the sources is outstanding",
		Long: `Wait until nothing of the sources is outstanding: no task of theirs is due, leased,
or waits for another attempt. Seeds that rest until their next cycle do not
count; submitted tasks whose due time is still to come do, and so does a source's
first crawl: one that was never crawled is waited for ('source trigger ID' begins it
now). Tasks that ended DEAD
or CANCELED are not outstanding: 'task list --source ID --state dead' shows them.

Ends with 0 when nothing is outstanding, with 1 when --for is over before. A
dispatcher that is away for a while is waited for, too.`,
		Example: `  waggle source trigger docs --revisit && waggle source wait docs --for 2h`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("which sources? say their ids")
			}
			return nil
		},
	}
	cli.SpanVar(cmd.Flags(), &longest, "for", "longest wait in all (default: as long as it takes)")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "do not tell how far they are")
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, ids []string) error {
		if err := cli.RefuseZero(cmd.Flags()); err != nil {
			return err
		}
		slices.Sort(ids)
		w := &sourceWait{client: c, ids: slices.Compact(ids), quiet: quiet, pause: waitAtFirst, seen: map[string]sourceLook{}, clear: map[string]bool{}}
		if longest > 0 {
			w.deadline = time.Now().Add(longest)
		}
		return w.run(ctx)
	})
	return cmd
}

// sourceWait looks at sources until nothing of them is outstanding.
type sourceWait struct {
	client   *client.Client
	ids      []string // that are not finished
	quiet    bool
	deadline time.Time // zero: none
	pause    time.Duration
	away     time.Time             // since when the dispatcher does not answer; zero: it does
	seen     map[string]sourceLook // at the last look
	// clear are those that had nothing outstanding at the last look. Shards are counted one after another, and a task
	// may pass from one that is yet to be counted to one that has been; it does not do so twice.
	clear map[string]bool
}

// sourceLook is what a look at a source found that people hear of when it changes.
type sourceLook struct {
	left     int64 // outstanding
	alone    bool  // no collector takes its pool
	notBegun bool  // its first crawl is to come
}

func (w *sourceWait) run(ctx context.Context) error {
	for {
		changed, err := w.look(ctx)
		if err == nil && len(w.ids) == 0 {
			return nil
		}
		if err != nil && !w.goesOn(ctx, err) {
			return err
		}
		w.pause = min(w.pause*3/2, waitAtLast)
		if changed {
			w.pause = waitAtFirst
		}
		pause := w.pause
		if !w.deadline.IsZero() {
			left := time.Until(w.deadline)
			if left <= 0 {
				return w.late()
			}
			pause = min(pause, left) // and one last look
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// goesOn tells whether a look that failed may be repeated: for a minute, the time of a restart.
func (w *sourceWait) goesOn(ctx context.Context, err error) bool {
	if _, again := client.Repeatable(err); !again || ctx.Err() != nil {
		return false
	}
	if w.away.IsZero() {
		w.away = time.Now()
		w.tell("the dispatcher does not answer; waiting for it")
	}
	return time.Since(w.away) < client.RestartPatience
}

// look asks for each source, and leaves those that are finished out of ids.
func (w *sourceWait) look(ctx context.Context) (changed bool, err error) {
	var open []string
	for _, id := range w.ids {
		reply, err := w.client.Sources.GetSource(ctx, &pb.GetSourceRequest{Id: id})
		if err != nil {
			return false, err
		}
		status := reply.GetSource().GetStatus()
		found := sourceLook{status.GetOutstanding(), slices.ContainsFunc(status.GetGates(), isNoCollector), notBegun(status)}
		before := w.seen[id]
		w.seen[id] = found
		changed = changed || found.left != before.left || found.notBegun != before.notBegun
		switch {
		case found.left > 0 || found.notBegun:
			if found != before {
				w.tell("%s: %s", id, waitingText(status))
			}
			w.clear[id] = false
		case w.clear[id]:
			tasks := status.GetTasks()
			w.tell("%s: finished; %s done, %s dead, %s canceled", id, human.Count(tasks.GetDone()), human.Count(tasks.GetDead()), human.Count(tasks.GetCanceled()))
			continue
		default:
			w.clear[id], changed = true, true
		}
		open = append(open, id)
	}
	w.ids, w.away = open, time.Time{}
	return changed, nil
}

func (w *sourceWait) tell(format string, args ...any) {
	if !w.quiet {
		fmt.Fprintf(w.client.Out, format+"\n", args...)
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
	var text []string
	for _, id := range w.ids {
		what := human.Count(w.seen[id].left) + " outstanding"
		if w.seen[id].notBegun {
			what = "not begun"
		}
		text = append(text, id+": "+what)
	}
	fmt.Fprintf(w.client.Err, "waggle: not finished within --for: %s\n  `waggle task list --source ID` shows them, `waggle source get ID` what holds its seeds\n", human.Plain(strings.Join(text, "; ")))
	return cli.ErrReported
}
