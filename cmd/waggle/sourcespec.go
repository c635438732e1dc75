package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/sourcefile"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// maxSpecFile bounds what is read as a spec, in bytes: what a call takes.
const maxSpecFile = 4 << 20

// sharedFlags are those of the commands that make specs. They fill a spec of which only the fields of given flags count.
type sharedFlags struct {
	flags    *pflag.FlagSet
	spec     *pb.SourceSpec
	cron     string
	every    *durationpb.Duration
	adaptive *pb.Adaptive
	follow   bool
	kind     string
	queue    string
}

func (f *sharedFlags) register(fs *pflag.FlagSet) {
	f.flags = fs
	f.spec = &pb.SourceSpec{
		Priority: new(int32), MaxOutstanding: new(int64), Schedule: &pb.Schedule{}, Follow: &pb.Follow{MaxDepth: new(int32)},
		Retry: &pb.RetryPolicy{MaxAttempts: new(int32), MaxExpirations: new(int32), MaxThrottled: new(int32)},
	}
	fs.StringVar(&f.kind, "kind", "", "what `kind` the seeds are to the collector, as feed, sitemap or list (default: by what they are)")
	queueVar(fs, &f.queue, "queue", "the one `queue` of all seeds (default by the queue rules, from the URL's host)")
	durationVar(fs, &f.every, "every", "crawl the seeds again at this interval, as 10m, 1h, 7d")
	fs.StringVar(&f.cron, "cron", "", "or by five cron `fields`, as \"0 6 * * *\", or @daily")
	fs.StringVar(&f.spec.Schedule.TimeZone, "time-zone", "", "IANA `zone` of --cron (default UTC)")
	adaptiveVar(fs, &f.adaptive, "adaptive", "or at an interval that follows how often the page changes, within `bounds`, as 10m..7d")
	durationVar(fs, &f.spec.Schedule.Jitter, "jitter",
		"let each seed be due up to so much later, by an amount of its own that stays (with --adaptive: the first crawl only)")
	fs.BoolVar(&f.spec.Schedule.Revisit, "revisit", false, "each cycle crawls the pages found from the seeds again")
	fs.BoolVar(&f.follow, "follow", false, "follow links on the hosts of the seeds (default: only the items of feeds, on any host)")
	fs.Int32Var(f.spec.Follow.MaxDepth, "max-depth", 0, "follow links up to this `depth`; seeds have 0")
	fs.StringVar(&f.spec.Pool, "pool", "", "`pool` of collectors that may take the tasks (default \"default\")")
	fs.Int32Var(f.spec.Priority, "priority", 5, "`0 to 9`, higher first")
	pairsVar(fs, &f.spec.Labels, "label", "label by which operators choose sources; may be repeated")
}

