package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/sourcefile"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// maxSpecFile bounds what is read as a spec, in bytes: what a call takes.
const maxSpecFile = 4 << 20

// specFlags are the flags from which a spec is made.
type specFlags struct {
	file  string
	flags *pflag.FlagSet

	displayName, scope, pool, cron, timeZone, firstCrawl, kind      string
	seeds, followHosts, include, exclude                            []string
	labels, metadata                                                map[string]string
	follow, revisit                                                 bool
	priority, maxDepth, maxAttempts, maxExpirations, maxThrottled   int32
	canonicalRules                                                  int32
	maxOutstanding                                                  int64
	adaptive                                                        rangeFlag
	jitter                                                          spanFlag
	queue                                                           queueFlag
	every, lease, maxHold, remember, revisitAfter, minBack, maxBack spanFlag
}

func (f *specFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	f.flags = fs
	fs.StringVarP(&f.file, "file", "f", "", "`file` with a SourceSpec in JSON, or a source as 'get --output json' writes it; - for standard input. Other flags are laid over it")
	fs.StringArrayVar(&f.seeds, "seed", nil, "`URL` where crawling begins; may be repeated")
	fs.StringVar(&f.kind, "kind", "", "what `kind` the seeds are to the collector, as feed, sitemap or list (default: by what they are)")
	fs.Var(&f.queue, "queue", "the `queue` of the seeds (default by the queue rules, from the URL's host)")
	spanVar(fs, &f.every, "every", "crawl the seeds again at this interval, as 10m, 1h, 7d")
	fs.StringVar(&f.cron, "cron", "", "or by five cron `fields`, as \"0 6 * * *\", or @daily")
	fs.StringVar(&f.timeZone, "time-zone", "", "IANA `zone` of --cron (default UTC)")
	fs.Var(&f.adaptive, "adaptive", "or at an interval that follows how often the page changes, within `bounds`, as 10m..7d")
	spanVar(fs, &f.jitter, "jitter", "shift what each seed is due by a stable part of this, so that many sources are not due at once")
	fs.BoolVar(&f.revisit, "revisit", false, "each cycle crawls the pages found from the seeds again")
	fs.StringVar(&f.firstCrawl, "first-crawl", "", "`when`: now, or spread within the first interval (default now)")
	fs.BoolVar(&f.follow, "follow", false, "follow links on the hosts of the seeds (default: only the items of feeds, on any host)")
	fs.StringSliceVar(&f.followHosts, "follow-host", nil, "follow links to this `host`, *.suffix or *; may be repeated")
	fs.Int32Var(&f.maxDepth, "max-depth", 0, "follow links up to this `depth`; seeds have 0")
	fs.StringArrayVar(&f.include, "include", nil, "follow only URLs that match this regular `expression`; may be repeated")
	fs.StringArrayVar(&f.exclude, "exclude", nil, "do not follow URLs that match this `expression`; may be repeated")
	fs.StringVar(&f.pool, "pool", "", "`pool` of collectors that may take its tasks (default \"default\")")
	fs.Int32Var(&f.priority, "priority", 5, "`0 to 9`, higher first")
	fs.StringVar(&f.displayName, "display-name", "", "a `name` for people")
	pairsVar(fs, &f.labels, "label", "label by which operators choose sources; may be repeated")
	fs.StringVar(&f.scope, "scope", "", "share keys with other sources that name this `scope`; fixed at creation")
	fs.Int32Var(&f.canonicalRules, "canonical-rules", 0, "`number` of the rules that tell which URLs are one page: 1; 2: also in whatever order their query is, and with tracking parameters (default 1); fixed at creation")
	spanVar(fs, &f.lease, "lease", "how long a lease runs between renewals (default 30s)")
	spanVar(fs, &f.maxHold, "max-hold", "how long a lease can be held by renewals (default 30m)")
	fs.Int32Var(&f.maxAttempts, "max-attempts", 4, "`number` of failures that a task may have")
	fs.Int32Var(&f.maxExpirations, "max-expirations", 5, "`number` of leases of a task that may expire")
	fs.Int32Var(&f.maxThrottled, "max-throttled", 20, "`number` of times that a task's host may fail")
	spanVar(fs, &f.minBack, "min-backoff", "wait before the second attempt (default 10s)")
	spanVar(fs, &f.maxBack, "max-backoff", "longest wait between attempts (default 1h)")
	spanVar(fs, &f.remember, "remember", "how long a settled task is remembered (default 30d)")
	spanVar(fs, &f.revisitAfter, "revisit-after", "a task done longer ago than this is due again when met (default never)")
	fs.Int64Var(&f.maxOutstanding, "max-outstanding", 0, "`number` of submitted and discovered tasks that may wait, per shard (default no limit)")
	pairsVar(fs, &f.metadata, "metadata", "handed out with every task; may be repeated")
}

