// Package specflag has the flags that make the spec of a source, for the commands that create, change and import
// sources.
package specflag

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Flags are those of the commands that make specs. They fill a spec of which only the fields of given flags count.
type Flags struct {
	FlagSet  *pflag.FlagSet
	Spec     *pb.SourceSpec
	cron     string
	every    *durationpb.Duration
	adaptive *pb.Adaptive
	follow   bool
	Kind     string
	Queue    string
	// LabelFlag is the flag that sets labels; empty: label.
	LabelFlag string
}

// Register adds the flags.
func (f *Flags) Register(fs *pflag.FlagSet) {
	f.FlagSet, f.LabelFlag = fs, cmp.Or(f.LabelFlag, Fields["labels"])
	f.Spec = &pb.SourceSpec{
		Priority: new(int32), MaxOutstanding: new(int64), Schedule: &pb.Schedule{}, Follow: &pb.Follow{MaxDepth: new(int32)},
		Retry: &pb.RetryPolicy{MaxAttempts: new(int32), MaxExpirations: new(int32), MaxThrottled: new(int32)},
	}
	fs.StringVar(&f.Kind, "kind", "", "what `kind` the seeds are to the collector, as feed, sitemap or list (default: by what they are)")
	cli.QueueVar(fs, &f.Queue, "queue", "the one `queue` of all seeds (default by the queue rules, from the URL's host)")
	cli.DurationVar(fs, &f.every, "every", "crawl the seeds again at this interval, as 10m, 1h, 7d")
	fs.StringVar(&f.cron, "cron", "", "or by five cron `fields`, as \"0 6 * * *\", or @daily")
	fs.StringVar(&f.Spec.Schedule.TimeZone, "time-zone", "", "IANA `zone` of --cron (default UTC)")
	cli.AdaptiveVar(fs, &f.adaptive, "adaptive", "or at an interval that follows how often the page changes, within `bounds`, as 10m..7d")
	cli.DurationVar(fs, &f.Spec.Schedule.Jitter, "jitter",
		"let each seed be due up to so much later, by an amount of its own that stays (with --adaptive: the first crawl only)")
	fs.BoolVar(&f.Spec.Schedule.Revisit, "revisit", false, "each cycle crawls the pages found from the seeds again")
	fs.BoolVar(&f.follow, "follow", false, "follow links on the hosts of the seeds (default: only the items of feeds, on any host)")
	fs.Int32Var(f.Spec.Follow.MaxDepth, "max-depth", 0, "follow links up to this `depth`; seeds have 0")
	fs.StringVar(&f.Spec.Pool, "pool", "", "`pool` of collectors that may take the tasks (default \"default\")")
	fs.Int32Var(f.Spec.Priority, "priority", 5, "`0 to 9`, higher first")
	cli.PairsVar(fs, &f.Spec.Labels, f.LabelFlag, "label by which operators choose sources; may be repeated")
}

// Overlay sets the fields whose flags were given, and returns their paths.
func (f *Flags) Overlay(spec *pb.SourceSpec) (paths []string, err error) {
	var rules []string
	for _, rule := range []struct {
		flag     string
		schedule *pb.Schedule
	}{
		{"every", &pb.Schedule{Rule: &pb.Schedule_Every{Every: f.every}}},
		{"cron", &pb.Schedule{Rule: &pb.Schedule_Cron{Cron: f.cron}}},
		{"adaptive", &pb.Schedule{Rule: &pb.Schedule_Adaptive{Adaptive: f.adaptive}}},
	} {
		if f.FlagSet.Changed(rule.flag) {
			rules = append(rules, "--"+rule.flag)
			f.Spec.Schedule.Rule = rule.schedule.GetRule()
		}
	}
	if len(rules) > 1 {
		return nil, cli.Usagef("%s: say one of them", strings.Join(rules, " and "))
	}
	if f.FlagSet.Changed("follow") {
		paths = append(paths, "follow")
		if spec.Follow = cmp.Or(spec.GetFollow(), &pb.Follow{}); !f.follow {
			spec.Follow = nil
		}
	}
	for _, path := range slices.Sorted(maps.Keys(Fields)) {
		flag := Fields[path]
		if path == "labels" {
			flag = f.LabelFlag
		}
		if f.FlagSet.Changed(flag) {
			CopyField(spec, f.Spec, path)
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// CopyField sets the field at a path to what it is in another message.
func CopyField(into, from proto.Message, path string) {
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

// Fields are the flags that set fields of a source's spec, by path.
var Fields = map[string]string{
	"display_name": "display-name", "labels": "label", "scope": "scope", "pool": "pool", "priority": "priority",
	"canonical_rules": "canonical-rules", "seeds": "seed", "first_crawl": "first-crawl", "lease_duration": "lease",
	"max_hold": "max-hold", "remember": "remember", "revisit_after": "revisit-after", "quiet_after": "quiet-after", "max_outstanding": "max-outstanding", "metadata": "metadata",
	"schedule.every": "every", "schedule.cron": "cron", "schedule.adaptive": "adaptive", "schedule.jitter": "jitter",
	"schedule.time_zone": "time-zone", "schedule.revisit": "revisit",
	"retry.max_attempts": "max-attempts", "retry.max_expirations": "max-expirations", "retry.max_throttled": "max-throttled",
	"retry.min_backoff": "min-backoff", "retry.max_backoff": "max-backoff",
	"follow.max_depth": "max-depth", "follow.allow_hosts": "follow-host", "follow.include": "include", "follow.exclude": "exclude",
}
