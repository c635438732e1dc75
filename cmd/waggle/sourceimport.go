package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/sourcefile"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// importFlags are what an import takes beside its file.
type importFlags struct {
	flags  *pflag.FlagSet
	record recordFlags

	format, prefix, report, resume, pool, cron, timeZone, kind string
	queue                                                      queueFlag
	labels                                                     map[string]string
	prune                                                      pruneFlags
	every, jitter                                              spanFlag
	adaptive                                                   rangeFlag
	now, dryRun, follow, revisit, replace                      bool
	maxDepth, priority                                         int32
	parallel                                                   int
}

func newSourceImport(o *clientOptions) *cobra.Command {
	f := &importFlags{}
	cmd := &cobra.Command{
		Use: "import FILE",
		// What it does is ApplySources.
		Aliases: []string{"apply"},
		Short:   "Register sources from OPML, CSV, JSON lines, sitemaps or URL lists",
		Long:    importHelp(),
		Example: `  waggle source import feeds.opml --every 30m --prefix feeds.
  waggle source import sources.csv --dry-run
  waggle source import shops.csv --every 1d --queue shops
  waggle source import urls.txt.gz --every 1d --follow --report report.csv --resume urls.state
  waggle source import news.jsonl --prune news. --dry-run
  curl -s https://example.com/sitemap.xml | waggle source import - --every 6h`,
		Args: exactly("the FILE (or - for standard input)"),
	}
	f.register(cmd)
	f.record.register(cmd, o.console)
	cmd.RunE = o.call(func(ctx context.Context, c *client, args []string) error {
		if err := f.check(args[0]); err != nil {
			return err
		}
		return f.run(ctx, c, args[0], cmd.InOrStdin())
	})
	return cmd
}

