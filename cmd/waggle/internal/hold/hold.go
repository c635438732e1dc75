// Package hold has the commands that list what operators hold, and keep it in a file.
package hold

import (
	"bufio"
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
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/textfile"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// New makes the commands.
func New(o *client.Options) *cobra.Command {
	return o.Group(&cobra.Command{
		Use:   "hold",
		Short: "List what operators block, pause and drain, keep it in a file, and bring it back",
		Long: `List what operators hold, keep it in a file, and bring it back: blocks and pauses of queues,
pauses of pools and sources, drains of collectors. What rules pause and deny is the
rules': 'waggle queue rule export' has it.`,
	}, newHoldList(o), newHoldExport(o), newHoldApply(o))
}

func newHoldExport(o *client.Options) *cobra.Command {
	return &cobra.Command{
		Use:   "export",
		Short: "Write what operators hold as 'hold apply' reads it",
		Long: `Write what operators hold to standard output, a JSON object a line, as 'hold apply'
reads it: its kind, of what, until when, who did it and why. It reads the list of
all queues to find those that are held.`,
		Example: "  waggle hold export > holds.jsonl",
		Args:    cli.Exactly(),
		RunE: o.Call(func(ctx context.Context, c *client.Client, _ []string) error {
			holds, err := holds(ctx, c)
			if err != nil {
				return err
			}
			out := bufio.NewWriter(c.Out)
			lines := json.NewEncoder(out)
			lines.SetEscapeHTML(false)
			for _, h := range holds {
				h.Since = time.Time{}
				if err := lines.Encode(h); err != nil {
					return err
				}
			}
			if len(holds) == 0 {
				c.Note("nothing is held by an operator: nothing is exported")
			}
			return out.Flush()
		}),
	}
}

func newHoldList(o *client.Options) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List what operators hold: queues, pools, sources, collectors",
		Long: `List what operators hold. It reads the list of all queues to find those that are held.
What rules pause and deny 'waggle queue rule list' has.`,
		Args: cli.Exactly(),
		RunE: o.Call(func(ctx context.Context, c *client.Client, _ []string) error {
			holds, err := holds(ctx, c)
			if err != nil {
				return err
			}
			if c.JSON {
				return client.WriteJSON(c.Out, map[string]any{"holds": append([]*hold{}, holds...)})
			}
			writeHolds(c.Out, c.Now, holds)
			return nil
		}),
	}
}

func writeHolds(out io.Writer, now time.Time, holds []*hold) {
	t := human.NewTable("KIND", "OF", "UNTIL", "BY", "SINCE", "REASON")
	for _, h := range holds {
		until := "lifted"
		if !h.Until.IsZero() {
			until = human.Since(now, timestamp(h.Until))
		}
		t.Row(h.Kind, h.of(), until, h.By, human.Since(now, timestamp(h.Since)), human.Brief(h.Reason, human.MessageWidth))
	}
	t.Write(out, "nothing is held by an operator")
}

