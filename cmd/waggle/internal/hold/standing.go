package hold

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

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

	since *timestamppb.Timestamp // when it was made; not in a file
}

// key is what a hold is of: another one with the same key takes its place.
func (h *hold) key() string { return h.Kind + " " + h.of() }

func (h *hold) of() string { return cmp.Or(h.Name, human.Pairs(h.Labels)) }

// gate is the hold as it is shown.
func (h *hold) gate() *pb.Gate {
	g := &pb.Gate{Kind: pb.GateKind(pb.GateKind_value["GATE_KIND_"+h.Kind]), By: h.By, Reason: h.Reason}
	if !h.Until.IsZero() {
		g.Until = timestamppb.New(h.Until)
	}
	return g
}

// holds lists what operators hold: pools, collectors, queues, sources.
func holds(ctx context.Context, c *client.Client) (holds []*hold, err error) {
	add := func(gate *pb.Gate, name string, labels map[string]string) {
		if gate == nil {
			return
		}
		h := &hold{Kind: human.Word(gate.GetKind(), "GATE_KIND_"), Name: name, Labels: labels, By: gate.GetBy(), Reason: gate.GetReason(), since: gate.GetTime()}
		if gate.GetUntil() != nil {
			h.Until = gate.GetUntil().AsTime()
		}
		holds = append(holds, h)
	}
	pools, _, err := client.ReadPages(0, func(size int32, token string) (*pb.ListPoolsResponse, error) {
		return c.Admin.ListPools(ctx, &pb.ListPoolsRequest{PageSize: size, PageToken: token})
	}, (*pb.ListPoolsResponse).GetPools)
	if err != nil {
		return nil, err
	}
	for _, pool := range pools {
		add(pool.GetPaused(), pool.GetName(), nil)
	}
	drains, _, err := client.ReadPages(0, func(size int32, token string) (*pb.ListDrainsResponse, error) {
		return c.Admin.ListDrains(ctx, &pb.ListDrainsRequest{PageSize: size, PageToken: token})
	}, (*pb.ListDrainsResponse).GetDrains)
	if err != nil {
		return nil, err
	}
	for _, drain := range drains {
		add(drain.GetGate(), drain.GetCollectorId(), drain.GetLabels())
	}
	queues, _, err := client.ReadPages(0, func(size int32, token string) (*pb.ListQueuesResponse, error) {
		return c.Queues.ListQueues(ctx, &pb.ListQueuesRequest{PageSize: size, PageToken: token})
	}, heldQueues)
	if err != nil {
		return nil, err
	}
	for _, queue := range queues {
		for _, gate := range slices.DeleteFunc(queue.GetGates(), isNoHold) {
			add(gate, queue.GetName(), nil)
		}
	}
	sources, _, err := client.ReadPages(0, func(size int32, token string) (*pb.ListSourcesResponse, error) {
		return c.Sources.ListSources(ctx, &pb.ListSourcesRequest{
			Health: []pb.SourceHealth{pb.SourceHealth_SOURCE_HEALTH_PAUSED}, PageSize: size, PageToken: token,
		})
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
