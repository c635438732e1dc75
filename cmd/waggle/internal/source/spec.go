package source

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/specflag"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// specFlags are the flags from which a spec is made.
type specFlags struct {
	specflag.Flags

	seeds []string
}

func (f *specFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	f.Flags.Register(fs)
	spec := f.Spec
	fs.StringArrayVar(&f.seeds, "seed", nil, "`URL` where crawling begins; may be repeated")
	cli.EnumVar(fs, &spec.FirstCrawl, "first-crawl", "`when` seeds are due first, now, or spread within the first interval or to the first tick (default now)", "FIRST_CRAWL_", pb.FirstCrawl_value)
	fs.StringSliceVar(&spec.Follow.AllowHosts, "follow-host", nil, "follow links to this `host[:port]`, *.suffix or *; may be repeated")
	fs.StringArrayVar(&spec.Follow.Include, "include", nil, "follow only URLs that match this regular `expression`; may be repeated")
	fs.StringArrayVar(&spec.Follow.Exclude, "exclude", nil, "do not follow URLs that match this `expression`; may be repeated")
	fs.StringVar(&spec.DisplayName, "display-name", "", "a `name` for people")
	fs.StringVar(&spec.Scope, "scope", "", "share keys with other sources that name this `scope`; fixed at creation")
	fs.Int32Var(&spec.CanonicalRules, "canonical-rules", 0, "`number` of the rules by which two URLs are one page; 2 ignores also the order of the query and tracking parameters (default 1); fixed at creation")
	cli.DurationVar(fs, &spec.LeaseDuration, "lease", "how long a lease runs between renewals (default 30s)")
	cli.DurationVar(fs, &spec.MaxHold, "max-hold", "how long a lease can be held by renewals (default 30m)")
	fs.Int32Var(spec.Retry.MaxAttempts, "max-attempts", 4, "`number` of failures that a task may have")
	fs.Int32Var(spec.Retry.MaxExpirations, "max-expirations", 5, "`number` of leases of a task that may expire")
	fs.Int32Var(spec.Retry.MaxThrottled, "max-throttled", 20, "`number` of times that a task's URL or host may fail")
	cli.DurationVar(fs, &spec.Retry.MinBackoff, "min-backoff", "wait before the second attempt (default 10s)")
	cli.DurationVar(fs, &spec.Retry.MaxBackoff, "max-backoff", "longest wait between attempts (default 1h)")
	cli.DurationVar(fs, &spec.Remember, "remember", "how long a settled task is remembered (default 30d)")
	cli.DurationVar(fs, &spec.RevisitAfter, "revisit-after", "a task done longer ago than this is due again when met (default never)")
	cli.DurationVar(fs, &spec.QuietAfter, "quiet-after", "nothing new for so long makes it QUIET (default 5 usual gaps)")
	fs.Int64Var(spec.MaxOutstanding, "max-outstanding", 0, "`number` of submitted and discovered tasks that may wait, per shard (default no limit)")
	cli.PairsVar(fs, &spec.Metadata, "metadata", "handed out with every task; may be repeated")
}

// overlay sets the fields whose flags were given, and returns their paths.
func (f *specFlags) overlay(spec *pb.SourceSpec) (paths []string, err error) {
	f.Spec.Seeds = nil
	for _, url := range f.seeds {
		f.Spec.Seeds = append(f.Spec.Seeds, &pb.Seed{Url: url})
	}
	if paths, err = f.Flags.Overlay(spec); err != nil {
		return nil, err
	}
	for _, flag := range []string{"kind", "queue"} {
		if f.FlagSet.Changed(flag) && len(spec.GetSeeds()) == 0 {
			return nil, cli.Usagef("--%s is of seeds, which --seed has to name", flag)
		}
	}
	for _, seed := range spec.GetSeeds() {
		if f.FlagSet.Changed("kind") {
			seed.Kind = f.Kind
		}
		if f.FlagSet.Changed("queue") {
			seed.Queue = f.Queue
		}
	}
	return paths, nil
}

func newSourceCreate(o *client.Options) *cobra.Command {
	var f specFlags
	var record cli.Record
	cmd := &cobra.Command{
		Use:     "create ID",
		Short:   "Register a source",
		Example: "  waggle source create news --seed https://news.example/ --every 10m --follow",
		Args:    cli.Exactly("the source's ID"),
	}
	f.register(cmd)
	record.Register(cmd, o.Console)
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, args []string) error {
		request := &pb.CreateSourceRequest{Spec: &pb.SourceSpec{Id: args[0]}, By: record.By, Reason: record.Reason}
		if _, err := f.overlay(request.GetSpec()); err != nil {
			return err
		}
		reply, err := c.Sources.CreateSource(ctx, request)
		for _, warning := range reply.GetWarnings() {
			c.Note("%s", human.Plain(warning))
		}
		return c.Show(reply.GetSource(), err, func() {
			spec := reply.GetSource().GetSpec()
			fmt.Fprintf(c.Out, "created source %s: %s, %s, follow %s\n", spec.GetId(), human.Plural(len(spec.GetSeeds()), "seed"),
				scheduleText(spec.GetSchedule()), human.Plain(followText(spec.GetFollow())))
		})
	})
	return cmd
}