// overlay sets the fields whose flags were given, and returns their paths.
func (f *specFlags) overlay(spec *pb.SourceSpec) ([]string, error) {
	if err := oneRule(f.flags); err != nil {
		return nil, err
	}
	var paths []string
	set := func(flag, path string, assign func()) {
		if f.flags.Changed(flag) {
			assign()
			paths = append(paths, path)
		}
	}
	set("display-name", "display_name", func() { spec.DisplayName = f.displayName })
	set("label", "labels", func() { spec.Labels = f.labels })
	set("scope", "scope", func() { spec.Scope = f.scope })
	set("canonical-rules", "canonical_rules", func() { spec.CanonicalRules = f.canonicalRules })
	set("pool", "pool", func() { spec.Pool = f.pool })
	set("priority", "priority", func() { spec.Priority = &f.priority })
	set("lease", "lease_duration", func() { spec.LeaseDuration = f.lease.message() })
	set("max-hold", "max_hold", func() { spec.MaxHold = f.maxHold.message() })
	set("remember", "remember", func() { spec.Remember = f.remember.message() })
	set("revisit-after", "revisit_after", func() { spec.RevisitAfter = f.revisitAfter.message() })
	set("max-outstanding", "max_outstanding", func() { spec.MaxOutstanding = &f.maxOutstanding })
	set("metadata", "metadata", func() { spec.Metadata = f.metadata })
	set("seed", "seeds", func() {
		spec.Seeds = nil
		for _, url := range f.seeds {
			spec.Seeds = append(spec.Seeds, &pb.Seed{Url: url})
		}
	})
	if err := f.overlaySeeds(spec.GetSeeds()); err != nil {
		return nil, err
	}
	if f.flags.Changed("first-crawl") {
		value, err := enumValue("--first-crawl", f.firstCrawl, "FIRST_CRAWL_", pb.FirstCrawl_value)
		if err != nil {
			return nil, err
		}
		set("first-crawl", "first_crawl", func() { spec.FirstCrawl = pb.FirstCrawl(value) })
	}
	f.overlaySchedule(spec, set)
	f.overlayRetry(spec, set)
	f.overlayFollow(spec, set)
	return paths, nil
}

// overlaySeeds sets what flags say of all seeds.
func (f *specFlags) overlaySeeds(seeds []*pb.Seed) error {
	for flag, assign := range map[string]func(*pb.Seed){
		"kind":  func(seed *pb.Seed) { seed.Kind = f.kind },
		"queue": func(seed *pb.Seed) { seed.Queue = string(f.queue) },
	} {
		if f.flags.Changed(flag) && len(seeds) == 0 {
			return usagef(nil, "--%s is of seeds, which --seed has to name", flag)
		}
		for _, seed := range seeds {
			if f.flags.Changed(flag) {
				assign(seed)
			}
		}
	}
	return nil
}

// oneRule refuses more than one rule of when seeds are due again.
func oneRule(flags *pflag.FlagSet) error {
	var rules []string
	for _, rule := range []string{"every", "cron", "adaptive"} {
		if flags.Changed(rule) {
			rules = append(rules, "--"+rule)
		}
	}
	if len(rules) > 1 {
		return usagef(nil, "%s: say one of them", strings.Join(rules, " and "))
	}
	return nil
}

// setter assigns a field if its flag was given.
type setter func(flag, path string, assign func())

func (f *specFlags) overlaySchedule(spec *pb.SourceSpec, set setter) {
	schedule := func() *pb.Schedule {
		if spec.Schedule == nil {
			spec.Schedule = &pb.Schedule{}
		}
		return spec.Schedule
	}
	set("every", "schedule.every", func() { schedule().Rule = &pb.Schedule_Every{Every: f.every.message()} })
	set("cron", "schedule.cron", func() { schedule().Rule = &pb.Schedule_Cron{Cron: f.cron} })
	set("adaptive", "schedule.adaptive", func() { schedule().Rule = f.adaptive.message() })
	set("jitter", "schedule.jitter", func() { schedule().Jitter = f.jitter.message() })
	set("time-zone", "schedule.time_zone", func() { schedule().TimeZone = f.timeZone })
	set("revisit", "schedule.revisit", func() { schedule().Revisit = f.revisit })
}

