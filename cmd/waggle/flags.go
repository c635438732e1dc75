package main

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/duration"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// spanFlag is a flag for a duration that may be given in days. The flag set knows whether it was given at all.
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

// spanVar adds a duration flag that takes days.
func spanVar(flags *pflag.FlagSet, f *spanFlag, name, usage string) { flags.Var(f, name, usage) }

// messageFlag is a spanFlag that sets a field of a message.
type messageFlag struct {
	spanFlag

	into **durationpb.Duration
}

// Set reads what a spanFlag does.
func (f *messageFlag) Set(text string) error {
	err := f.spanFlag.Set(text)
	*f.into = f.message()
	return err
}

// durationVar adds a duration flag that takes days and sets a field of a message.
func durationVar(flags *pflag.FlagSet, into **durationpb.Duration, name, usage string) {
	flags.Var(&messageFlag{into: into}, name, usage)
}

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

// pairsFlag is a flag that takes key=value, may be repeated, and may hold several with commas between them. No key may
// come twice: one of its values would be lost.
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

// queueFlag is a flag for a queue: its name, a host in whatever case and script, or a URL.
type queueFlag string

var _ pflag.Value = (*queueFlag)(nil)

// Set takes a name, a host or a URL.
func (f *queueFlag) Set(text string) error {
	*f = queueFlag(canonical.QueueName(text))
	return nil
}

// String is the queue's name.
func (f *queueFlag) String() string { return string(*f) }

// Type is what help calls it.
func (f *queueFlag) Type() string { return "name" }

// queueVar adds a flag for a queue that a request takes.
func queueVar(flags *pflag.FlagSet, p *string, name, usage string) {
	flags.Var((*queueFlag)(p), name, usage)
}

// enumValue finds the value of an enum by the end of its name, in any case.
func enumValue[E ~int32](flag, name, prefix string, values map[string]int32) (E, error) {
	full := prefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	if value, ok := values[full]; ok && value != 0 {
		return E(value), nil
	}
	var names []string
	for _, text := range slices.SortedFunc(maps.Keys(values), func(a, b string) int { return cmp.Compare(values[a], values[b]) }) {
		if values[text] != 0 {
			names = append(names, strings.ToLower(strings.TrimPrefix(text, prefix)))
		}
	}
	return 0, usagef("%s %q: say %s", flag, name, strings.Join(names, ", "))
}

// enumValues finds the values of several names.
func enumValues[E ~int32](flag string, names []string, prefix string, values map[string]int32) (found []E, err error) {
	for _, name := range names {
		value, err := enumValue[E](flag, name, prefix, values)
		if err != nil {
			return nil, err
		}
		found = append(found, value)
	}
	return found, nil
}

// wantBelowZero finds what less than 0 stands for in the help of a flag.
var wantBelowZero = regexp.MustCompile(`negative: (\w+)`)

// refuseZero refuses the 0 of flags whose default is 0 here and something else in the library. but names flags that mean
// the same by 0 as the library does.
func refuseZero(flags *pflag.FlagSet, but ...string) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		value := f.Value.String()
		isZero := value == "0" || value == "0s" || value == "" && f.Value.Type() == "duration"
		if !isZero || value != f.DefValue || slices.Contains(but, f.Name) || err != nil {
			return
		}
		want := "more than 0"
		if below := wantBelowZero.FindStringSubmatch(f.Usage); below != nil {
			want += ", or less than 0 for " + below[1]
		}
		err = usagef("--%s: 0: want %s", f.Name, want)
	})
	return err
}
