package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"
)

func newHoldList(o *clientOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List what operators hold: queues, pools, sources, collectors",
		Long: `List what operators hold, as 'hold export' has it: blocks and pauses of queues, pauses
of pools and sources, drains of collectors. What rules pause and deny is the rules':
'waggle queue rule list' has it. It reads the list of all queues to find those that
are held.`,
		Args: exactly(),
		RunE: o.call(func(ctx context.Context, c *client, _ []string) error {
			holds, err := c.holds(ctx)
			if err != nil {
				return err
			}
			if c.json {
				return listHoldsJSON(c.out, holds)
			}
			writeHolds(c.out, c.now, holds)
			return nil
		}),
	}
}

func writeHolds(out io.Writer, now time.Time, holds []*hold) {
	t := newTable("KIND", "OF", "UNTIL", "BY", "SINCE", "REASON")
	for _, h := range holds {
		gate := h.gate()
		until := "lifted"
		if gate.GetUntil() != nil {
			until = since(now, gate.GetUntil())
		}
		t.row(h.Kind, h.of(), until, h.By, since(now, h.since), brief(h.Reason, messageWidth))
	}
	t.write(out, "nothing is held by an operator")
}

// listHoldsJSON writes holds as they stand in a file, and since when.
func listHoldsJSON(out io.Writer, holds []*hold) error {
	type listed struct {
		*hold

		Since time.Time `json:"since,omitzero"`
	}
	list := []listed{}
	for _, h := range holds {
		item := listed{hold: h}
		if h.since != nil {
			item.Since = h.since.AsTime()
		}
		list = append(list, item)
	}
	return writeJSON(out, map[string]any{"holds": list})
}
