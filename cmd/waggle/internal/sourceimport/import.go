// Package sourceimport has the command that registers the sources of a file.
package sourceimport

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/sourcefile"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/specflag"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// importFlags are what an import takes beside its file.
type importFlags struct {
	specflag.Flags

	record                         cli.Record
	format, prefix, report, resume string
	prune                          pruneFlags
	now, dryRun, replace           bool
	parallel                       int

	// defaults are what an entry gets that says nothing itself.
	defaults *pb.SourceSpec
}

func New(o *client.Options) *cobra.Command {
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
		Args: cli.Exactly("the FILE (or - for standard input)"),
	}
	f.register(cmd)
	f.record.Register(cmd, o.Console)
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, args []string) error {
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
	f.Flags.Register(fs)
	fs.StringVar(&f.format, "format", "", "`format` of the file: csv, jsonl, opml, sitemap or urls (default: told by its name or beginning)")
	fs.StringVar(&f.prefix, "prefix", "", "stands before ids that are made from URLs, as `news.`")
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
		return cli.Usagef("--format %q: say csv, jsonl, opml, sitemap or urls", f.format)
	}
	f.defaults = &pb.SourceSpec{FirstCrawl: pb.FirstCrawl_FIRST_CRAWL_SPREAD}
	if f.now {
		f.defaults.FirstCrawl = pb.FirstCrawl_FIRST_CRAWL_NOW
	}
	if _, err := f.Overlay(f.defaults); err != nil {
		return err
	}
	changed := f.FlagSet.Changed
	switch {
	case changed("time-zone") && !changed("cron"):
		return cli.Usagef("--time-zone is the zone of --cron, which is missing")
	case f.resume != "" && name == "-":
		return cli.Usagef("--resume goes through the file anew; standard input cannot be read twice")
	case f.resume != "" && f.dryRun:
		return cli.Usagef("--resume and --dry-run: a look leaves nothing to go on from")
	case f.parallel < 1 || f.parallel > 16:
		return cli.Usagef("--parallel %d: say 1 to 16", f.parallel)
	}
	return f.prune.check(changed("prune"), f.dryRun)
}

func (f *importFlags) run(ctx context.Context, c *client.Client, name string, stdin io.Reader) (err error) {
	in, err := cli.OpenInput(ctx, name, stdin)
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	defer in.Close()
	digest := ""
	if f.resume != "" {
		if digest, err = f.digest(in.File); err != nil {
			return err
		}
	}
	if err := f.apart(name); err != nil {
		return err
	}
	state, err := openState(f.resume, digest)
	if err != nil {
		return err
	}
	report, err := cli.OpenReport(f.report, state.Report, importColumns()...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, report.Close()) }()
	counted := &countingReader{in: in}
	entries, format, err := sourcefile.Open(counted, name, sourcefile.Format(f.format))
	if err != nil {
		return fmt.Errorf("%s: %w", in.Path, err)
	}
	j := &importJob{
		client: c, flags: f, in: in, format: format, entries: entries, state: state, report: report,
		known: make(map[uint64]knownID), pages: make(seenPages), progress: newImportProgress(c, counted, in.Size),
	}
	return j.run(ctx)
}

// apart refuses to write over what is read, or two files into one.
func (f *importFlags) apart(name string) error {
	for _, pair := range [][4]string{
		{"--report", f.report, "FILE", name}, {"--resume", f.resume, "FILE", name}, {"--report", f.report, "--resume", f.resume},
	} {
		if cli.SameFile(pair[1], pair[3]) {
			return cli.Usagef("%s and %s are the same file, %q; choose another", pair[0], pair[2], pair[1])
		}
	}
	return nil
}

// digest tells an import from another: of the file, and of the flags that
// decide what becomes of it.
func (f *importFlags) digest(file io.ReadSeeker) (string, error) {
	h := sha256.New()
	f.FlagSet.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed && !slices.Contains([]string{"resume", "report", "parallel", "server", "timeout", "output", "by", "reason", "yes", "prune-max"}, flag.Name) {
			fmt.Fprintf(h, "%s=%s\n", flag.Name, flag.Value)
		}
	})
	if _, err := io.Copy(h, file); err != nil {
		return "", fmt.Errorf("import: %w", err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return "", fmt.Errorf("import: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// complete fills in what an entry leaves to the flags, and its id.
func (f *importFlags) complete(spec *pb.SourceSpec) (*pb.SourceSpec, error) {
	if spec == nil {
		return nil, nil //nolint:nilnil // it could not be read at all
	}
	if spec.GetId() == "" {
		if len(spec.GetSeeds()) == 0 || spec.GetSeeds()[0].GetUrl() == "" {
			return spec, errors.New("there is neither an id nor a URL to make one from")
		}
		spec.Id = sourcefile.ID(f.prefix, spec.GetSeeds()[0].GetUrl())
	}
	for _, seed := range spec.GetSeeds() {
		seed.Kind = cmp.Or(seed.GetKind(), f.Kind)
		seed.Queue = cmp.Or(canonical.QueueName(seed.GetQueue()), f.Queue)
	}
	whole := proto.CloneOf(f.defaults)
	if whole.GetSchedule() != nil {
		completeSchedule(whole, spec.GetSchedule())
	}
	if spec.GetFollow() != nil {
		whole.Follow = nil
	}
	proto.Merge(whole, spec)
	return whole, nil
}

// completeSchedule leaves of the defaults for a schedule what goes with that of an entry.
func completeSchedule(defaults *pb.SourceSpec, of *pb.Schedule) {
	s := defaults.GetSchedule()
	if of.GetRule() != nil {
		s.Rule, s.TimeZone = nil, ""
	}
	if of.GetJitter() != nil || of.GetRule() == nil && s.GetRule() == nil {
		s.Jitter = nil
	}
	if proto.Size(s) == 0 {
		defaults.Schedule = nil
	}
}
