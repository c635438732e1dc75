// Package hold has the commands that stop handing tasks out, and go on.
package hold

import (
	"context"
	"fmt"
	"io"
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
	return o.Group(&cobra.Command{
		Use: "hold", Short: "Stop handing out tasks, or start again",
		Long: `Stop handing out tasks, or start again: of everything, a pool, sources or queues, or to collectors. A hold has a
target and a name. All holds of a target apply, and lifting one leaves the others. Submits go on; a seed that is due while it is
held is due once after that.`,
		Example: "  waggle hold set --everything --reason 'emergency stop'\n  waggle hold list",
	}, newSet(o), newLift(o), newList(o))
}

func newSet(o *client.Options) *cobra.Command {
	request, lasts := &pb.SetHoldsRequest{}, time.Duration(0)
	var t targets
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Hand out nothing of a target",
		Long: `Stop handing out a target's tasks, or tasks to a collector. When the command returns, no dispatcher hands out
anything against the hold. It stands until waggle hold lift, or its --until.

A hold that stands with the same target and name, and says something else, is refused unless --replace is given: another --name
sets one beside it. --source-prefix and --label hold each source that matches now. Other targets need not be known yet.`,
		Example: `  waggle hold set --queue example.com --for 2h --reason 'they asked'
  waggle hold set --collector-label region=eu --name deploy
  waggle hold set --queue '*.example.com' --effect end-leases`,
	}
	flags := cmd.Flags()
	t.register(cmd)
	flags.StringVar(&request.Name, "name", describe.DefaultHold, "tells holds of one target apart")
	cli.EnumVar(flags, &request.Effect, "effect", "existing leases go on, or end (default stop-grants)", "HOLD_EFFECT_", pb.HoldEffect_value)
	cli.SpanVar(flags, &lasts, "for", "lift it by itself after this long, as 2h or 7d")
	t.bulk.RegisterUntil(cmd, o.Console, "lift it by itself")
	flags.BoolVar(&request.Replace, "replace", false, "take the place of a hold that says something else")
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, _ []string) error {
		request.Until, request.By, request.Reason, request.ValidateOnly = t.bulk.Until, t.bulk.By, t.bulk.Reason, t.bulk.DryRun
		switch {
		case lasts > 0 && request.GetUntil() != nil:
			return cli.Usagef("--for and --until: say one of them")
		case lasts > 0:
			request.Until = human.Timestamp(c.Now.Add(lasts))
		case flags.Changed("for"):
			return cli.Usagef("--for: want more than 0")
		}
		total := &pb.SetHoldsResponse{}
		err := t.run(func() (string, error) {
			request.Targets, request.Filter, request.PageToken = t.part, t.bulk.Filter, t.bulk.Token
			reply, err := c.Holds.SetHolds(ctx, request)
			client.AddReply(total, reply)
			return reply.GetNextPageToken(), err
		})
		noteDone(c, total.GetChanged(), t.bulk.DryRun, err)
		for _, was := range total.GetReplaced() {
			noteReplaced(c, was, t.bulk.DryRun)
		}
		for _, target := range total.GetUnknown() {
			c.Note("nothing is known of %s; the hold is kept for when it comes", human.Plain(describe.Target(target)))
		}
		return c.Show(total, err, func() {
			writeDone(c, "set", total.GetChanged(), total.GetMatched(), t.bulk.DryRun, "held in these words before")
			Write(c.Out, c.Now, total.GetHolds(), "")
			writeMore(c, total.GetChanged(), len(total.GetHolds()))
			if n := total.GetEndedLeases(); n > 0 {
				fmt.Fprintf(c.Out, "%s: their holders %s told to stop\n", human.Plural(n, "lease"), would("are", "would be", t.bulk.DryRun))
			}
		})
	})
	return cmd
}

