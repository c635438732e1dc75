package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// choice is which sources a bulk call acts on: ids, or a filter.
type choice struct {
	filter pb.Filter
	dryRun bool
	yes    bool
}

func (s *choice) register(cmd *cobra.Command) {
	cmd.Args = cobra.ArbitraryArgs
	flags := cmd.Flags()
	flags.StringVar(&s.filter.SourceIdPrefix, "prefix", "", "sources whose id begins with this `prefix`, as news.")
	flags.StringVar(&s.filter.Pool, "pool", "", "sources of this `pool`")
	pairsVar(flags, &s.filter.Labels, "label", "sources with this label")
	flags.BoolVar(&s.filter.All, "all", false, "all sources")
	flags.BoolVar(&s.dryRun, "dry-run", false, "change nothing; say what would be")
	flags.BoolVar(&s.yes, "yes", false, "act on whatever flags match, without ids being named one by one")
}

// filtered is the filter if one was given; then there must be no ids.
func (s *choice) filtered(ids []string) (*pb.Filter, error) {
	given := s.filter.GetSourceIdPrefix() != "" || s.filter.GetPool() != "" || len(s.filter.GetLabels()) > 0 || s.filter.GetAll()
	switch {
	case given && len(ids) > 0:
		return nil, usagef(nil, "say ids, or --prefix, --pool, --label or --all, not both")
	case given && !s.yes && !s.dryRun:
		return nil, usagef(nil, "flags act on whatever they match: look with --dry-run, then say --yes")
	case given:
		return &s.filter, nil
	case len(ids) == 0:
		return nil, usagef(nil, "which sources? say ids, or --prefix, --pool, --label or --all")
	}
	return nil, nil //nolint:nilnil // ids are no filter
}

// bulkReply is what all bulk calls on sources answer.
type bulkReply interface {
	proto.Message
	GetMatched() int32
	GetChanged() int32
	GetNextPageToken() string
	GetMissingIds() []string
	GetSampleIds() []string
}

// bulkTotal is what the calls of one command answered together.
type bulkTotal struct {
	matched, changed int
	missing          []string
	sample           []string // of what would be changed
	also             []string // lines that are to be said besides
}

// maxBulk is how many ids one call takes.
const maxBulk = 1000

// bulkPage is what one call of a command acts on.
type bulkPage struct {
	ids    []string
	filter *pb.Filter
	token  string
}

// actOn calls as often as the ids, or the pages of the choice's filter, need, and shows
// what was done (a past participle); whole is the reply that all calls together are.
func actOn[R bulkReply](c *client, s *choice, ids []string, did string, call func(bulkPage) (R, error), whole func(*bulkTotal) R) error {
	filter, err := s.filtered(ids)
	if err != nil {
		return err
	}
	total, err := runBulk(ids, filter, call)
	if err != nil {
		return c.cutShort(s, total, did, err)
	}
	return c.showBulk(s, total, did, whole(total))
}

// runBulk adds up what the calls answer, also as far as they came.
func runBulk[R bulkReply](ids []string, filter *pb.Filter, call func(bulkPage) (R, error)) (*bulkTotal, error) {
	total := &bulkTotal{}
	page := bulkPage{filter: filter}
	for {
		page.ids = ids[:min(len(ids), maxBulk)]
		ids = ids[len(page.ids):]
		reply, err := call(page)
		if err != nil {
			return total, err
		}
		total.matched += int(reply.GetMatched())
		total.changed += int(reply.GetChanged())
		total.missing = append(total.missing, reply.GetMissingIds()...)
		total.sample = append(total.sample, reply.GetSampleIds()[:min(len(reply.GetSampleIds()), shownResults-len(total.sample))]...)
		page.token = reply.GetNextPageToken()
		if len(ids) == 0 && page.token == "" {
			return total, nil
		}
	}
}

// cutShort says, of a command that err ended, what it changed before.
func (c *client) cutShort(s *choice, total *bulkTotal, did string, err error) error {
	if total.changed > 0 && !s.dryRun {
		c.note("stopped after %s %s; the same command again does the rest", plural(total.changed, "source"), did)
	}
	return err
}

// showBulk writes what became of the sources; ids that do not exist make the
// command fail, though the others are done.
func (c *client) showBulk(s *choice, total *bulkTotal, did string, reply bulkReply) error {
	err := c.show(reply, func() {
		verb := did
		if s.dryRun {
			verb = "would be " + did
		}
		text := plural(total.changed, "source") + " " + verb
		if total.matched == 0 && len(total.missing) == 0 {
			text = "no sources match"
		}
		if rest := total.matched - total.changed; rest > 0 {
			text += "; " + unchangedText(rest, s.dryRun)
		}
		writeSample(c.out, text, total.sample, total.changed)
		for _, line := range total.also {
			fmt.Fprintln(c.out, line)
		}
	})
	if err != nil || len(total.missing) == 0 {
		return err
	}
	for _, id := range total.missing {
		c.note("source not found: %s", plain(id))
	}
	return errReported
}

// writeSample writes what a call does or would do, and the first ids of all that it
// concerns.
func writeSample(out io.Writer, text string, sample []string, all int) {
	fmt.Fprintln(out, text)
	for _, id := range sample {
		fmt.Fprintf(out, "  %s\n", plain(id))
	}
	if more := all - len(sample); more > 0 && len(sample) > 0 {
		fmt.Fprintf(out, "  and %s more\n", count(more))
	}
}

// unchangedText says of n sources that nothing is changed of them.
func unchangedText(n int, dryRun bool) string {
	switch {
	case dryRun:
		return count(n) + " would stay as now"
	case n == 1:
		return "1 as it was"
	default:
		return count(n) + " as they were"
	}
}

