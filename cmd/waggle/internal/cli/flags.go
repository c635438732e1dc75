package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
	"github.com/waggle-crawl/waggle/dispatch/duration"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// valueFlag is a flag whose value a function reads.
type valueFlag struct {
	kind string // as help calls it
	text string // what was read, always in the same form
	read func(text string) (string, error)
	// choices are all there are; none: what read takes.
	choices []string
}

// Set implements [pflag.Value].
func (f *valueFlag) Set(text string) (err error) {
	f.text, err = f.read(text)
	return err
}

// String implements [pflag.Value].
func (f *valueFlag) String() string { return f.text }

// Type implements [pflag.Value].
func (f *valueFlag) Type() string { return f.kind }

// ValueVar adds a flag that read takes apart; it returns the value as text, always in the same form.
func ValueVar(flags *pflag.FlagSet, name, kind, usage string, read func(text string) (string, error)) {
	flags.Var(&valueFlag{kind: kind, read: read}, name, usage)
}

// SpanVar adds a flag for a duration that may be given in days.
func SpanVar(flags *pflag.FlagSet, into *time.Duration, name, usage string) {
	ValueVar(flags, name, "duration", usage, func(text string) (_ string, err error) {
		*into, err = parseSpan(text)
		return duration.Text(*into), err
	})
}

// DurationVar adds a flag for a duration that sets a field of a message.
func DurationVar(flags *pflag.FlagSet, into **durationpb.Duration, name, usage string) {
	ValueVar(flags, name, "duration", usage, func(text string) (string, error) {
		d, err := parseSpan(text)
		*into = durationpb.New(d)
		return duration.Text(d), err
	})
}

func parseSpan(text string) (time.Duration, error) {
	d, err := duration.Parse(text)
	if err == nil && d < 0 {
		err = fmt.Errorf("%q is less than 0", text)
	}
	return d, err
}

// AdaptiveVar adds a flag for a shortest and a longest interval.
func AdaptiveVar(flags *pflag.FlagSet, into **pb.Adaptive, name, usage string) {
	ValueVar(flags, name, "range", usage, func(text string) (string, error) {
		from, to, ok := strings.Cut(text, "..")
		if !ok {
			return "", fmt.Errorf("%q is no range; say 10m..7d", text)
		}
		shortest, shortErr := parseSpan(from)
		longest, longErr := parseSpan(to)
		if err := cmp.Or(shortErr, longErr); err != nil {
			return "", fmt.Errorf("%q: %w", text, err)
		}
		*into = &pb.Adaptive{MinInterval: durationpb.New(shortest), MaxInterval: durationpb.New(longest)}
		return text, nil
	})
}

// PairsVar adds a flag that takes key=value, may be repeated, and may hold several with commas between them. No key may
// come twice: one of its values would be lost.
func PairsVar(flags *pflag.FlagSet, into *map[string]string, name, usage string) {
	ValueVar(flags, name, "key=value", usage, func(text string) (string, error) {
		for pair := range strings.SplitSeq(text, ",") {
			key, value, ok := strings.Cut(pair, "=")
			if !ok || key == "" {
				return "", fmt.Errorf("%q is not key=value", pair)
			}
			if _, given := (*into)[key]; given {
				return "", fmt.Errorf("%q is given twice", key)
			}
			if *into == nil {
				*into = map[string]string{}
			}
			(*into)[key] = value
		}
		return human.Pairs(*into), nil
	})
}

// QueueVar adds a flag for a queue: its name, a host in whatever case and script, or a URL.
func QueueVar(flags *pflag.FlagSet, into *string, name, usage string) {
	ValueVar(flags, name, "name", usage, func(text string) (string, error) {
		*into = canonical.QueueName(text)
		return *into, nil
	})
}

// QueuePattern is a pattern of queues as rules and holds have it.
func QueuePattern(text string) string {
	if name, suffix := strings.CutPrefix(text, "*."); suffix {
		return "*." + canonical.QueueName(name)
	}
	return canonical.QueueName(text)
}

// timeForms is what a flag for a moment takes, for help.
const timeForms = "2h (from now), 2026-01-31T18:00:00Z, or by the local clock 2026-01-31 (its first moment) or '2026-01-31 18:00'"

// TimeVar adds a flag for a moment: a date, with a time of day or without, or how long from now.
func TimeVar(flags *pflag.FlagSet, into **timestamppb.Timestamp, name, usage string) {
	ValueVar(flags, name, "time", usage+": "+timeForms, func(text string) (_ string, err error) {
		*into, err = parseTime(text, time.Now())
		return text, err
	})
}

