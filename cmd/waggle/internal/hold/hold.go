// Package hold has the commands that list what operators hold, and keep it in a file.
package hold

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

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
		Long: `List what operators hold, as 'hold export' has it: blocks and pauses of queues, pauses
of pools and sources, drains of collectors. What rules pause and deny is the rules':
'waggle queue rule list' has it. It reads the list of all queues to find those that
are held.`,
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
