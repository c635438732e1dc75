// Package hold has the commands that list what operators hold, and keep it in a file.
package hold

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
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
				return listHoldsJSON(c.Out, holds)
			}
			writeHolds(c.Out, c.Now, holds)
			return nil
		}),
	}
}

func writeHolds(out io.Writer, now time.Time, holds []*hold) {
	t := human.NewTable("KIND", "OF", "UNTIL", "BY", "SINCE", "REASON")
	for _, h := range holds {
		gate := h.gate()
		until := "lifted"
		if gate.GetUntil() != nil {
			until = human.Since(now, gate.GetUntil())
		}
		t.Row(h.Kind, h.of(), until, h.By, human.Since(now, h.since), human.Brief(h.Reason, human.MessageWidth))
	}
	t.Write(out, "nothing is held by an operator")
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
	return client.WriteJSON(out, map[string]any{"holds": list})
}