// overlay sets the fields whose flags were given, and returns their paths.
func (f *sharedFlags) overlay(spec *pb.SourceSpec) (paths []string, err error) {
	var rules []string
	for _, rule := range []string{"every", "cron", "adaptive"} {
		if f.flags.Changed(rule) {
			rules = append(rules, "--"+rule)
		}
	}
	if len(rules) > 1 {
		return nil, usagef("%s: say one of them", strings.Join(rules, " and "))
	}
	switch {
	case f.flags.Changed("every"):
		f.spec.Schedule.Rule = &pb.Schedule_Every{Every: f.every}
	case f.flags.Changed("cron"):
		f.spec.Schedule.Rule = &pb.Schedule_Cron{Cron: f.cron}
	case f.flags.Changed("adaptive"):
		f.spec.Schedule.Rule = &pb.Schedule_Adaptive{Adaptive: f.adaptive}
	}
	switch {
	case !f.flags.Changed("follow"):
	case !f.follow:
		spec.Follow, paths = nil, append(paths, "follow")
	default:
		spec.Follow, paths = cmp.Or(spec.GetFollow(), &pb.Follow{}), append(paths, "follow")
	}
	for _, path := range slices.Sorted(maps.Keys(specFlagNames)) {
		if f.flags.Changed(specFlagNames[path]) {
			copyField(spec, f.spec, path)
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// copyField sets the field at a path to what it is in another message.
func copyField(into, from proto.Message, path string) {
	a, b := into.ProtoReflect(), from.ProtoReflect()
	for name, rest, more := strings.Cut(path, "."); ; name, rest, more = strings.Cut(rest, ".") {
		field := a.Descriptor().Fields().ByName(protoreflect.Name(name))
		switch {
		case more:
			a, b = a.Mutable(field).Message(), b.Get(field).Message()
			continue
		case b.Has(field):
			a.Set(field, b.Get(field))
		default:
			a.Clear(field)
		}
		return
	}
}

// specFlags are the flags from which a spec is made.
type specFlags struct {
	sharedFlags

	file, firstCrawl string
	seeds            []string
}

func (f *specFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	f.sharedFlags.register(fs)
	spec := f.spec
	fs.StringVarP(&f.file, "file", "f", "", "`file` with a SourceSpec in JSON, or a source as 'get --output json' writes it; - for standard input. Other flags are laid over it")
	fs.StringArrayVar(&f.seeds, "seed", nil, "`URL` where crawling begins; may be repeated")
	fs.StringVar(&f.firstCrawl, "first-crawl", "", "`when`: now, or spread within the first interval (default now)")
	fs.StringSliceVar(&spec.Follow.AllowHosts, "follow-host", nil, "follow links to this `host`, *.suffix or *; may be repeated")
	fs.StringArrayVar(&spec.Follow.Include, "include", nil, "follow only URLs that match this regular `expression`; may be repeated")
	fs.StringArrayVar(&spec.Follow.Exclude, "exclude", nil, "do not follow URLs that match this `expression`; may be repeated")
	fs.StringVar(&spec.DisplayName, "display-name", "", "a `name` for people")
	fs.StringVar(&spec.Scope, "scope", "", "share keys with other sources that name this `scope`; fixed at creation")
	fs.Int32Var(&spec.CanonicalRules, "canonical-rules", 0, "`number` of the rules that tell which URLs are one page: 1; 2: also in whatever order their query is, and with tracking parameters (default 1); fixed at creation")
	durationVar(fs, &spec.LeaseDuration, "lease", "how long a lease runs between renewals (default 30s)")
	durationVar(fs, &spec.MaxHold, "max-hold", "how long a lease can be held by renewals (default 30m)")
	fs.Int32Var(spec.Retry.MaxAttempts, "max-attempts", 4, "`number` of failures that a task may have")
	fs.Int32Var(spec.Retry.MaxExpirations, "max-expirations", 5, "`number` of leases of a task that may expire")
	fs.Int32Var(spec.Retry.MaxThrottled, "max-throttled", 20, "`number` of times that a task's host may fail")
	durationVar(fs, &spec.Retry.MinBackoff, "min-backoff", "wait before the second attempt (default 10s)")
	durationVar(fs, &spec.Retry.MaxBackoff, "max-backoff", "longest wait between attempts (default 1h)")
	durationVar(fs, &spec.Remember, "remember", "how long a settled task is remembered (default 30d)")
	durationVar(fs, &spec.RevisitAfter, "revisit-after", "a task done longer ago than this is due again when met (default never)")
	fs.Int64Var(spec.MaxOutstanding, "max-outstanding", 0, "`number` of submitted and discovered tasks that may wait, per shard (default no limit)")
	pairsVar(fs, &spec.Metadata, "metadata", "handed out with every task; may be repeated")
}

// overlay sets the fields whose flags were given, and returns their paths.
func (f *specFlags) overlay(spec *pb.SourceSpec) (paths []string, err error) {
	for _, url := range f.seeds {
		f.spec.Seeds = append(f.spec.Seeds, &pb.Seed{Url: url})
	}
	if f.flags.Changed("first-crawl") {
		if f.spec.FirstCrawl, err = enumValue[pb.FirstCrawl]("--first-crawl", f.firstCrawl, "FIRST_CRAWL_", pb.FirstCrawl_value); err != nil {
			return nil, err
		}
	}
	if paths, err = f.sharedFlags.overlay(spec); err != nil {
		return nil, err
	}
	for _, flag := range []string{"kind", "queue"} {
		if f.flags.Changed(flag) && len(spec.GetSeeds()) == 0 {
			return nil, usagef("--%s is of seeds, which --seed has to name", flag)
		}
	}
	for _, seed := range spec.GetSeeds() {
		if f.flags.Changed("kind") {
			seed.Kind = f.kind
		}
		if f.flags.Changed("queue") {
			seed.Queue = f.queue
		}
	}
	return paths, nil
}

// read reads the source of --file.
func (f *specFlags) read(ctx context.Context, stdin io.Reader) (*pb.Source, error) {
	in, err := openInput(ctx, f.file, stdin)
	if err != nil {
		return nil, fmt.Errorf("--file: %w", err)
	}
	defer in.close()
	text, err := io.ReadAll(io.LimitReader(in, maxSpecFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("--file %s: %w", f.file, err)
	case len(text) > maxSpecFile:
		return nil, fmt.Errorf("--file %s is longer than %s", f.file, bytesText(maxSpecFile))
	case len(bytes.TrimSpace(text)) == 0:
		return nil, in.errNothing()
	}
	source, err := sourcefile.ParseJSON(text)
	if err != nil {
		return nil, fmt.Errorf("--file %s %w", f.file, err)
	}
	return source, nil
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
		source, _, err := f.source(ctx, cmd.InOrStdin(), args)
		if err != nil {
			return err
		}
		reply, err := c.sources.CreateSource(ctx, &pb.CreateSourceRequest{Spec: source.GetSpec(), By: record.by, Reason: record.reason})
		c.warn(reply.GetWarnings())
		return c.show(reply.GetSource(), err, func() { writeCreated(c.out, reply.GetSource()) })
	})
	return cmd
}

// warn notes what a dispatcher warns of.
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

// source is that of the file, if there is one, with the id of the arguments, which must not contradict it, and with what
// flags say, whose fields have these paths.
func (f *specFlags) source(ctx context.Context, stdin io.Reader, args []string) (source *pb.Source, paths []string, err error) {
	source = &pb.Source{Spec: &pb.SourceSpec{}}
	if f.file != "" {
		if source, err = f.read(ctx, stdin); err != nil {
			return nil, nil, err
		}
	}
	switch spec := source.GetSpec(); {
	case len(args) == 0 && spec.GetId() == "":
		return nil, nil, usagef("the source's ID is missing")
	case len(args) > 0 && spec.GetId() != "" && spec.GetId() != args[0]:
		return nil, nil, usagef("the file says id %q, the argument %q", spec.GetId(), args[0])
	case len(args) > 0:
		spec.Id = args[0]
	}
	paths, err = f.overlay(source.GetSpec())
	return source, paths, err
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
		request, err := f.update(ctx, cmd.InOrStdin(), args, unset)
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("etag") {
			request.Etag = etag
		}
		request.By, request.Reason = record.by, record.reason
		reply, err := c.sources.UpdateSource(ctx, request)
		c.warn(reply.GetWarnings())
		return c.show(reply.GetSource(), err, func() {
			fmt.Fprintf(c.out, "source %s is at version %d\n", reply.GetSource().GetId(), reply.GetSource().GetVersion())
		})
	})
	return cmd
}

// update makes the request: every field with a file, else those of the flags.
func (f *specFlags) update(ctx context.Context, stdin io.Reader, args, unset []string) (*pb.UpdateSourceRequest, error) {
	source, paths, err := f.source(ctx, stdin, args)
	request := &pb.UpdateSourceRequest{Spec: source.GetSpec(), Etag: source.GetEtag()}
	switch {
	case err != nil:
		return nil, err
	case f.file != "" && len(unset) > 0:
		return nil, usagef("--unset and --file: leave the field out of the file")
	case f.file != "":
		return request, nil
	}
	paths = append(paths, unset...)
	if len(paths) == 0 {
		return nil, usagef("nothing to change: give a flag, --unset or --file")
	}
	for _, path := range unset {
		if _, err := fieldmaskpb.New(&pb.SourceSpec{}, path); err != nil {
			return nil, usagef("--unset %s: a spec has no such field", path)
		}
	}
	request.UpdateMask = &fieldmaskpb.FieldMask{Paths: paths}
	return request, nil
}