// parseTime is the moment that text names. A local clock is that of the zone of now.
func parseTime(text string, now time.Time) (*timestamppb.Timestamp, error) {
	if d, err := duration.Parse(text); err == nil {
		if d < 0 {
			return nil, fmt.Errorf("%q is over: say how long from now, as 2h, or a time to come", text)
		}
		return timestamppb.New(now.Add(d)), nil
	}
	for _, layout := range []string{
		time.RFC3339, "2006-01-02 15:04:05Z07:00", time.DateOnly, "2006-01-02 15:04", time.DateTime, "2006-01-02T15:04", "2006-01-02T15:04:05",
	} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return timestamppb.New(t), nil
		}
	}
	return nil, fmt.Errorf("%q is no time; say 2h (from now), 2026-01-31T18:00:00Z or 2026-01-31 (local)", text)
}

// ChoiceVar adds a flag for one of a few texts.
func ChoiceVar(flags *pflag.FlagSet, into *string, name, shorthand, value, usage string, choices ...string) {
	*into = value
	flags.VarP(&valueFlag{kind: "string", text: value, choices: choices, read: func(text string) (string, error) {
		if !slices.Contains(choices, text) {
			return "", notAmong(text, choices)
		}
		*into = text
		return text, nil
	}}, name, shorthand, usage)
}

// ChoicesVar adds a flag for some of a few texts. It may be repeated, and may hold several with commas between them.
func ChoicesVar(flags *pflag.FlagSet, take func(string), name, usage string, choices ...string) {
	flags.Var(&valueFlag{kind: "string", choices: choices, read: func(text string) (string, error) {
		for word := range strings.SplitSeq(text, ",") {
			if !slices.Contains(choices, word) {
				return "", notAmong(word, choices)
			}
			take(word)
		}
		return text, nil
	}}, name, usage)
}

func notAmong(text string, choices []string) error {
	return fmt.Errorf("%q is unknown; say %s", text, strings.Join(choices, ", "))
}

// EnumVar adds a flag for a value of an enum: the end of its name, in any case. Help lists all of values but the one that
// is 0.
func EnumVar[E ~int32](flags *pflag.FlagSet, into *E, name, usage, prefix string, values map[string]int32) {
	enumVar(flags, func(e E) { *into = e }, name, usage, prefix, values)
}

// EnumsVar is EnumVar for a flag that may be repeated, and may hold several with commas between them.
func EnumsVar[E ~int32](flags *pflag.FlagSet, into *[]E, name, usage, prefix string, values map[string]int32) {
	enumVar(flags, func(e E) { *into = append(*into, e) }, name, usage, prefix, values)
}

func enumVar[E ~int32](flags *pflag.FlagSet, take func(E), name, usage, prefix string, values map[string]int32) {
	var choices []string
	for _, text := range slices.SortedFunc(maps.Keys(values), func(a, b string) int { return cmp.Compare(values[a], values[b]) }) {
		if values[text] != 0 {
			choices = append(choices, strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(text, prefix)), "_", "-"))
		}
	}
	flags.Var(&valueFlag{kind: "string", choices: choices, read: func(text string) (string, error) {
		for word := range strings.SplitSeq(text, ",") {
			word = strings.ToLower(strings.ReplaceAll(word, "_", "-"))
			if !slices.Contains(choices, word) {
				return "", notAmong(word, choices)
			}
			take(E(values[prefix+strings.ToUpper(strings.ReplaceAll(word, "-", "_"))]))
		}
		return text, nil
	}}, name, usage+": "+strings.Join(choices, ", "))
}

// Choices are all values that a flag takes, if it takes a few texts only.
func Choices(f *pflag.Flag) []string {
	if value, ok := f.Value.(*valueFlag); ok {
		return value.choices
	}
	return nil
}

// RefuseZero refuses the 0 of flags whose default is 0 here and something else in the library. but names flags that mean
// the same by 0 as the library does.
func RefuseZero(flags *pflag.FlagSet, but ...string) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		isZero := func(value string) bool { return value == "0" || value == "0s" }
		isDefault := isZero(f.DefValue) || f.DefValue == "" && f.Value.Type() == "duration"
		if !isZero(f.Value.String()) || !isDefault || slices.Contains(but, f.Name) || err != nil {
			return
		}
		err = Usagef("--%s: 0: want another value, or leave it out for the default", f.Name)
	})
	return err
}

// FlagError is the usageError of a flag that pflag refused. The variable set it, unless that is empty. The flag's own
// words name the value, unless it is a secret.
func FlagError(err error, variable string) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return &UsageError{err: err}
	}
	problem := invalid.Unwrap()
	if _, ours := invalid.GetFlag().Value.(*valueFlag); !ours { // pflag's words name functions of Go
		want := map[string]string{"duration": "a duration such as 10s or 1h30m", "bool": "true or false"}[invalid.GetFlag().Value.Type()]
		problem = fmt.Errorf("%q: want %s", invalid.GetValue(), cmp.Or(want, "a number that is not too large"))
	}
	return Usagef("%s: %w", cmp.Or(variable, "--"+invalid.GetFlag().Name), problem)
}