func newSourceDelete(o *clientOptions) *cobra.Command {
	var s choice
	var record recordFlags
	cmd := &cobra.Command{
		Use:     "delete ID...",
		Short:   "Delete sources; their tasks end CANCELED",
		Example: "  waggle source delete news.example\n  waggle source delete --prefix test. --dry-run",
	}
	s.register(cmd)
	record.register(cmd, o.console)
	cmd.RunE = o.call(func(ctx context.Context, c *client, ids []string) error {
		return actOn(c, &s, ids, "deleted", func(p bulkPage) (*pb.DeleteSourcesResponse, error) {
			return c.sources.DeleteSources(ctx, &pb.DeleteSourcesRequest{
				Ids: p.ids, Filter: p.filter, ValidateOnly: s.dryRun, PageToken: p.token, By: record.by, Reason: record.reason,
			})
		}, func(t *bulkTotal) *pb.DeleteSourcesResponse {
			return &pb.DeleteSourcesResponse{Matched: int32(t.matched), Changed: int32(t.changed), MissingIds: t.missing, SampleIds: t.sample}
		})
	})
	return cmd
}

func newSourcePause(o *clientOptions) *cobra.Command {
	var s choice
	var record recordFlags
	var until timeFlag
	cmd := &cobra.Command{
		Use:     "pause ID...",
		Short:   "Hand out none of the sources' tasks; leases that stand go on",
		Example: "  waggle source pause news.example --until 2h --reason 'site moves'",
	}
	s.register(cmd)
	record.register(cmd, o.console)
	timeVar(cmd.Flags(), &until, "until", "resume by itself")
	cmd.RunE = o.call(func(ctx context.Context, c *client, ids []string) error {
		end, err := c.moment(&until)
		if err != nil {
			return err
		}
		var replaced []*pb.ReplacedPause
		return actOn(c, &s, ids, "paused", func(p bulkPage) (*pb.PauseSourcesResponse, error) {
			reply, err := c.sources.PauseSources(ctx, &pb.PauseSourcesRequest{
				Ids: p.ids, Filter: p.filter, ValidateOnly: s.dryRun, PageToken: p.token, By: record.by, Reason: record.reason, Until: end,
			})
			for _, pause := range reply.GetReplaced() {
				c.noteReplaced("source "+pause.GetSourceId(), pause.GetGate(), s.dryRun)
			}
			replaced = append(replaced, reply.GetReplaced()...)
			return reply, err
		}, func(t *bulkTotal) *pb.PauseSourcesResponse {
			return &pb.PauseSourcesResponse{
				Matched: int32(t.matched), Changed: int32(t.changed), MissingIds: t.missing, SampleIds: t.sample, Replaced: replaced,
			}
		})
	})
	return cmd
}

func newSourceResume(o *clientOptions) *cobra.Command {
	var s choice
	var record recordFlags
	cmd := &cobra.Command{
		Use:   "resume ID...",
		Short: "Hand out tasks of paused sources again",
	}
	s.register(cmd)
	record.register(cmd, o.console)
	cmd.RunE = o.call(func(ctx context.Context, c *client, ids []string) error {
		return actOn(c, &s, ids, "resumed", func(p bulkPage) (*pb.ResumeSourcesResponse, error) {
			return c.sources.ResumeSources(ctx, &pb.ResumeSourcesRequest{
				Ids: p.ids, Filter: p.filter, ValidateOnly: s.dryRun, PageToken: p.token, By: record.by, Reason: record.reason,
			})
		}, func(t *bulkTotal) *pb.ResumeSourcesResponse {
			return &pb.ResumeSourcesResponse{Matched: int32(t.matched), Changed: int32(t.changed), MissingIds: t.missing, SampleIds: t.sample}
		})
	})
	return cmd
}

func newSourceTrigger(o *clientOptions) *cobra.Command {
	var s choice
	var record recordFlags
	var revisit bool
	cmd := &cobra.Command{
		Use:   "trigger ID...",
		Short: "Make the sources' seeds due now",
	}
	s.register(cmd)
	record.register(cmd, o.console)
	cmd.Flags().BoolVar(&revisit, "revisit", false, "crawl the pages found from the seeds again, too")
	cmd.RunE = o.call(func(ctx context.Context, c *client, ids []string) error {
		canceled := int64(0)
		return actOn(c, &s, ids, "triggered", func(p bulkPage) (*pb.TriggerSourcesResponse, error) {
			reply, err := c.sources.TriggerSources(ctx, &pb.TriggerSourcesRequest{
				Ids: p.ids, Filter: p.filter, ValidateOnly: s.dryRun, PageToken: p.token, Revisit: revisit, By: record.by, Reason: record.reason,
			})
			canceled += reply.GetCanceledSeeds()
			return reply, err
		}, func(t *bulkTotal) *pb.TriggerSourcesResponse {
			if canceled > 0 {
				t.also = append(t.also, plural(int(canceled), "canceled seed")+" left out: not crawled until `waggle task retry`")
			}
			if first, n := c.seedless(ctx, ids, &s.filter, t); n > 0 {
				t.also = append(t.also, named(n, "source", first)+" without seeds: only what `waggle task submit` gives is crawled")
			}
			t.also = append(t.also, c.heldSeeds(ctx, ids, &s.filter, t, s.dryRun)...)
			return &pb.TriggerSourcesResponse{
				Matched: int32(t.matched), Changed: int32(t.changed), MissingIds: t.missing, SampleIds: t.sample, CanceledSeeds: canceled,
			}
		})
	})
	return cmd
}