func (f *specFlags) overlayRetry(spec *pb.SourceSpec, set setter) {
	retry := func() *pb.RetryPolicy {
		if spec.Retry == nil {
			spec.Retry = &pb.RetryPolicy{}
		}
		return spec.Retry
	}
	set("max-attempts", "retry.max_attempts", func() { retry().MaxAttempts = &f.maxAttempts })
	set("max-expirations", "retry.max_expirations", func() { retry().MaxExpirations = &f.maxExpirations })
	set("max-throttled", "retry.max_throttled", func() { retry().MaxThrottled = &f.maxThrottled })
	set("min-backoff", "retry.min_backoff", func() { retry().MinBackoff = f.minBack.message() })
	set("max-backoff", "retry.max_backoff", func() { retry().MaxBackoff = f.maxBack.message() })
}

func (f *specFlags) overlayFollow(spec *pb.SourceSpec, set setter) {
	follow := func() *pb.Follow {
		if spec.Follow == nil {
			spec.Follow = &pb.Follow{}
		}
		return spec.Follow
	}
	set("follow", "follow", func() {
		if f.follow {
			follow()
		} else {
			spec.Follow = nil
		}
	})
	set("follow-host", "follow.allow_hosts", func() { follow().AllowHosts = f.followHosts })
	set("max-depth", "follow.max_depth", func() { follow().MaxDepth = &f.maxDepth })
	set("include", "follow.include", func() { follow().Include = f.include })
	set("exclude", "follow.exclude", func() { follow().Exclude = f.exclude })
}

// read reads the spec of --file, with the etag if the file holds a whole source.
func (f *specFlags) read(in io.Reader) (*pb.SourceSpec, string, error) {
	if f.file != "-" {
		file, err := os.Open(f.file)
		if err != nil {
			return nil, "", fmt.Errorf("--file: %w", err)
		}
		defer file.Close() //nolint:errcheck // it was only read
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxSpecFile+1))
	if err != nil {
		return nil, "", fmt.Errorf("--file %s: %w", f.file, err)
	}
	if len(text) > maxSpecFile {
		return nil, "", fmt.Errorf("--file %s is longer than %s", f.file, bytesText(maxSpecFile))
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, "", errNothing(f.file)
	}
	var outer map[string]json.RawMessage
	if err := json.Unmarshal(text, &outer); err != nil {
		return nil, "", fmt.Errorf("--file %s is no JSON object: %w", f.file, sourcefile.PlainJSON(err))
	}
	if _, whole := outer["spec"]; whole {
		var source pb.Source
		if err := unmarshalJSON(text, &source); err != nil {
			return nil, "", fmt.Errorf("--file %s is no Source: %w", f.file, err)
		}
		return source.GetSpec(), source.GetEtag(), nil
	}
	var spec pb.SourceSpec
	if err := unmarshalJSON(text, &spec); err != nil {
		return nil, "", fmt.Errorf("--file %s is no SourceSpec: %w", f.file, err)
	}
	return &spec, "", nil
}

// unmarshalJSON reads a message; its errors are for people.
func unmarshalJSON(text []byte, into proto.Message) error {
	err := protojson.Unmarshal(text, into)
	if err == nil {
		return nil
	}
	return sourcefile.PlainJSON(err)
}

func newSourceCreate(o *clientOptions) *cobra.Command {
	var f specFlags
	var record recordFlags
	cmd := &cobra.Command{
		Use:   "create ID",
		Short: "Register a source",
		Example: `  waggle source create news.example --seed https://example.com/news --every 10m --follow --max-depth 1
  waggle source create --file news.json`,
		Args: atMostOne,
	}
	f.register(cmd)
	record.register(cmd, o.console)
	cmd.RunE = o.call(func(ctx context.Context, c *client, args []string) error {
		spec := &pb.SourceSpec{}
		if f.file != "" {
			var err error
			if spec, _, err = f.read(cmd.InOrStdin()); err != nil {
				return err
			}
		}
		if err := nameSpec(spec, args); err != nil {
			return err
		}
		if _, err := f.overlay(spec); err != nil {
			return err
		}
		reply, err := c.sources.CreateSource(ctx, &pb.CreateSourceRequest{Spec: spec, By: record.by, Reason: record.reason})
		if err != nil {
			return err
		}
		c.warn(reply.GetWarnings())
		return c.show(reply.GetSource(), func() { writeCreated(c.out, reply.GetSource()) })
	})
	return cmd
}

