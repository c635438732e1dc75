// Package collector has the commands that list collectors and drain them.
package collector

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// New makes the commands.
func New(o *client.Options) *cobra.Command {
	return o.Group(&cobra.Command{Use: "collector", Short: "List, drain and resume collectors"},
		newCollectorList(o), newCollectorDrain(o), newCollectorResume(o))
}

func newCollectorList(o *client.Options) *cobra.Command {
	request := &pb.ListCollectorsRequest{}
	drains := false
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List collectors of the last 24 h",
		Long: `List the collectors heard from in the last 24 h. One that stopped in good order is ENDED.
One that was not heard from for 45 s is GONE; its leases end each at its own deadline.
POOLS are those that its heartbeats name, ONLY the sources and queues that it narrows
them to.`,
	}
	cli.EnumsVar(cmd.Flags(), &request.States, "state", "only collectors in this `state`", "COLLECTOR_STATE_", pb.CollectorState_value)
	cli.PairsVar(cmd.Flags(), &request.Labels, "label", "only collectors with this label; of several, with all of them")
	cmd.Flags().BoolVar(&drains, "drains", false, "list the drains instead, also those of collectors yet to come")
	return o.List(cmd, func(ctx context.Context, c *client.Client, limit int) (proto.Message, bool, func(), error) {
		if drains && len(request.GetStates())+len(request.GetLabels()) > 0 {
			return nil, false, nil, cli.Usagef("--drains lists no collectors; leave --state and --label out")
		}
		if drains {
			all, more, err := client.ReadPages(ctx, limit, c.Admin.ListDrains, &pb.ListDrainsRequest{}, (*pb.ListDrainsResponse).GetDrains)
			return &pb.ListDrainsResponse{Drains: all}, more, func() { writeDrains(c.Out, c.Now, all) }, err
		}
		all, more, err := client.ReadPages(ctx, limit, c.Admin.ListCollectors, request, (*pb.ListCollectorsResponse).GetCollectors)
		return &pb.ListCollectorsResponse{Collectors: all}, more, func() {
			none := "no collectors; `waggle collect` starts one"
			if len(request.GetStates())+len(request.GetLabels()) > 0 {
				none = "no such collectors"
			}
			writeCollectors(c.Out, c.Now, all, none)
		}, err
	})
}

func writeCollectors(out io.Writer, now time.Time, collectors []*pb.Collector, none string) {
	t := human.NewTable("COLLECTOR~24", "STATE", ">LEASES", ">SLOTS/5", "POOLS/6~10", "ONLY/4~10", ">LAST BEAT", "STARTED/3", "HOST/2~10", "VERSION/1~10", "LABELS/7~10", "DRAINED/8~16")
	for _, k := range collectors {
		info := k.GetInfo()
		var only human.Phrases
		only.AddIf(len(info.GetSources()) > 0, "source %s", strings.Join(info.GetSources(), " "))
		only.AddIf(len(info.GetQueues()) > 0, "queue %s", strings.Join(info.GetQueues(), " "))
		t.Row(info.GetId(), human.Word(k.GetState(), "COLLECTOR_STATE_"), human.Count(k.GetLeases()), human.Count(info.GetSlots()), strings.Join(info.GetPools(), " "),
			only.Text(), human.Span(k.GetHeartbeatAge().AsDuration())+" ago", human.Since(now, k.GetStartTime()), info.GetHostname(), info.GetVersion(),
			human.Pairs(info.GetLabels()), describe.Gate(now, k.GetDrained()))
	}
	t.Write(out, none)
}

func newCollectorDrain(o *client.Options) *cobra.Command {
	request := &pb.DrainCollectorsRequest{}
	var record cli.Record
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
		Args: cli.AtMostOne,
	}
	cli.PairsVar(cmd.Flags(), &request.Labels, "label", "the collectors with this label; of several, with all of them")
	record.RegisterUntil(cmd, o.Console, "resume by itself")
	cmd.Flags().BoolVar(&request.ValidateOnly, "dry-run", false, "change nothing; say which collectors would be drained")
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, args []string) error {
		var err error
		if request.CollectorId, err = chosenCollector(args, request.GetLabels()); err != nil {
			return err
		}
		request.Until, request.By, request.Reason = record.Until, record.By, record.Reason
		reply, err := c.Admin.DrainCollectors(ctx, request)
		if err == nil && reply.GetMatched() == 0 {
			kept := "; the drain is kept for those that come"
			if request.GetValidateOnly() {
				kept = ""
			}
			c.Note("no collector %s has been heard of in the last 24 h%s", human.Plain(cmp.Or(request.GetCollectorId(), "with "+human.Pairs(request.GetLabels()))), kept)
		}
		c.NoteReplaced(cmp.Or(request.GetCollectorId(), human.Pairs(request.GetLabels())), reply.GetReplaced(), request.GetValidateOnly())
		return c.Show(reply, err, func() {
			if request.GetValidateOnly() {
				client.WriteSample(c.Out, human.Plural(reply.GetMatched(), "collector")+" would be drained", reply.GetSampleIds(), int(reply.GetMatched()))
				return
			}
			writeDrains(c.Out, c.Now, []*pb.Drain{reply.GetDrain()})
		})
	})
	return cmd
}

func newCollectorResume(o *client.Options) *cobra.Command {
	request := &pb.ResumeCollectorsRequest{}
	var record cli.Record
	cmd := &cobra.Command{
		Use:   "resume [ID]",
		Short: "End a drain, named as it was made: by the same id, or by the same labels",
		Long: `End a drain, named as it was made: by the same id, or by the same labels, no more and no
fewer. waggle collector list --drains shows the drains. Collectors hear of it within 5 s.`,
		Example: `  waggle collector resume paris-1
  waggle collector resume --label region=eu --label disk=ssd`,
		Args: cli.AtMostOne,
	}
	cli.PairsVar(cmd.Flags(), &request.Labels, "label", "the drain by this label; of several, by all of them")
	record.Register(cmd, o.Console)
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, args []string) error {
		var err error
		if request.CollectorId, err = chosenCollector(args, request.GetLabels()); err != nil {
			return err
		}
		request.By, request.Reason = record.By, record.Reason
		reply, err := c.Admin.ResumeCollectors(ctx, request)
		return c.Show(reply, err, func() {
			who := human.Plain(cmp.Or(request.GetCollectorId(), human.Pairs(request.GetLabels())))
			if reply.GetChanged() {
				fmt.Fprintf(c.Out, "%s: resumed\n", who)
			} else {
				fmt.Fprintf(c.Out, "%s was not drained; nothing changed\n", who)
			}
			if reply.GetDrained() != nil {
				fmt.Fprintf(c.Out, "its labels drain it all the same: %s\n", human.Plain(describe.Gate(c.Now, reply.GetDrained())))
			}
		})
	})
	return cmd
}

// chosenCollector is the id that a command names, or none where it names labels.
func chosenCollector(args []string, labels map[string]string) (string, error) {
	switch {
	case len(args) > 0 && len(labels) > 0:
		return "", cli.Usagef("say an id or --label, not both")
	case len(args) > 0:
		return args[0], nil
	case len(labels) == 0:
		return "", cli.Usagef("which collectors? say an id or --label")
	}
	return "", nil
}

func writeDrains(out io.Writer, now time.Time, drains []*pb.Drain) {
	t := human.NewTable("COLLECTORS", "DRAINED~24")
	for _, d := range drains {
		t.Row(cmp.Or(d.GetCollectorId(), human.Pairs(d.GetLabels())), describe.Gate(now, d.GetGate()))
	}
	t.Write(out, "no drains: every collector may fetch")
}
