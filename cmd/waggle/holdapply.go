package main

import (
	"bytes"
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

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/textfile"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// resultOver is the result of a hold of a file that has ended by itself.
const resultOver = "OVER"

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
	record  recordFlags
	byGiven bool
	dryRun  bool
}

func newHoldApply(o *clientOptions) *cobra.Command {
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
		Args:    exactly("the FILE (or - for standard input)"),
	}
	a.record.register(cmd, o.console)
	cmd.Flags().BoolVar(&a.dryRun, "dry-run", false, "change nothing; say what would become of each")
	cmd.RunE = o.call(func(ctx context.Context, c *client, args []string) error {
		a.byGiven = cmd.Flags().Changed("by")
		return a.run(ctx, c, args[0], cmd.InOrStdin())
	})
	return cmd
}

func (a *holdApply) run(ctx context.Context, c *client, name string, stdin io.Reader) error {
	in, err := openInput(ctx, name, stdin)
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	defer in.close()
	changes, err := readHolds(ctx, in)
	if err != nil {
		return err
	}
	standing, err := c.holds(ctx)
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
		change.result = change.hold.beside(change.was, c.now)
		if change.result != resultCreated && change.result != resultUpdated {
			continue
		}
		if !a.dryRun {
			switch err := c.holdIt(ctx, &change.hold); {
			case err != nil && change.refuse(err):
				continue
			case err != nil && done > 0:
				c.note("stopped after %s; the same command again does the rest", plural(done, "hold"))
				return err
			case err != nil:
				return err
			}
			done++
		}
		there[change.hold.key()] = &change.hold
	}
	return c.showHolds(changes, a.dryRun)
}

// readHolds reads all holds of a file.
func readHolds(ctx context.Context, in *input) (changes []*holdChange, err error) {
	err = in.eachObject(ctx, func(object textfile.Entry) {
		change := &holdChange{line: object.Line}
		err := object.Err
		if err == nil {
			change.hold, err = parseHold(object.Text)
		}
		if err != nil {
			change.result, change.err = resultInvalid, err.Error()
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
		h.err = refusalText(err)
	default:
		return false
	}
	h.result = resultRefused
	return true
}

// sign says who holds it and why, where the command says so or the file does not: then
// what stands is right.
func (a *holdApply) sign(h, stands *hold) {
	switch {
	case a.byGiven:
		h.By = a.record.by
	case h.By == "" && stands != nil:
		h.By = stands.By
	case h.By == "":
		h.By = a.record.by
	}
	if h.Reason = or(a.record.reason, h.Reason); h.Reason == "" && stands != nil {
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
		h.Name = queueName(h.Name)
	}
	return h, nil
}

// beside is what becomes of a hold, where stands is of the same; nil: nothing is.
func (h *hold) beside(stands *hold, now time.Time) string {
	switch {
	case !h.Until.IsZero() && !h.Until.After(now):
		return resultOver
	case stands == nil:
		return resultCreated
	case stands.Until.IsZero() && !h.Until.IsZero() || !h.Until.IsZero() && stands.Until.After(h.Until):
		return resultKept
	case stands.Until.Equal(h.Until) && stands.Reason == h.Reason && stands.By == h.By:
		return resultUnchanged
	}
	return resultUpdated
}

// errNoSource says that a pause is of a source that is not registered.
var errNoSource = errors.New("source not found; `waggle source import` registers sources")

// holdIt makes the call that a hold is.
func (c *client) holdIt(ctx context.Context, h *hold) (err error) {
	until := h.gate().GetUntil()
	switch h.Kind {
	case "BLOCKED":
		_, err = c.queues.BlockQueue(ctx, &pb.BlockQueueRequest{Name: h.Name, Until: until, By: h.By, Reason: h.Reason})
	case "PAUSED":
		_, err = c.queues.PauseQueue(ctx, &pb.PauseQueueRequest{Name: h.Name, Until: until, By: h.By, Reason: h.Reason})
	case "POOL_PAUSED":
		_, err = c.admin.PausePool(ctx, &pb.PausePoolRequest{Name: h.Name, Until: until, By: h.By, Reason: h.Reason})
	case "COLLECTOR_DRAINED":
		_, err = c.admin.DrainCollectors(ctx, &pb.DrainCollectorsRequest{CollectorId: h.Name, Labels: h.Labels, Until: until, By: h.By, Reason: h.Reason})
	default:
		var reply *pb.PauseSourcesResponse
		reply, err = c.sources.PauseSources(ctx, &pb.PauseSourcesRequest{Ids: []string{h.Name}, Until: until, By: h.By, Reason: h.Reason})
		if len(reply.GetMissingIds()) > 0 {
			err = errNoSource
		}
	}
	return err
}

// showHolds writes what became of holds, and fails where some were refused.
func (c *client) showHolds(changes []*holdChange, dryRun bool) error {
	counts := map[string]int{}
	rows := newTable("RESULT", "KIND", "OF", "HELD")
	for _, change := range changes {
		counts[change.result]++
		text := gateText(c.now, change.hold.gate())
		switch {
		case change.err != "":
			text = fmt.Sprintf("line %d: %s", change.line, change.err)
		case change.result == resultUpdated:
			text += "; it was " + gateText(c.now, change.was.gate())
		case change.result == resultOver:
			text = "ended " + since(c.now, change.hold.gate().GetUntil())
		case change.result == resultKept:
			text = gateText(c.now, change.was.gate())
		}
		if change.result != resultUnchanged {
			rows.row(change.result, change.hold.Kind, change.hold.of(), text)
		}
	}
	refused := counts[resultInvalid] + counts[resultRefused]
	if c.json {
		if err := c.holdsJSON(changes, counts); err != nil {
			return err
		}
	} else {
		verb := ""
		if dryRun {
			verb = "would be "
			fmt.Fprintln(c.out, "nothing is changed; this is what would become of the holds")
		}
		rows.write(c.out, "")
		fmt.Fprintf(c.out, "%s: %s%s created, %s updated, %s unchanged, %s kept, %s over, %s refused\n", plural(len(changes), "hold"), verb,
			count(counts[resultCreated]), count(counts[resultUpdated]), count(counts[resultUnchanged]), count(counts[resultKept]), count(counts[resultOver]), count(refused))
	}
	if refused > 0 {
		return errReported
	}
	return nil
}

func (c *client) holdsJSON(changes []*holdChange, counts map[string]int) error {
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
	return writeJSON(c.out, map[string]any{
		"created": counts[resultCreated], "updated": counts[resultUpdated], "unchanged": counts[resultUnchanged], "kept": counts[resultKept],
		"over": counts[resultOver], "refused": counts[resultInvalid] + counts[resultRefused], "holds": results,
	})
}
