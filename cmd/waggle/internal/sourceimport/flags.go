package sourceimport

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
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

	record                     cli.Record
	format, prefix, report     string
	prune                      string // begin of ids; empty: --prune is not given
	bound                      cli.PruneBound
	now, dryRun, replace       bool
	ownHost, ownScope, oneStep bool // oneStep: nothing says how far ownHost goes

	// defaults are what an entry gets that does not set it itself.
	defaults *pb.SourceSpec
}

func (f *importFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	f.Flags.Register(fs)
	formats := []string{"csv", "jsonl", "opml", "sitemap", "urls"}
	cli.ChoiceVar(fs, &f.format, "format", "", "", "`format` of the file: "+strings.Join(formats, ", ")+" (default by its name or beginning)", formats...)
	fs.StringVar(&f.prefix, "prefix", "", "stands before ids that are made from URLs, and names the scope, as `news.`")
	fs.BoolVar(&f.now, "now", false, "crawl all of them at once, instead of spread over the first interval, or at the first tick")
	fs.BoolVar(&f.ownHost, "follow-host", false, "follow items of feeds and links only on the source's own host: one step, unless --follow or --max-depth is given")
	fs.BoolVar(&f.ownScope, "scope-per-source", false, "do not let the sources share a scope: each crawls an article for itself")
	fs.BoolVar(&f.replace, "replace", false, "reset what neither the file nor the flags set to its default; without it, it stays")
	fs.BoolVar(&f.dryRun, "dry-run", false, "change nothing; show what would be changed")
	fs.StringVar(&f.report, "report", "", "`file` that gets a line for each entry: CSV if its name ends in .csv, else JSON lines")
	fs.StringVar(&f.prune, "prune", "", "delete the sources whose id begins with this `prefix`, as news., and which the file does not have")
	f.bound.Register(fs, "ids")
}

func (f *importFlags) check(name string) error {
	f.defaults = &pb.SourceSpec{FirstCrawl: pb.FirstCrawl_FIRST_CRAWL_SPREAD}
	if f.now {
		f.defaults.FirstCrawl = pb.FirstCrawl_FIRST_CRAWL_NOW
	}
	if _, err := f.Overlay(f.defaults); err != nil {
		return err
	}
	changed := f.FlagSet.Changed
	if f.oneStep = !changed("follow") && !changed("max-depth"); f.oneStep {
		f.defaults.Follow = nil // a flag of this name has hosts elsewhere
	}
	switch {
	case changed("time-zone") && !changed("cron"):
		return cli.Usagef("--time-zone is the zone of --cron, which is missing")
	case cli.SameFile(f.report, name):
		return cli.Usagef("--report and FILE are the same file, %q; choose another", f.report)
	// A prefix ends where a part of an id ends: one letter too few would reach for other people's sources, and none for all
	// there are.
	case changed("prune") && (len(f.prune) < 2 || !strings.ContainsRune("._-", rune(f.prune[len(f.prune)-1]))):
		return cli.Usagef("--prune %q: say how the ids begin, up to a dot, _ or -, as news.", f.prune)
	}
	return f.bound.Check(changed("prune"), f.dryRun)
}

// complete is a spec with what the file leaves to the flags; with what is fixed when a source is made only if that is
// wanted.
func (f *importFlags) complete(from *pb.SourceSpec, fixed bool) *pb.SourceSpec {
	spec := proto.CloneOf(f.defaults)
	if spec.GetSchedule() != nil {
		completeSchedule(spec, from.GetSchedule())
	}
	hosts := seedHosts(from.GetSeeds())
	if f.ownHost && len(hosts) > 0 {
		spec.Follow = cmp.Or(spec.GetFollow(), &pb.Follow{})
		spec.Follow.AllowHosts = hosts
		if f.oneStep {
			spec.Follow.MaxDepth = proto.Int32(1)
		}
	}
	if from.GetFollow() != nil {
		spec.Follow = nil
	}
	// What was exported has its rules, and no scope if the scope is its own.
	if fixed && from.GetCanonicalRules() == 0 {
		spec.CanonicalRules = sourcefile.Rules
		if !f.ownScope {
			spec.Scope = f.prefix + "import" // within what a narrowed grant allows
		}
	}
	proto.Merge(spec, from)
	for _, seed := range spec.GetSeeds() {
		seed.Kind = cmp.Or(seed.GetKind(), f.Kind)
		seed.Queue = cmp.Or(canonical.QueueName(seed.GetQueue()), f.Queue)
	}
	return spec
}

// seedHosts are the hosts of seeds, each once; none if the host of one is not known.
func seedHosts(seeds []*pb.Seed) (hosts []string) {
	for _, seed := range seeds {
		host, err := canonical.Host(seed.GetUrl())
		if err != nil {
			return nil
		}
		if !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
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
