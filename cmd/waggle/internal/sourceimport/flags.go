package sourceimport

import (
	"cmp"
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
	prune                          string // begin of ids; empty: --prune is not given
	bound                          cli.PruneBound
	now, dryRun, replace           bool
	parallel                       int

	// defaults are what an entry gets that says nothing itself.
	defaults *pb.SourceSpec
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
	fs.StringVar(&f.prune, "prune", "", "delete the sources whose id begins with this `prefix`, as news., and which the file does not have")
	f.bound.Register(fs, "ids")
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
	// A prefix ends where a part of an id ends: one letter too few would reach for other people's sources, and none for all
	// there are.
	case changed("prune") && (len(f.prune) < 2 || !strings.ContainsRune("._-", rune(f.prune[len(f.prune)-1]))):
		return cli.Usagef("--prune %q: say how the ids begin, up to a dot, _ or -, as news.", f.prune)
	}
	return f.bound.Check(changed("prune"), f.dryRun)
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

// digest distinguishes imports: by the file, and by the flags that decide what becomes of it.
func (f *importFlags) digest(file io.ReadSeeker) (string, error) {
	h := sha256.New()
	f.FlagSet.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed && !slices.Contains([]string{"resume", "report", "parallel", "server", "timeout", "output", "by", "reason", "yes", "prune-max"}, flag.Name) {
			fmt.Fprintf(h, "%s=%s\n", flag.Name, flag.Value)
		}
	})
	_, err := io.Copy(h, file)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
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