// hold is what an operator holds, as a line of a file.
type hold struct {
	// Kind is that of its gate: BLOCKED and PAUSED of a queue, POOL_PAUSED, SOURCE_PAUSED or COLLECTOR_DRAINED.
	Kind string `json:"kind"`
	// Name of the queue, pool, source or collector; empty for a drain by Labels.
	Name   string            `json:"name,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Until  time.Time         `json:"until,omitzero"` // zero: until it is lifted
	By     string            `json:"by,omitempty"`
	Reason string            `json:"reason,omitempty"`
	Since  time.Time         `json:"since,omitzero"` // when it was made; not in a file
}

// key is what a hold is of: another one with the same key takes its place.
func (h *hold) key() string { return h.Kind + " " + h.of() }

func (h *hold) of() string { return cmp.Or(h.Name, human.Pairs(h.Labels)) }

// gate is the hold as it is shown.
func (h *hold) gate() *pb.Gate {
	return &pb.Gate{Kind: pb.GateKind(pb.GateKind_value["GATE_KIND_"+h.Kind]), By: h.By, Reason: h.Reason, Until: timestamp(h.Until)}
}

func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// holds lists what operators hold: pools, collectors, queues, sources.
func holds(ctx context.Context, c *client.Client) (holds []*hold, err error) {
	add := func(gate *pb.Gate, name string, labels map[string]string) {
		if gate == nil {
			return
		}
		h := &hold{Kind: human.Word(gate.GetKind(), "GATE_KIND_"), Name: name, Labels: labels, By: gate.GetBy(), Reason: gate.GetReason()}
		if gate.GetTime() != nil {
			h.Since = gate.GetTime().AsTime()
		}
		if gate.GetUntil() != nil {
			h.Until = gate.GetUntil().AsTime()
		}
		holds = append(holds, h)
	}
	pools, _, err := client.ReadPages(ctx, 0, c.Admin.ListPools, &pb.ListPoolsRequest{}, (*pb.ListPoolsResponse).GetPools)
	if err != nil {
		return nil, err
	}
	for _, pool := range pools {
		add(pool.GetPaused(), pool.GetName(), nil)
	}
	drains, _, err := client.ReadPages(ctx, 0, c.Admin.ListDrains, &pb.ListDrainsRequest{}, (*pb.ListDrainsResponse).GetDrains)
	if err != nil {
		return nil, err
	}
	for _, drain := range drains {
		add(drain.GetGate(), drain.GetCollectorId(), drain.GetLabels())
	}
	queues, _, err := client.ReadPages(ctx, 0, c.Queues.ListQueues, &pb.ListQueuesRequest{}, heldQueues)
	if err != nil {
		return nil, err
	}
	for _, queue := range queues {
		for _, gate := range slices.DeleteFunc(queue.GetGates(), isNoHold) {
			add(gate, queue.GetName(), nil)
		}
	}
	sources, _, err := client.ReadPages(ctx, 0, c.Sources.ListSources, &pb.ListSourcesRequest{
		Health: []pb.SourceHealth{pb.SourceHealth_SOURCE_HEALTH_PAUSED},
	}, (*pb.ListSourcesResponse).GetSources)
	for _, source := range sources {
		add(source.GetStatus().GetPaused(), source.GetId(), nil)
	}
	return holds, err
}

// isNoHold reports whether a gate of a queue is closed by a rule or by Waggle itself.
func isNoHold(gate *pb.Gate) bool {
	return gate.GetKind() != pb.GateKind_GATE_KIND_BLOCKED && gate.GetKind() != pb.GateKind_GATE_KIND_PAUSED
}

func heldQueues(p *pb.ListQueuesResponse) []*pb.Queue {
	return slices.DeleteFunc(p.GetQueues(), func(q *pb.Queue) bool {
		return !slices.ContainsFunc(q.GetGates(), func(g *pb.Gate) bool { return !isNoHold(g) })
	})
}

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
	var changes []*holdChange
	if err := cli.EachObject(ctx, name, stdin, func(object textfile.Entry) {
		change, err := &holdChange{line: object.Line}, object.Err
		if err == nil {
			change.hold, err = parseHold(object.Text)
		}
		if err != nil {
			change.result, change.err = cli.ResultInvalid, err.Error()
		}
		changes = append(changes, change)
	}); err != nil {
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
	type result struct {
		Line   int    `json:"line"`
		Result string `json:"result"`
		Error  string `json:"error,omitempty"`
		Hold   hold   `json:"hold"`
	}
	all := []string{cli.ResultCreated, cli.ResultUpdated, cli.ResultUnchanged, cli.ResultKept, cli.ResultOver, cli.ResultRefused}
	counts, results := map[string]int{}, []result{}
	for _, name := range all {
		counts[name] = 0
	}
	rows := human.NewTable("RESULT", "KIND", "OF", "HELD")
	for _, change := range changes {
		results = append(results, result{change.line, change.result, change.err, change.hold})
		text, counted := describe.Gate(c.Now, change.hold.gate()), change.result
		switch {
		case change.err != "":
			text, counted = fmt.Sprintf("line %d: %s", change.line, change.err), cli.ResultRefused // also what is invalid
		case change.result == cli.ResultUpdated:
			text += "; it was " + describe.Gate(c.Now, change.was.gate())
		case change.result == cli.ResultOver:
			text = "ended " + human.Since(c.Now, change.hold.gate().GetUntil())
		case change.result == cli.ResultKept:
			text = describe.Gate(c.Now, change.was.gate())
		}
		counts[counted]++
		if change.result != cli.ResultUnchanged {
			rows.Row(change.result, change.hold.Kind, change.hold.of(), text)
		}
	}
	err := c.ShowResults("hold", dryRun, counts, all, results, func() { rows.Write(c.Out, "") })
	if err == nil && counts[cli.ResultRefused] > 0 {
		err = cli.ErrReported
	}
	return err
}