func newLift(o *client.Options) *cobra.Command {
	request := &pb.LiftHoldsRequest{}
	var t targets
	cmd := &cobra.Command{
		Use:   "lift",
		Short: "Hand out tasks of a target again",
		Long: `Hand out tasks of a target again: lift its hold of a name, and leave holds of other names. With --name waggle it
opens a queue that Waggle blocked after failures of its host.`,
		Example: `  waggle hold lift --queue example.com
  waggle hold lift --queue example.com --name waggle`,
	}
	t.register(cmd)
	cmd.Flags().StringVar(&request.Name, "name", describe.DefaultHold, "the hold of this `name`; waggle: the block of a queue")
	t.bulk.Record.Register(cmd, o.Console)
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, _ []string) error {
		request.By, request.Reason, request.ValidateOnly = t.bulk.By, t.bulk.Reason, t.bulk.DryRun
		total := &pb.LiftHoldsResponse{}
		err := t.run(func() (string, error) {
			request.Targets, request.Filter, request.PageToken = t.part, t.bulk.Filter, t.bulk.Token
			reply, err := c.Holds.LiftHolds(ctx, request)
			client.AddReply(total, reply)
			return reply.GetNextPageToken(), err
		})
		noteDone(c, total.GetChanged(), t.bulk.DryRun, err)
		return c.Show(total, err, func() {
			writeDone(c, "lifted", total.GetChanged(), total.GetMatched(), t.bulk.DryRun, "without a hold named "+request.GetName())
			for _, was := range total.GetLifted() {
				fmt.Fprintf(c.Out, "  %s, set %s\n", human.Plain(describe.HoldName(was)), human.Plain(describe.Set(c.Now, was)))
			}
			writeMore(c, total.GetChanged(), len(total.GetLifted()))
			for _, still := range total.GetRemaining() {
				fmt.Fprintf(c.Out, "still stopped by %s %s; `%s` ends that\n", human.Plain(describe.HoldName(still)),
					human.Plain(describe.Hold(c.Now, still)), human.Plain(describe.LiftCommand(still)))
			}
		})
	})
	return cmd
}

func newList(o *client.Options) *cobra.Command {
	request := &pb.ListHoldsRequest{Filter: &pb.Filter{}}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what is held, by whom and why",
		Long: `List what is held, by whom and why. It lists every hold there is: what is not listed is not stopped by an
operator. Flags choose the holds that stop what they name; holds on everything are listed always.`,
		Example: "  waggle hold list --blocks\n  waggle hold list --queue example.com",
	}
	flags, filter := cmd.Flags(), request.GetFilter()
	flags.BoolVar(&request.Blocks, "blocks", false, "list the queues that Waggle blocked after failures of their hosts, too")
	flags.StringVar(&filter.Pool, "pool", "", "only what stops this `pool`")
	flags.StringVar(&filter.SourceId, "source", "", "only holds on the source with this `ID`")
	flags.StringVar(&filter.SourceIdPrefix, "source-prefix", "", "only holds on sources whose id begins with this `prefix`")
	cli.QueueVar(flags, &filter.Queue, "queue", "only what stops the queue of this `name`")
	cli.QueueVar(flags, &filter.QueueSuffix, "queue-suffix", "only holds on the queue of this `name` and on those below it")
	flags.StringVar(&filter.CollectorId, "collector", "", "only what stops the collector with this `ID`")
	return o.List(cmd, func(ctx context.Context, c *client.Client, part client.Part) error {
		reply, err := client.ReadPart(ctx, part, c.Holds.ListHolds, request)
		return c.ShowList(part, reply, err, func() {
			none := "no holds: no operator stops anything"
			if proto.Size(filter) > 0 {
				none = "no hold stops that"
			}
			Write(c.Out, c.Now, reply.GetHolds(), none)
		})
	})
}

// Write writes holds as a table, or none.
func Write(out io.Writer, now time.Time, holds []*pb.Hold, none string) {
	t := human.NewTable("TARGET^28", "NAME/5^7="+describe.DefaultHold, "EFFECT/2=STOP_GRANTS", "BY/3^7", "SINCE/1", "UNTIL/4", "REASON~20")
	for _, h := range holds {
		until := "no end"
		if h.GetUntil() != nil {
			until = human.Since(now, h.GetUntil())
		}
		t.Row(describe.Target(h.GetTarget()), h.GetName(), human.Word(h.GetEffect(), "HOLD_EFFECT_"), h.GetBy(), human.Since(now, h.GetCreateTime()), until, h.GetReason())
	}
	t.Write(out, none)
}

// targets are what a command acts on: targets by name, or a filter of sources.
type targets struct {
	everything                       bool
	pools, sources, queues, collects []string
	labels                           map[string]string
	filter                           pb.Filter
	bulk                             client.Bulk
	part                             []*pb.HoldTarget // of the call
}

