package hold

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/textfile"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// holdChange is what becomes of one hold of a file.
type holdChange struct {
	line   int
	hold   hold
	was    *hold // what stood; nil: nothing
	result string
	err    string
}

// holdApply is the command that brings back what a file says is held.
type holdApply struct {
	record  cli.Record
	byGiven bool
	dryRun  bool
}

func newHoldApply(o *client.Options) *cobra.Command {
	a := &holdApply{}
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Hold what a file says, as 'hold export' writes it",
		Long: `Hold what a file says, as 'hold export' writes it; - is standard input. It lifts
nothing: what is held and not in the file stays, and so does what is held for longer
than the file says. What the file says until a time that has passed is left out.
Sources have to be there; queues, pools and collectors need not.

Who holds it and why is what the file says, unless --by or --reason is given.`,
		Example: "  waggle hold apply holds.jsonl --dry-run",
		Args:    cli.Exactly("the FILE (or - for standard input)"),
	}
	a.record.Register(cmd, o.Console)
	cmd.Flags().BoolVar(&a.dryRun, "dry-run", false, "change nothing; say what would become of each")
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, args []string) error {
		a.byGiven = cmd.Flags().Changed("by")
		return a.run(ctx, c, args[0], cmd.InOrStdin())
	})
	return cmd
}

func (a *holdApply) run(ctx context.Context, c *client.Client, name string, stdin io.Reader) error {
	in, err := cli.OpenInput(ctx, name, stdin)
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	defer in.Close()
	changes, err := readHolds(ctx, in)
	if err != nil {
		return err
	}
	standing, err := holds(ctx, c)
	if err != nil {
		return err
	}
	there := map[string]*hold{}
	for _, h := range standing {
		there[h.key()] = h
	}
	done := 0
	for _, change := range changes {
		if change.err != "" {
			continue
		}
		change.was = there[change.hold.key()]
		a.sign(&change.hold, change.was)
		change.result = change.hold.beside(change.was, c.Now)
		if change.result != cli.ResultCreated && change.result != cli.ResultUpdated {
			continue
		}
		if !a.dryRun {
			switch err := holdIt(ctx, c, &change.hold); {
			case err != nil && change.refuse(err):
				continue
			case err != nil && done > 0:
				c.Note("stopped after %s; the same command again does the rest", human.Plural(done, "hold"))
				return err
			case err != nil:
				return err
			}
			done++
		}
		there[change.hold.key()] = &change.hold
	}
	return showHolds(c, changes, a.dryRun)
}

// readHolds reads all holds of a file.
func readHolds(ctx context.Context, in *cli.Input) (changes []*holdChange, err error) {
	err = in.EachObject(ctx, func(object textfile.Entry) {
		change := &holdChange{line: object.Line}
		err := object.Err
		if err == nil {
			change.hold, err = parseHold(object.Text)
		}
		if err != nil {
			change.result, change.err = cli.ResultInvalid, err.Error()
		}
		changes = append(changes, change)
	})
	return changes, err
}

// refuse notes that the dispatcher did not take the hold; it is false when it can take none.
func (h *holdChange) refuse(err error) bool {
	switch {
	case errors.Is(err, errNoSource):
		h.err = err.Error()
	case status.Code(err) == codes.InvalidArgument:
		h.err = client.RefusalText(err)
	default:
		return false
	}
	h.result = cli.ResultRefused
	return true
}

// sign says who holds it and why, where the command says so or the file does not: then what stands is right.
func (a *holdApply) sign(h, stands *hold) {
	switch {
	case a.byGiven:
		h.By = a.record.By
	case h.By == "" && stands != nil:
		h.By = stands.By
	case h.By == "":
		h.By = a.record.By
	}
	if h.Reason = cmp.Or(a.record.Reason, h.Reason); h.Reason == "" && stands != nil {
		h.Reason = stands.Reason
	}
}

// parseHold reads a line of a file.
func parseHold(text []byte) (h hold, err error) {
	lines := json.NewDecoder(bytes.NewReader(text))
	lines.DisallowUnknownFields()
	if err := lines.Decode(&h); err != nil {
		return h, fmt.Errorf("is no hold: %w", textfile.PlainJSON(err))
	}
	if lines.More() {
		return h, errors.New("is more than one object")
	}
	kinds := []string{"BLOCKED", "PAUSED", "POOL_PAUSED", "SOURCE_PAUSED", "COLLECTOR_DRAINED"}
	switch {
	case !slices.Contains(kinds, h.Kind):
		return h, fmt.Errorf("kind is %q; it must be one of %s", h.Kind, kinds)
	case len(h.Labels) > 0 && h.Kind != "COLLECTOR_DRAINED":
		return h, fmt.Errorf("%s is of a name, not of labels", h.Kind)
	case (h.Name == "") == (len(h.Labels) == 0):
		return h, fmt.Errorf("%s is of nothing, or of a name and labels", h.Kind)
	}
	if h.Kind == "BLOCKED" || h.Kind == "PAUSED" {
		h.Name = canonical.QueueName(h.Name)
	}
	return h, nil
}