func importHelp() string {
	var b strings.Builder
	b.WriteString(`Register sources from a file; - is standard input. The format is told by the
name of the file or its beginning, through gzip too: OPML (outlines around a
feed become its label "category"), CSV, JSON lines (a SourceSpec each, or what
'source get --output json' writes), a sitemap (each page is a source) or an
index of sitemaps (each sitemap is one), or a URL a line.

Flags say what holds for sources that say nothing themselves. First crawls are
spread over the first interval unless --now is given. A source without an id
has one made from its first URL, the same each time: host and path, with _ for
each slash; where that does not say all of the URL, a hyphen and ten digits of
its SHA-256 follow.

Sources that exist are brought to what the file and the flags say. What those do
not say (a column that is absent, a cell that is empty) stays as it is, labels and
metadata are added; with --replace it goes back to its default. An import that was
interrupted may be repeated as it is: what is there already answers UNCHANGED.
Hosts that share a queue are mapped by 'waggle queue rule set' before there are
tasks of theirs. --queue, or a column queue, says it of seeds alone, also of those
that are there: they move.

--resume keeps a file of how far it came, and passes over that part.

--prune PREFIX also deletes the sources whose id begins with PREFIX and which the
file does not have, as 'source delete' does; others it never touches. It deletes
nothing when an entry was refused, when the rest of the file cannot be read, when
no id of the file begins with PREFIX, or when it would delete more than --prune-max
of the sources whose id did so before: the file may have been cut short. What the
file has is created and updated all the same; the exit code is 1. Look with --dry-run
first; --report has all that would be deleted.

Columns of a CSV, in any order, of which url or id must be there:
`)
	for _, column := range sourcefile.Columns() {
		fmt.Fprintf(&b, "  %-16s%s\n", column[0], column[1])
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func (f *importFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	f.flags = fs
	fs.StringVar(&f.format, "format", "", "`format` of the file: csv, jsonl, opml, sitemap or urls (default: told by its name or beginning)")
	fs.StringVar(&f.prefix, "prefix", "", "stands before ids that are made from URLs, as `news.`")
	spanVar(fs, &f.every, "every", "crawl again at this interval, as 10m, 1h, 7d")
	fs.StringVar(&f.cron, "cron", "", "or by five cron `fields`, as \"0 6 * * *\", or @daily")
	fs.Var(&f.adaptive, "adaptive", "or at an interval that follows how often the page changes, within `bounds`, as 10m..7d")
	fs.StringVar(&f.timeZone, "time-zone", "", "IANA `zone` of --cron (default UTC)")
	spanVar(fs, &f.jitter, "jitter", "let each be due up to so much later, by an amount of its own that stays (with --adaptive: the first crawl only)")
	fs.BoolVar(&f.revisit, "revisit", false, "each cycle crawls the pages found from the seeds again")
	fs.StringVar(&f.pool, "pool", "", "`pool` of collectors that may take their tasks (default \"default\")")
	fs.Int32Var(&f.priority, "priority", 5, "`0 to 9`, higher first")
	fs.StringVar(&f.kind, "kind", "", "what `kind` their seeds are to the collector, as feed, sitemap or list")
	fs.Var(&f.queue, "queue", "the one queue of all their seeds, by this `name`, instead of each host its own")
	pairsVar(fs, &f.labels, "label", "label that each gets; may be repeated")
	fs.BoolVar(&f.follow, "follow", false, "follow links on the hosts of the seeds (default: only the items of feeds, on any host)")
	fs.Int32Var(&f.maxDepth, "max-depth", 0, "follow links up to this `depth`; seeds have 0")
	fs.BoolVar(&f.now, "now", false, "crawl all of them at once, instead of spread over the first interval")
	fs.BoolVar(&f.replace, "replace", false, "what neither the file nor the flags say of a source goes back to its default; without it, it stays")
	fs.BoolVar(&f.dryRun, "dry-run", false, "change nothing; say what would become of each")
	fs.StringVar(&f.report, "report", "", "`file` that gets a line for each entry: CSV when its name ends in .csv, else JSON lines")
	fs.StringVar(&f.resume, "resume", "", "`file` that keeps how far the import came, to go on from there after an interruption")
	fs.IntVar(&f.parallel, "parallel", 4, "`number` of calls at a time")
	f.prune.register(fs)
}

func (f *importFlags) check(name string) error {
	if f.format != "" && !slices.Contains(sourcefile.Formats(), sourcefile.Format(f.format)) {
		return usagef(nil, "--format %q: say csv, jsonl, opml, sitemap or urls", f.format)
	}
	changed := f.flags.Changed
	if err := oneRule(f.flags); err != nil {
		return err
	}
	switch {
	case changed("time-zone") && !changed("cron"):
		return usagef(nil, "--time-zone is the zone of --cron, which is missing")
	case f.resume != "" && name == "-":
		return usagef(nil, "--resume goes through the file anew; standard input cannot be read twice")
	case f.resume != "" && f.dryRun:
		return usagef(nil, "--resume and --dry-run: a look leaves nothing to go on from")
	case f.parallel < 1 || f.parallel > 16:
		return usagef(nil, "--parallel %d: say 1 to 16", f.parallel)
	}
	return f.prune.check(changed("prune"), f.dryRun)
}

func (f *importFlags) run(ctx context.Context, c *client, name string, stdin io.Reader) (err error) {
	in, size := io.Reader(newCtxReader(ctx, stdin)), int64(0)
	digest := ""
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("import: %w", err)
		}
		defer file.Close() //nolint:errcheck // it was only read
		if f.resume != "" {
			if digest, err = f.digest(file); err != nil {
				return err
			}
		}
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			size, in = info.Size(), file
		} else {
			in = newCtxReader(ctx, file)
		}
	}
	if err := f.apart(name); err != nil {
		return err
	}
	state, err := openState(f.resume, digest)
	if err != nil {
		return err
	}
	report, err := openReport(f.report, state.Report, importColumns()...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, report.close()) }()
	counted := &countingReader{in: in}
	entries, format, err := sourcefile.Open(counted, name, sourcefile.Format(f.format))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	j := &importJob{
		client: c, flags: f, name: name, format: format, entries: entries, state: state, report: report,
		known: make(map[uint64]knownID), pages: make(seenPages), progress: newImportProgress(c, counted, size),
	}
	return j.run(ctx)
}

// apart refuses to write over what is read, or two files into one.
func (f *importFlags) apart(name string) error {
	for _, pair := range [][4]string{
		{"--report", f.report, "FILE", name}, {"--resume", f.resume, "FILE", name}, {"--report", f.report, "--resume", f.resume},
	} {
		if sameFile(pair[1], pair[3]) {
			return usagef(nil, "%s and %s are the same file, %q; choose another", pair[0], pair[2], pair[1])
		}
	}
	return nil
}

