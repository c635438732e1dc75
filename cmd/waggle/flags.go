package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/durationpb"

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