func (t *targets) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&t.everything, "everything", false, "all that there is: the emergency stop")
	flags.StringArrayVar(&t.pools, "pool", nil, "the tasks of the sources of this `pool`; may be repeated, as all that name a target")
	flags.StringArrayVar(&t.sources, "source", nil, "the tasks of the source with this `ID`")
	flags.StringArrayVar(&t.queues, "queue", nil, "the queue of this `name`, or with *.example.com all queues below it")
	flags.StringArrayVar(&t.collects, "collector", nil, "the collector with this `ID`")
	cli.PairsVar(flags, &t.labels, "collector-label", "the collectors with this label; of several, with all of them")
	flags.StringVar(&t.filter.SourceIdPrefix, "source-prefix", "", "each source whose id begins with this `prefix` now, as news.")
	cli.PairsVar(flags, &t.filter.Labels, "label", "each source with this label now")
	t.bulk.RegisterChange(cmd, "targets")
	cmd.Args = cli.Exactly()
}

// all are the targets that flags name.
func (t *targets) all() (all []*pb.HoldTarget) {
	if t.everything {
		all = append(all, &pb.HoldTarget{Everything: true})
	}
	for _, name := range t.pools {
		all = append(all, &pb.HoldTarget{Pool: name})
	}
	for _, id := range t.sources {
		all = append(all, &pb.HoldTarget{SourceId: id})
	}
	for _, name := range t.queues {
		all = append(all, &pb.HoldTarget{Queue: cli.QueuePattern(name)})
	}
	for _, id := range t.collects {
		all = append(all, &pb.HoldTarget{CollectorId: id})
	}
	if len(t.labels) > 0 {
		all = append(all, &pb.HoldTarget{CollectorLabels: t.labels})
	}
	return all
}

// run calls for each part of the targets, or for each page of the sources that match.
func (t *targets) run(call func() (token string, err error)) error {
	all, at := t.all(), 0
	switch given := proto.Size(&t.filter) > 0; {
	case given && len(all) > 0:
		return cli.Usagef("--source-prefix and --label choose sources: leave other targets to a second command")
	case !given && len(all) == 0:
		return cli.Usagef("of what? say --everything, --pool, --source, --source-prefix, --label, --queue, --collector or --collector-label")
	case given:
		t.bulk.Filter = &t.filter
	}
	t.bulk.Take(make([]string, len(all))) // targets have no ids
	return t.bulk.Run(func() (string, error) {
		t.part = all[at : at+len(t.bulk.IDs)]
		at += len(t.bulk.IDs)
		return call()
	})
}

// noteReplaced notes which hold there was before: it may have been another person's, for longer.
func noteReplaced(c *client.Client, was *pb.Hold, dryRun bool) {
	end := ""
	if was.GetUntil() == nil {
		end = ", without an end"
	}
	c.Note("this %s the hold on %s that %s: %s%s", would("replaced", "would replace", dryRun), human.Plain(describe.HoldName(was)),
		would("stood", "stands", dryRun), human.Plain(describe.Hold(c.Now, was)), end)
}

func noteDone(c *client.Client, changed int32, dryRun bool, err error) {
	if err != nil && changed > 0 && !dryRun {
		c.Note("stopped after %s; the same command again does the rest", human.Plural(changed, "hold"))
	}
}

func would(is, wouldBe string, dryRun bool) string {
	if dryRun {
		return wouldBe
	}
	return is
}

// writeDone writes how many holds were changed, or would be. Others of matched were as rest says.
func writeDone(c *client.Client, did string, changed, matched int32, dryRun bool, rest string) {
	text := human.Plural(changed, "hold") + " " + would("", "would be ", dryRun) + did
	if changed == 0 {
		text = "nothing " + would("changed", "would change", dryRun)
	}
	if others := matched - changed; others > 0 {
		text += "; " + human.Plural(others, "target") + " " + rest
	}
	fmt.Fprintln(c.Out, human.Plain(text))
}

// writeMore writes how many of the changed holds are not shown: a reply has the first of them.
func writeMore(c *client.Client, changed int32, shown int) {
	if more := int(changed) - shown; more > 0 && shown > 0 {
		fmt.Fprintf(c.Out, "and %s more\n", human.Count(more))
	}
}
