package client

import (
	"cmp"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// NoteReplaced says which pause, block or drain was there before, of which nothing is
// left: it may have been another person's, for longer. what names what it is of; dryRun:
// it is there still.
func (c *Client) NoteReplaced(what string, replaced *pb.Gate, dryRun bool) {
	if replaced == nil {
		return
	}
	kind := map[pb.GateKind]string{pb.GateKind_GATE_KIND_BLOCKED: "block", pb.GateKind_GATE_KIND_COLLECTOR_DRAINED: "drain"}[replaced.GetKind()]
	end := ""
	if replaced.GetUntil() == nil {
		end = ", without an end"
	}
	did := "this replaced the %s of %s that stood: %s%s"
	if dryRun {
		did = "this would replace the %s of %s that stands: %s%s"
	}
	c.Note(did, cmp.Or(kind, "pause"), human.Plain(what), human.Plain(describe.Gate(c.Now, replaced)), end)
}