// beside is what becomes of a hold, where stands is of the same; nil: nothing is.
func (h *hold) beside(stands *hold, now time.Time) string {
	switch {
	case !h.Until.IsZero() && !h.Until.After(now):
		return cli.ResultOver
	case stands == nil:
		return cli.ResultCreated
	case stands.Until.IsZero() && !h.Until.IsZero() || !h.Until.IsZero() && stands.Until.After(h.Until):
		return cli.ResultKept
	case stands.Until.Equal(h.Until) && stands.Reason == h.Reason && stands.By == h.By:
		return cli.ResultUnchanged
	}
	return cli.ResultUpdated
}

// errNoSource says that a pause is of a source that is not registered.
var errNoSource = errors.New("source not found; `waggle source import` registers sources")

// holdIt makes the call that a hold is.
func holdIt(ctx context.Context, c *client.Client, h *hold) (err error) {
	until := h.gate().GetUntil()
	switch h.Kind {
	case "BLOCKED":
		_, err = c.Queues.BlockQueue(ctx, &pb.BlockQueueRequest{Name: h.Name, Until: until, By: h.By, Reason: h.Reason})
	case "PAUSED":
		_, err = c.Queues.PauseQueue(ctx, &pb.PauseQueueRequest{Name: h.Name, Until: until, By: h.By, Reason: h.Reason})
	case "POOL_PAUSED":
		_, err = c.Admin.PausePool(ctx, &pb.PausePoolRequest{Name: h.Name, Until: until, By: h.By, Reason: h.Reason})
	case "COLLECTOR_DRAINED":
		_, err = c.Admin.DrainCollectors(ctx, &pb.DrainCollectorsRequest{CollectorId: h.Name, Labels: h.Labels, Until: until, By: h.By, Reason: h.Reason})
	default:
		var reply *pb.PauseSourcesResponse
		reply, err = c.Sources.PauseSources(ctx, &pb.PauseSourcesRequest{Ids: []string{h.Name}, Until: until, By: h.By, Reason: h.Reason})
		if len(reply.GetMissingIds()) > 0 {
			err = errNoSource
		}
	}
	return err
}

// showHolds writes what became of holds, and fails where some were refused.
func showHolds(c *client.Client, changes []*holdChange, dryRun bool) error {
	counts := map[string]int{}
	rows := human.NewTable("RESULT", "KIND", "OF", "HELD")
	for _, change := range changes {
		counts[change.result]++
		text := describe.Gate(c.Now, change.hold.gate())
		switch {
		case change.err != "":
			text = fmt.Sprintf("line %d: %s", change.line, change.err)
		case change.result == cli.ResultUpdated:
			text += "; it was " + describe.Gate(c.Now, change.was.gate())
		case change.result == cli.ResultOver:
			text = "ended " + human.Since(c.Now, change.hold.gate().GetUntil())
		case change.result == cli.ResultKept:
			text = describe.Gate(c.Now, change.was.gate())
		}
		if change.result != cli.ResultUnchanged {
			rows.Row(change.result, change.hold.Kind, change.hold.of(), text)
		}
	}
	refused := counts[cli.ResultInvalid] + counts[cli.ResultRefused]
	if c.JSON {
		if err := holdsJSON(c, changes, counts); err != nil {
			return err
		}
	} else {
		verb := ""
		if dryRun {
			verb = "would be "
			fmt.Fprintln(c.Out, "nothing is changed; this is what would become of the holds")
		}
		rows.Write(c.Out, "")
		fmt.Fprintf(c.Out, "%s: %s%s created, %s updated, %s unchanged, %s kept, %s over, %s refused\n", human.Plural(len(changes), "hold"), verb,
			human.Count(counts[cli.ResultCreated]), human.Count(counts[cli.ResultUpdated]), human.Count(counts[cli.ResultUnchanged]), human.Count(counts[cli.ResultKept]), human.Count(counts[cli.ResultOver]), human.Count(refused))
	}
	if refused > 0 {
		return cli.ErrReported
	}
	return nil
}

func holdsJSON(c *client.Client, changes []*holdChange, counts map[string]int) error {
	type result struct {
		Line   int    `json:"line"`
		Result string `json:"result"`
		Error  string `json:"error,omitempty"`
		Hold   hold   `json:"hold"`
	}
	results := []result{}
	for _, change := range changes {
		results = append(results, result{change.line, change.result, change.err, change.hold})
	}
	return client.WriteJSON(c.Out, map[string]any{
		"created": counts[cli.ResultCreated], "updated": counts[cli.ResultUpdated], "unchanged": counts[cli.ResultUnchanged], "kept": counts[cli.ResultKept],
		"over": counts[cli.ResultOver], "refused": counts[cli.ResultInvalid] + counts[cli.ResultRefused], "holds": results,
	})
}
