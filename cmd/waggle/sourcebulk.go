package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

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
	also             string   // what is to be said besides
}

// maxBulk is how many ids one call takes.
const maxBulk = 1000

// runBulk calls as often as the ids, or the pages of the filter, need.
func runBulk[R bulkReply](ids []string, filter *pb.Filter, call func(ids []string, filter *pb.Filter, token string) (R, error)) (bulkTotal, error) {
	var total bulkTotal
	token := ""
	for {
		batch := ids[:min(len(ids), maxBulk)]
		ids = ids[len(batch):]
		reply, err := call(batch, filter, token)
		if err != nil {
			return total, err
		}
		total.matched += int(reply.GetMatched())
		total.changed += int(reply.GetChanged())
		total.missing = append(total.missing, reply.GetMissingIds()...)
		total.sample = append(total.sample, reply.GetSampleIds()[:min(len(reply.GetSampleIds()), shownResults-len(total.sample))]...)
		token = reply.GetNextPageToken()
		if len(ids) == 0 && token == "" {
			return total, nil
		}
	}
}

// cutShort says, of a command that err ended, what it changed before.
func (c *client) cutShort(s *choice, total bulkTotal, did string, err error) error {
	if total.changed > 0 && !s.dryRun {
		fmt.Fprintf(c.err, "waggle: stopped after %s %s; the same command again does the rest\n", plural(total.changed, "source"), did)
	}
	return err
}

// showBulk writes what became of the sources; ids that do not exist make the
// command fail, though the others are done.
func (c *client) showBulk(s *choice, total bulkTotal, did string, reply bulkReply) error {
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
		if total.also != "" {
			fmt.Fprintln(c.out, total.also)
		}
	})
	if err != nil || len(total.missing) == 0 {
		return err
	}
	for _, id := range total.missing {
		fmt.Fprintf(c.err, "waggle: source not found: %s\n", plain(id))
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
		filter, err := s.filtered(ids)
		if err != nil {
			return err
		}
		total, err := runBulk(ids, filter, func(ids []string, filter *pb.Filter, token string) (*pb.DeleteSourcesResponse, error) {
			return c.sources.DeleteSources(ctx, &pb.DeleteSourcesRequest{
				Ids: ids, Filter: filter, ValidateOnly: s.dryRun, PageToken: token, By: record.by, Reason: record.reason,
			})
		})
		if err != nil {
			return c.cutShort(&s, total, "deleted", err)
		}
		return c.showBulk(&s, total, "deleted", &pb.DeleteSourcesResponse{
			Matched: int32(total.matched), Changed: int32(total.changed), MissingIds: total.missing, SampleIds: total.sample,
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
	cmd.Flags().Var(&until, "until", "resume by itself: 2h (from now) or 2026-01-31T18:00:00Z")
	cmd.RunE = o.call(func(ctx context.Context, c *client, ids []string) error {
		filter, err := s.filtered(ids)
		if err != nil {
			return err
		}
		var end *timestamppb.Timestamp
		if end, err = until.at(c.now); err != nil {
			return err
		}
		total, err := runBulk(ids, filter, func(ids []string, filter *pb.Filter, token string) (*pb.PauseSourcesResponse, error) {
			return c.sources.PauseSources(ctx, &pb.PauseSourcesRequest{
				Ids: ids, Filter: filter, ValidateOnly: s.dryRun, PageToken: token, By: record.by, Reason: record.reason, Until: end,
			})
		})
		if err != nil {
			return c.cutShort(&s, total, "paused", err)
		}
		return c.showBulk(&s, total, "paused", &pb.PauseSourcesResponse{
			Matched: int32(total.matched), Changed: int32(total.changed), MissingIds: total.missing, SampleIds: total.sample,
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
		filter, err := s.filtered(ids)
		if err != nil {
			return err
		}
		total, err := runBulk(ids, filter, func(ids []string, filter *pb.Filter, token string) (*pb.ResumeSourcesResponse, error) {
			return c.sources.ResumeSources(ctx, &pb.ResumeSourcesRequest{
				Ids: ids, Filter: filter, ValidateOnly: s.dryRun, PageToken: token, By: record.by, Reason: record.reason,
			})
		})
		if err != nil {
			return c.cutShort(&s, total, "resumed", err)
		}
		return c.showBulk(&s, total, "resumed", &pb.ResumeSourcesResponse{
			Matched: int32(total.matched), Changed: int32(total.changed), MissingIds: total.missing, SampleIds: total.sample,
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
		filter, err := s.filtered(ids)
		if err != nil {
			return err
		}
		canceled := int64(0)
		total, err := runBulk(ids, filter, func(ids []string, filter *pb.Filter, token string) (*pb.TriggerSourcesResponse, error) {
			reply, err := c.sources.TriggerSources(ctx, &pb.TriggerSourcesRequest{
				Ids: ids, Filter: filter, ValidateOnly: s.dryRun, PageToken: token, Revisit: revisit, By: record.by, Reason: record.reason,
			})
			canceled += reply.GetCanceledSeeds()
			return reply, err
		})
		if err != nil {
			return c.cutShort(&s, total, "triggered", err)
		}
		if canceled > 0 {
			total.also = plural(int(canceled), "canceled seed") + " left out: not crawled until `waggle task retry`"
		}
		return c.showBulk(&s, total, "triggered", &pb.TriggerSourcesResponse{
			Matched: int32(total.matched), Changed: int32(total.changed), MissingIds: total.missing, SampleIds: total.sample, CanceledSeeds: canceled,
		})
	})
	return cmd
}
