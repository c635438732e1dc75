// Package audit has the command that lists what operators changed.
package audit

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// New makes the commands.
func New(o *client.Options) *cobra.Command {
	return o.Group(&cobra.Command{Use: "audit", Short: "List what operators changed"}, newList(o))
}

func newList(o *client.Options) *cobra.Command {
	request, verbose := &pb.ListAuditEntriesRequest{}, false
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what operators changed, newest first",
		Long: `List what operators changed, newest first: when, who, which call on what, and why. The store keeps the newest
10,000 changes. --verbose shows from where, and what was there before and after.`,
		Example: `  waggle audit list --limit 20
  waggle audit list --by token:ada --verbose`,
	}
	cmd.Flags().StringVar(&request.By, "by", "", "only changes by this `identity`, as token:ada")
	cmd.Flags().BoolVar(&verbose, "verbose", false, "show each with what it changed")
	return o.List(cmd, func(ctx context.Context, c *client.Client, part client.Part) error {
		reply, err := client.ReadPart(ctx, part, c.Admin.ListAuditEntries, request)
		return c.ShowList(part, reply, err, func() {
			entries := reply.GetEntries()
			none := "no changes by operators"
			if request.GetBy() != "" {
				none = "no changes by " + human.Plain(request.GetBy())
			}
			if verbose && len(entries) > 0 {
				writeSheets(c.Out, entries)
				return
			}
			writeTable(c.Out, entries, none)
		})
	})
}

func writeTable(out io.Writer, entries []*pb.AuditEntry, none string) {
	t := human.NewTable("TIME", "BY^10", "WHAT~20", "REASON/1~10")
	for _, e := range entries {
		t.Row(human.Instant(e.GetTime()), e.GetBy(), what(e), e.GetReason())
	}
	t.Write(out, none)
}

func what(e *pb.AuditEntry) string { return strings.TrimSpace(e.GetMethod() + " " + e.GetTarget()) }

// writeSheets writes each entry with all it has.
func writeSheets(out io.Writer, entries []*pb.AuditEntry) {
	for i, e := range entries {
		if i > 0 {
			fmt.Fprintln(out)
		}
		by := e.GetBy()
		if said := e.GetSaid(); said != "" && said != by {
			by += ", who wrote " + said
		}
		var sh human.Sheet
		sh.Line("Time", human.Instant(e.GetTime()))
		sh.Line("By", by)
		sh.Line("From", e.GetFrom())
		sh.Line("What", what(e))
		sh.Line("Before", e.GetBefore())
		sh.Line("After", e.GetAfter())
		sh.Line("Reason", e.GetReason())
		sh.Write(out)
	}
}