// warn tells of what a dispatcher did, and doubts.
func (c *client) warn(warnings []string) {
	for _, warning := range warnings {
		c.note("%s", plain(warning))
	}
}

func writeCreated(out io.Writer, s *pb.Source) {
	spec := s.GetSpec()
	fmt.Fprintf(out, "created source %s: %s, %s, follow %s\n", s.GetId(), plural(len(spec.GetSeeds()), "seed"),
		scheduleText(spec.GetSchedule()), plain(followText(spec.GetFollow())))
}

// nameSpec sets the id of a spec from the arguments, which must not contradict it.
func nameSpec(spec *pb.SourceSpec, args []string) error {
	switch {
	case len(args) == 0 && spec.GetId() == "":
		return usagef(nil, "the source's ID is missing")
	case len(args) == 0:
		return nil
	case spec.GetId() != "" && spec.GetId() != args[0]:
		return usagef(nil, "the file says id %q, the argument %q", spec.GetId(), args[0])
	}
	spec.Id = args[0]
	return nil
}

func newSourceUpdate(o *clientOptions) *cobra.Command {
	var f specFlags
	var record recordFlags
	var etag string
	var unset []string
	cmd := &cobra.Command{
		Use:   "update ID",
		Short: "Change a source",
		Long: `Change a source. Flags change the fields they name and no others. --file replaces
the whole spec: what the file leaves out goes back to its default. A file that
'source get --output json' wrote carries the etag, so that a change by somebody
else in between is noticed.`,
		Example: `  waggle source update news.example --every 30m --priority 7
  waggle source update news.example --unset revisit_after
  waggle source get news.example -o json > s.json; edit s.json; waggle source update --file s.json`,
		Args: atMostOne,
	}
	f.register(cmd)
	record.register(cmd, o.console)
	cmd.Flags().StringVar(&etag, "etag", "", "change it only if it still has this `etag`")
	cmd.Flags().StringSliceVar(&unset, "unset", nil, "`field` of the spec that goes back to its default, as follow or retry.max_attempts; may be repeated")
	cmd.RunE = o.call(func(ctx context.Context, c *client, args []string) error {
		request, err := f.update(cmd.InOrStdin(), args, unset)
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("etag") {
			request.Etag = etag
		}
		request.By, request.Reason = record.by, record.reason
		reply, err := c.sources.UpdateSource(ctx, request)
		if err != nil {
			return err
		}
		c.warn(reply.GetWarnings())
		return c.show(reply.GetSource(), func() {
			fmt.Fprintf(c.out, "source %s is at version %d\n", reply.GetSource().GetId(), reply.GetSource().GetVersion())
		})
	})
	return cmd
}

// update makes the request: every field with a file, else those of the flags.
func (f *specFlags) update(in io.Reader, args, unset []string) (*pb.UpdateSourceRequest, error) {
	request := &pb.UpdateSourceRequest{Spec: &pb.SourceSpec{}}
	if f.file != "" {
		var err error
		if request.Spec, request.Etag, err = f.read(in); err != nil {
			return nil, err
		}
	}
	if err := nameSpec(request.GetSpec(), args); err != nil {
		return nil, err
	}
	paths, err := f.overlay(request.GetSpec())
	switch {
	case err != nil:
		return nil, err
	case f.file != "" && len(unset) > 0:
		return nil, usagef(nil, "--unset and --file: leave the field out of the file")
	case f.file != "":
		return request, nil
	}
	paths = append(paths, unset...)
	if len(paths) == 0 {
		return nil, usagef(nil, "nothing to change: give a flag, --unset or --file")
	}
	for _, path := range unset {
		if _, err := fieldmaskpb.New(&pb.SourceSpec{}, path); err != nil {
			return nil, usagef(nil, "--unset %s: a spec has no such field", path)
		}
	}
	request.UpdateMask = &fieldmaskpb.FieldMask{Paths: paths}
	return request, nil
}