// sameFile reports whether two names are of one file; an empty name is of none.
func sameFile(a, b string) bool {
	aInfo, aErr := os.Stat(a)
	bInfo, bErr := os.Stat(b)
	return a != "" && (a == b || aErr == nil && bErr == nil && os.SameFile(aInfo, bInfo))
}

// digest tells an import from another: of the file, and of the flags that
// decide what becomes of it.
func (f *importFlags) digest(file io.ReadSeeker) (string, error) {
	h := sha256.New()
	f.flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed && !slices.Contains([]string{"resume", "report", "parallel", "server", "timeout", "output", "by", "reason", "yes", "prune-max"}, flag.Name) {
			fmt.Fprintf(h, "%s=%s\n", flag.Name, flag.Value)
		}
	})
	if err := hashFile(h, file); err != nil {
		return "", fmt.Errorf("import: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func hashFile(h hash.Hash, file io.ReadSeeker) error {
	if _, err := io.Copy(h, file); err != nil {
		return err
	}
	_, err := file.Seek(0, io.SeekStart)
	return err
}

// complete fills in what an entry leaves to the flags, and its id.
func (f *importFlags) complete(spec *pb.SourceSpec) error {
	if spec == nil {
		return nil // it could not be read at all
	}
	if spec.GetId() == "" {
		if len(spec.GetSeeds()) == 0 || spec.GetSeeds()[0].GetUrl() == "" {
			return errors.New("there is neither an id nor a URL to make one from")
		}
		spec.Id = sourcefile.ID(f.prefix, spec.GetSeeds()[0].GetUrl())
	}
	changed := f.flags.Changed
	if spec.GetPool() == "" {
		spec.Pool = f.pool
	}
	if changed("priority") && spec.Priority == nil {
		spec.Priority = proto.Int32(f.priority)
	}
	for key, value := range f.labels {
		if _, has := spec.GetLabels()[key]; has {
			continue
		}
		if spec.Labels == nil {
			spec.Labels = map[string]string{}
		}
		spec.Labels[key] = value
	}
	f.completeSeeds(spec.GetSeeds())
	if spec.GetFirstCrawl() == pb.FirstCrawl_FIRST_CRAWL_UNSPECIFIED {
		spec.FirstCrawl = pb.FirstCrawl_FIRST_CRAWL_SPREAD
		if f.now {
			spec.FirstCrawl = pb.FirstCrawl_FIRST_CRAWL_NOW
		}
	}
	f.completeSchedule(spec)
	if spec.Follow == nil && (f.follow || changed("max-depth")) {
		spec.Follow = &pb.Follow{}
		if changed("max-depth") {
			spec.Follow.MaxDepth = proto.Int32(f.maxDepth)
		}
	}
	return nil
}

func (f *importFlags) completeSeeds(seeds []*pb.Seed) {
	for _, seed := range seeds {
		if seed.GetKind() == "" {
			seed.Kind = f.kind
		}
		if seed.GetQueue() == "" {
			seed.Queue = string(f.queue)
		} else {
			seed.Queue = queueName(seed.GetQueue())
		}
	}
}

func (f *importFlags) completeSchedule(spec *pb.SourceSpec) {
	changed := f.flags.Changed
	if spec.GetSchedule().GetRule() == nil {
		switch {
		case changed("every"):
			schedule(spec).Rule = &pb.Schedule_Every{Every: f.every.message()}
		case changed("cron"):
			schedule(spec).Rule = &pb.Schedule_Cron{Cron: f.cron}
			if spec.GetSchedule().GetTimeZone() == "" {
				spec.Schedule.TimeZone = f.timeZone
			}
		case changed("adaptive"):
			schedule(spec).Rule = f.adaptive.message()
		}
	}
	if changed("jitter") && spec.GetSchedule().GetRule() != nil && spec.GetSchedule().GetJitter() == nil {
		schedule(spec).Jitter = f.jitter.message()
	}
	if f.revisit {
		schedule(spec).Revisit = true
	}
}

func schedule(spec *pb.SourceSpec) *pb.Schedule {
	if spec.Schedule == nil {
		spec.Schedule = &pb.Schedule{}
	}
	return spec.Schedule
}