func newSourceUpdate(o *client.Options) *cobra.Command {
	f := specFlags{Flags: specflag.Flags{LabelFlag: "set-label"}}
	var unset []string
	var follow bool
	warned := map[string]bool{}
	cmd := changeSources(o, "updated", []string{"prefix", "label", "all"}, &cobra.Command{
		Use:   "update ID...",
		Short: "Change sources",
		Long: `Change sources: those with the IDs, or all that --prefix or --label match. Flags change the fields they name and no others.
--set-label takes the place of all labels.`,
		Example: `  waggle source update news.example --every 30m --priority 7
  waggle source update --prefix news. --pool browser --dry-run
  waggle source update news.example --unset revisit_after
  waggle source update --all --follow-moves --dry-run`,
	}, func(ctx context.Context, c *client.Client, b *client.Bulk) (*pb.DeleteSourcesResponse, error) {
		request := &pb.UpdateSourceRequest{Spec: &pb.SourceSpec{}, ValidateOnly: b.DryRun, By: b.By, Reason: b.Reason}
		paths, err := f.overlay(request.GetSpec())
		switch {
		case err != nil:
			return nil, err
		case follow && len(f.seeds) > 0:
			return nil, cli.Usagef("--follow-moves and --seed: give one of them")
		case len(paths)+len(unset) == 0 && !follow:
			return nil, cli.Usagef("nothing to change: give a flag or --unset")
		}
		for _, path := range unset {
			if _, err := fieldmaskpb.New(request.GetSpec(), path); err != nil {
				return nil, cli.Usagef("--unset %s: a spec has no such field", path)
			}
		}
		request.UpdateMask = &fieldmaskpb.FieldMask{Paths: append(paths, unset...)}
		return updateSources(ctx, c, b, request, follow, func(warnings []string) {
			for _, warning := range warnings {
				if !warned[warning] {
					warned[warning] = true
					c.Note("%s", human.Plain(warning))
				}
			}
		})
	})
	f.register(cmd)
	cmd.Flags().StringSliceVar(&unset, "unset", nil, "`field` of the spec that goes back to its default, as follow or retry.max_attempts; may be repeated")
	cmd.Flags().BoolVar(&follow, "follow-moves", false, "replace seeds that redirect for good (301, 308) by where they lead to")
	return cmd
}

// updatesAtOnce is how many sources of a bulk update are changed at a time.
const updatesAtOnce = 8

// updateSources makes the same change of each source that b names, or of a page of those that it matches. With follow, seeds that
// have moved for good get their new addresses too. warn is called for one source at a time.
func updateSources(
	ctx context.Context, c *client.Client, b *client.Bulk, change *pb.UpdateSourceRequest, follow bool, warn func(warnings []string),
) (*pb.DeleteSourcesResponse, error) {
	ids, total := b.IDs, &pb.DeleteSourcesResponse{} // which says what all bulk calls say
	if b.Filter != nil {
		filter := proto.CloneOf(b.Filter)
		filter.All = false // of a list it is none of the conditions
		page, err := c.Sources.ListSources(ctx, &pb.ListSourcesRequest{Filter: filter, PageToken: b.Token, PageSize: client.PageSize})
		if err != nil {
			return nil, err
		}
		for _, source := range page.GetSources() {
			ids = append(ids, source.GetId())
		}
		total.NextPageToken = page.GetNextPageToken()
	}
	var mu sync.Mutex // guards total
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(updatesAtOnce)
	for _, id := range ids {
		group.Go(func() error {
			one := proto.CloneOf(change)
			one.Spec.Id = id
			reply, err := &pb.UpdateSourceResponse{}, error(nil)
			if follow {
				err = followMoves(ctx, c, one)
			}
			if err == nil && len(one.GetUpdateMask().GetPaths()) > 0 {
				reply, err = c.Sources.UpdateSource(ctx, one)
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case status.Code(err) == codes.NotFound:
				if b.Filter == nil { // else it was deleted since it was listed
					total.MissingIds = append(total.MissingIds, id)
				}
				return nil
			case err != nil:
				return err
			case reply.GetChanged():
				total.Changed++
				total.SampleIds = append(total.SampleIds, id)
			}
			warn(reply.GetWarnings())
			total.Matched++
			return nil
		})
	}
	err := group.Wait()
	slices.Sort(total.GetMissingIds())
	slices.Sort(total.GetSampleIds())
	if total.SampleIds = total.SampleIds[:min(len(total.SampleIds), client.ShownResults)]; !b.DryRun {
		total.SampleIds = nil
	}
	return total, err
}

// followMoves adds to the change of a source its seeds, if some have moved for good, with their new addresses. Seeds that get the
// same address become one.
func followMoves(ctx context.Context, c *client.Client, change *pb.UpdateSourceRequest) error {
	reply, err := c.Sources.GetSource(ctx, &pb.GetSourceRequest{Id: change.GetSpec().GetId()})
	if err != nil {
		return err
	}
	moved := make(map[string]string)
	for _, move := range reply.GetSource().GetStatus().GetMoves() {
		if to := move.GetMovedForGoodTo(); to != "" {
			moved[move.GetSeedUrl()] = to
		}
	}
	if len(moved) == 0 {
		return nil
	}
	seen := make(map[string]bool)
	for _, seed := range reply.GetSource().GetSpec().GetSeeds() {
		if to := moved[seed.GetUrl()]; to != "" {
			seed.Url = to
		}
		if url := seed.GetUrl(); url == "" || !seen[url] {
			seen[url] = true
			change.Spec.Seeds = append(change.Spec.Seeds, seed)
		}
	}
	change.UpdateMask.Paths, change.Etag = append(change.UpdateMask.Paths, "seeds"), reply.GetSource().GetEtag()
	return nil
}
