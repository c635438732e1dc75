package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newCollectorDrain(o *clientOptions) *cobra.Command {
	request := &pb.DrainCollectorsRequest{}
	var record recordFlags
	cmd := &cobra.Command{
		Use:   "drain [ID]",
		Short: "Hand out nothing to collectors, also when they come later; what they hold they finish",
		Long: `Hand out nothing to the collector with this id, or to those with all of these labels,
also when they come later and after they are restarted. What they hold they finish: they
are empty when waggle collector list shows 0 leases for them. It shows the labels that
they have, too. Draining again by the same id or labels replaces who, why and until when,
and says what it replaced.
With --dry-run it says which collectors that are known it would be.

A drain stands until waggle collector resume, by the same id or labels, or its --until.`,
		Example: `  waggle collector drain paris-1 --until 2h --reason 'new image'
  waggle collector drain --label region=eu --label disk=ssd`,
		Args: atMostOne,
	}
	pairsVar(cmd.Flags(), &request.Labels, "label", "the collectors with this label; of several, with all of them")
	record.registerUntil(cmd, o.console, "resume by itself")
	cmd.Flags().BoolVar(&request.ValidateOnly, "dry-run", false, "change nothing; say which collectors would be drained")
	cmd.RunE = o.call(func(ctx context.Context, c *client, args []string) error {
		var err error
		if request.CollectorId, err = chosenCollector(args, request.GetLabels()); err != nil {
			return err
		}
		request.Until, request.By, request.Reason = record.until, record.by, record.reason
		reply, err := c.admin.DrainCollectors(ctx, request)
		if err == nil && reply.GetMatched() == 0 {
			kept := "; the drain is kept for those that come"
			if request.GetValidateOnly() {
				kept = ""
			}
			c.note("no collector %s has been heard of in the last 24 h%s", plain(or(request.GetCollectorId(), "with "+pairs(request.GetLabels()))), kept)
		}
		c.noteReplaced(or(request.GetCollectorId(), pairs(request.GetLabels())), reply.GetReplaced(), request.GetValidateOnly())
		return c.show(reply, err, func() {
			if request.GetValidateOnly() {
				writeSample(c.out, plural(reply.GetMatched(), "collector")+" would be drained", reply.GetSampleIds(), int(reply.GetMatched()))
				return
			}
			writeDrains(c.out, c.now, []*pb.Drain{reply.GetDrain()})
		})
	})
	return cmd
}

func newCollectorResume(o *clientOptions) *cobra.Command {
	request := &pb.ResumeCollectorsRequest{}
	var record recordFlags
	cmd := &cobra.Command{
		Use:   "resume [ID]",
		Short: "End a drain, named as it was made: by the same id, or by the same labels",
		Long: `End a drain, named as it was made: by the same id, or by the same labels, no more and no
fewer. waggle collector list --drains shows the drains. Collectors hear of it within 5 s.`,
		Example: `  waggle collector resume paris-1
  waggle collector resume --label region=eu --label disk=ssd`,
		Args: atMostOne,
	}
	pairsVar(cmd.Flags(), &request.Labels, "label", "the drain by this label; of several, by all of them")
	record.register(cmd, o.console)
	cmd.RunE = o.call(func(ctx context.Context, c *client, args []string) error {
		var err error
		if request.CollectorId, err = chosenCollector(args, request.GetLabels()); err != nil {
			return err
		}
		request.By, request.Reason = record.by, record.reason
		reply, err := c.admin.ResumeCollectors(ctx, request)
		return c.show(reply, err, func() {
			who := plain(or(request.GetCollectorId(), pairs(request.GetLabels())))
			if reply.GetChanged() {
				fmt.Fprintf(c.out, "%s: resumed\n", who)
			} else {
				fmt.Fprintf(c.out, "%s was not drained; nothing changed\n", who)
			}
			if reply.GetDrained() != nil {
				fmt.Fprintf(c.out, "its labels drain it all the same: %s\n", plain(gateText(c.now, reply.GetDrained())))
			}
		})
	})
	return cmd
}

// chosenCollector is the id that a command names, or none where it names labels.
func chosenCollector(args []string, labels map[string]string) (string, error) {
	switch {
	case len(args) > 0 && len(labels) > 0:
		return "", usagef("say an id or --label, not both")
	case len(args) > 0:
		return args[0], nil
	case len(labels) == 0:
		return "", usagef("which collectors? say an id or --label")
	}
	return "", nil
}

func writeDrains(out io.Writer, now time.Time, drains []*pb.Drain) {
	t := newTable("COLLECTORS", "DRAINED")
	for _, d := range drains {
		t.row(or(d.GetCollectorId(), pairs(d.GetLabels())), gateText(now, d.GetGate()))
	}
	t.write(out, "no drains: every collector may fetch")
}
