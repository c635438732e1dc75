package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/duration"
)

// timeForms is what a timeFlag takes, for help.
const timeForms = "2h (from now), 2026-01-31T18:00:00Z, or by the local clock 2026-01-31 (its first moment) or '2026-01-31 18:00'"

// timeFlag is a flag for a moment: a date, with a time of day or without, or how long from now.
type timeFlag struct {
	text string
	at   *timestamppb.Timestamp // nil: none was given; known when the command runs
}

var _ pflag.Value = (*timeFlag)(nil)

// timeVar adds a flag for a moment.
func timeVar(flags *pflag.FlagSet, f *timeFlag, name, usage string) {
	flags.Var(f, name, usage+": "+timeForms)
}

// Set checks and keeps the text.
func (f *timeFlag) Set(text string) error {
	f.text = text
	_, _, err := parseTime(text, time.Time{})
	return err
}

// String is what was set.
func (f *timeFlag) String() string { return f.text }

// Type is what help calls it.
func (f *timeFlag) Type() string { return "time" }

// readTimes gives the flags for moments their moments. One that was given by the local clock is noted as the instant that
// it is: the zone may be another than was meant.
func (c *client) readTimes(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(flag *pflag.Flag) {
		f, is := flag.Value.(*timeFlag)
		if !is || err != nil {
			return
		}
		var local bool
		if f.at, local, err = parseTime(f.text, c.now); local && err == nil {
			c.note("%s is %s", plain(f.text), both(c.now, f.at))
		}
	})
	return err
}

// parseTime is the moment that text names, and whether it does so by the local clock, which is that of the zone of now.
func parseTime(text string, now time.Time) (t *timestamppb.Timestamp, local bool, err error) {
	if d, err := duration.Parse(text); err == nil {
		if d < 0 {
			return nil, false, fmt.Errorf("%q is over: say how long from now, as 2h, or a time to come", text)
		}
		return timestamppb.New(now.Add(d)), false, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05Z07:00"} {
		if t, err := time.Parse(layout, text); err == nil {
			return timestamppb.New(t), false, nil
		}
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02 15:04", time.DateTime, "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return timestamppb.New(t), true, nil
		}
	}
	return nil, false, fmt.Errorf("%q is no time; say 2h (from now), 2026-01-31T18:00:00Z or 2026-01-31 (local)", text)
}
