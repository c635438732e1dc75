package main

import (
	"bufio"
	"context"
	"encoding/json"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// hold is what an operator holds, as a line of a file.
type hold struct {
	// Kind is that of its gate: BLOCKED and PAUSED of a queue, POOL_PAUSED, SOURCE_PAUSED
	// or COLLECTOR_DRAINED.
	Kind string `json:"kind"`
	// Name of the queue, pool, source or collector; empty for a drain by Labels.
	Name   string            `json:"name,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Until  time.Time         `json:"until,omitzero"` // zero: until it is lifted
	By     string            `json:"by,omitempty"`
	Reason string            `json:"reason,omitempty"`

	since *timestamppb.Timestamp // when it was made; not in a file
}

// key is what a hold is of: another one with the same key takes its place.
func (h *hold) key() string { return h.Kind + " " + h.of() }

func (h *hold) of() string { return or(h.Name, pairs(h.Labels)) }

// gate is the hold as it is shown.
func (h *hold) gate() *pb.Gate {
	g := &pb.Gate{Kind: pb.GateKind(pb.GateKind_value["GATE_KIND_"+h.Kind]), By: h.By, Reason: h.Reason}
	if !h.Until.IsZero() {
		g.Until = timestamppb.New(h.Until)
	}
	return g
}

func newHold(o *clientOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hold",
		Short: "List what operators block, pause and drain, keep it in a file, and bring it back",
		Long: `List what operators hold, keep it in a file, and bring it back: blocks and pauses of queues,
pauses of pools and sources, drains of collectors. What rules pause and deny is the
rules': 'waggle queue rule export' has it.`,
	}
	o.register(cmd)
	cmd.AddCommand(newHoldList(o), newHoldExport(o), newHoldApply(o))
	return cmd
}

func newHoldExport(o *clientOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "export",
		Short: "Write what operators hold as 'hold apply' reads it",
		Long: `Write what operators hold to standard output, a JSON object a line, as 'hold apply'
reads it: its kind, of what, until when, who did it and why. It reads the list of
all queues to find those that are held.`,
		Example: "  waggle hold export > holds.jsonl",
		Args:    exactly(),
		RunE: o.call(func(ctx context.Context, c *client, _ []string) error {
			holds, err := c.holds(ctx)
			if err != nil {
				return err
			}
			out := bufio.NewWriter(c.out)
			lines := json.NewEncoder(out)
			lines.SetEscapeHTML(false)
			for _, h := range holds {
				if err := lines.Encode(h); err != nil {
					return err
				}
			}
			if len(holds) == 0 {
				c.note("nothing is held by an operator: nothing is exported")
			}
			return out.Flush()
		}),
	}
}

// holds lists what operators hold: pools, collectors, queues, sources.
func (c *client) holds(ctx context.Context) (holds []*hold, err error) {
	add := func(gate *pb.Gate, name string, labels map[string]string) {
		if gate == nil {
			return
		}
		h := &hold{Kind: word(gate.GetKind(), "GATE_KIND_"), Name: name, Labels: labels, By: gate.GetBy(), Reason: gate.GetReason(), since: gate.GetTime()}
		if gate.GetUntil() != nil {
			h.Until = gate.GetUntil().AsTime()
		}
		holds = append(holds, h)
	}
	for _, look := range []func(context.Context, func(*pb.Gate, string, map[string]string)) error{
		c.eachHeldPool, c.eachDrain, c.eachHeldQueue, c.eachPausedSource,
	} {
		if err := look(ctx, add); err != nil {
			return nil, err
		}
	}
	return holds, nil
}

func (c *client) eachHeldPool(ctx context.Context, add func(*pb.Gate, string, map[string]string)) error {
	_, err := readPages(0, func(size int32, token string) (*pb.ListPoolsResponse, error) {
		return c.admin.ListPools(ctx, &pb.ListPoolsRequest{PageSize: size, PageToken: token})
	}, func(p *pb.ListPoolsResponse) int {
		for _, pool := range p.GetPools() {
			add(pool.GetPaused(), pool.GetName(), nil)
		}
		return len(p.GetPools())
	})
	return err
}

func (c *client) eachDrain(ctx context.Context, add func(*pb.Gate, string, map[string]string)) error {
	_, err := readPages(0, func(size int32, token string) (*pb.ListDrainsResponse, error) {
		return c.admin.ListDrains(ctx, &pb.ListDrainsRequest{PageSize: size, PageToken: token})
	}, func(p *pb.ListDrainsResponse) int {
		for _, drain := range p.GetDrains() {
			add(drain.GetGate(), drain.GetCollectorId(), drain.GetLabels())
		}
		return len(p.GetDrains())
	})
	return err
}

// eachHeldQueue leaves out what rules and Waggle itself hold.
func (c *client) eachHeldQueue(ctx context.Context, add func(*pb.Gate, string, map[string]string)) error {
	_, err := readPages(0, func(size int32, token string) (*pb.ListQueuesResponse, error) {
		return c.queues.ListQueues(ctx, &pb.ListQueuesRequest{PageSize: size, PageToken: token})
	}, func(p *pb.ListQueuesResponse) int {
		for _, queue := range p.GetQueues() {
			for _, gate := range queue.GetGates() {
				if gate.GetKind() == pb.GateKind_GATE_KIND_BLOCKED || gate.GetKind() == pb.GateKind_GATE_KIND_PAUSED {
					add(gate, queue.GetName(), nil)
				}
			}
		}
		return len(p.GetQueues())
	})
	return err
}

func (c *client) eachPausedSource(ctx context.Context, add func(*pb.Gate, string, map[string]string)) error {
	request := &pb.ListSourcesRequest{Health: []pb.SourceHealth{pb.SourceHealth_SOURCE_HEALTH_PAUSED}}
	_, err := readPages(0, func(size int32, token string) (*pb.ListSourcesResponse, error) {
		request.PageSize, request.PageToken = size, token
		return c.sources.ListSources(ctx, request)
	}, func(p *pb.ListSourcesResponse) int {
		for _, source := range p.GetSources() {
			add(source.GetStatus().GetPaused(), source.GetId(), nil)
		}
		return len(p.GetSources())
	})
	return err
}
