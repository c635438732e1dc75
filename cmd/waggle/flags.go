package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/duration"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// spanFlag is a flag for a duration that may be given in days. Whether it was
// given at all is asked of the flag set.
type spanFlag time.Duration

var _ pflag.Value = (*spanFlag)(nil)

// Set reads 90s, 1h30m, 30d.
func (f *spanFlag) Set(text string) error {
	d, err := duration.Parse(text)
	if err != nil {
		return fmt.Errorf("%q is no duration; say 90s, 1h30m or 30d", text)
	}
	if d < 0 {
		return fmt.Errorf("%q is less than 0", text)
	}
	*f = spanFlag(d)
	return nil
}

// String is what Set reads; empty for 0.
func (f *spanFlag) String() string {
	if *f == 0 {
		return ""
	}
	return duration.Format(time.Duration(*f))
}

// Type is what help calls it.
func (f *spanFlag) Type() string { return "duration" }

func (f *spanFlag) message() *durationpb.Duration { return durationpb.New(time.Duration(*f)) }

// span adds a duration flag that takes days.
func spanVar(flags *pflag.FlagSet, f *spanFlag, name, usage string) { flags.Var(f, name, usage) }

// rangeFlag is a flag for a shortest and a longest duration.
type rangeFlag struct{ from, to time.Duration }

var _ pflag.Value = (*rangeFlag)(nil)

// Set reads 10m..7d.
func (f *rangeFlag) Set(text string) error {
	from, to, ok := strings.Cut(text, "..")
	if !ok {
		return fmt.Errorf("%q is no range; say 10m..7d", text)
	}
	var bounds [2]spanFlag
	for i, part := range []string{from, to} {
		if err := bounds[i].Set(part); err != nil {
			return fmt.Errorf("%q: %w", text, err)
		}
	}
	f.from, f.to = time.Duration(bounds[0]), time.Duration(bounds[1])
	return nil
}

// String is what Set reads; empty when nothing was.
func (f *rangeFlag) String() string {
	if *f == (rangeFlag{}) {
		return ""
	}
	return duration.Format(f.from) + ".." + duration.Format(f.to)
}

// Type is what help calls it.
func (f *rangeFlag) Type() string { return "range" }

func (f *rangeFlag) message() *pb.Schedule_Adaptive {
	return &pb.Schedule_Adaptive{Adaptive: &pb.Adaptive{MinInterval: durationpb.New(f.from), MaxInterval: durationpb.New(f.to)}}
}

// timeFlag is a flag for a moment: a time of day with its date, or how long
// from now.
type timeFlag struct{ text string }

var _ pflag.Value = (*timeFlag)(nil)

// Set keeps the text; at reads it.
func (f *timeFlag) Set(text string) error {
	f.text = text
	_, err := f.at(time.Time{})
	return err
}

// String is what was set.
func (f *timeFlag) String() string { return f.text }

// Type is what help calls it.
func (f *timeFlag) Type() string { return "time" }

// at is the moment; nil when none was given.
func (f *timeFlag) at(now time.Time) (*timestamppb.Timestamp, error) {
	if f.text == "" {
		return nil, nil //nolint:nilnil // no time is not an error
	}
	if d, err := duration.Parse(f.text); err == nil {
		if d < 0 {
			return nil, fmt.Errorf("%q is over: say how long from now, as 2h, or a time to come", f.text)
		}
		return timestamppb.New(now.Add(d)), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05Z07:00"} {
		if t, err := time.Parse(layout, f.text); err == nil {
			return timestamppb.New(t), nil
		}
	}
	return nil, fmt.Errorf("%q is no time; say 2h (from now) or 2026-01-31T18:00:00Z", f.text)
}

// pairsFlag is a flag that takes key=value, may be repeated, and may hold
// several with commas between them. No key may come twice: one of its values would
// be lost.
type pairsFlag struct{ into *map[string]string }

var _ pflag.Value = pairsFlag{}

// Set adds pairs.
func (f pairsFlag) Set(text string) error {
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return fmt.Errorf("%q is not key=value", pair)
		}
		if _, given := (*f.into)[key]; given {
			return fmt.Errorf("%q is given twice", key)
		}
		if *f.into == nil {
			*f.into = map[string]string{}
		}
		(*f.into)[key] = value
	}
	return nil
}

// String is what Set reads.
func (f pairsFlag) String() string {
	if f.into == nil {
		return ""
	}
	return strings.ReplaceAll(pairs(*f.into), " ", ",")
}

// Type is what help calls it.
func (f pairsFlag) Type() string { return "key=value" }

// pairsVar adds a flag that takes key=value and may be repeated.
func pairsVar(flags *pflag.FlagSet, p *map[string]string, name, usage string) {
	flags.Var(pairsFlag{p}, name, usage)
}

// pairs writes what pairsVar reads, sorted.
func pairs(m map[string]string) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		list = append(list, key+"="+m[key])
	}
	return strings.Join(list, " ")
}

// recordFlags are who does something, and why.
type recordFlags struct{ by, reason string }

// register adds the flags; the name of the user is the default of --by.
func (r *recordFlags) register(cmd *cobra.Command, c console) {
	user := ""
	for _, name := range []string{envName("by"), "USER", "LOGNAME"} {
		if value, ok := c.env(name); ok && value != "" {
			user = value
			break
		}
	}
	cmd.Flags().StringVar(&r.by, "by", user, "`who` does it, for the record ["+envName("by")+"]")
	cmd.Flags().StringVar(&r.reason, "reason", "", "`why`, for the record")
}
