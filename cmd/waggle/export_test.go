package main

import (
	"context"
	"io"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/duration"
	"github.com/waggle-crawl/waggle/collector"
)

// What tests reach in for.
var (
	Main      = main
	Span      = span
	Exact     = duration.Format
	ParseSpan = duration.Parse
	Count     = count[int]
	BytesText = bytesText[int64]
	Since     = since
	Plain     = plain
	Brief     = brief
	VersionOf = versionOf

	OperatorName = operatorName

	WithHeapFloor = withHeapFloor
	HeapFloor     = int64(heapFloor)

	NewTally      = newTally
	TallyCounting = (*tally).counting
	ScreenShow    = (*screen).show
	MaxTallied    = maxTallied
)

// Exit codes.
const (
	ExitOK     = exitOK
	ExitFailed = exitFailed
	ExitUsage  = exitUsage
)

// Run runs a command with the given environment.
func Run(ctx context.Context, args []string, in io.Reader, out, err io.Writer, env map[string]string) int {
	return RunSubmitting(ctx, args, in, out, err, env, 0)
}

// RunSubmitting is Run where what a slow producer gives is submitted after wait.
func RunSubmitting(ctx context.Context, args []string, in io.Reader, out, err io.Writer, env map[string]string, wait time.Duration) int {
	return run(ctx, args, in, out, err, console{submitWait: wait, env: func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}})
}

// TimeAt reads what --until takes.
func TimeAt(text string, now time.Time) (time.Time, error) {
	t, _, err := parseTime(text, now)
	return t.AsTime(), err
}

// NewScreen makes a live screen of a terminal of the given size.
func NewScreen(out io.Writer, width, height int) *screen {
	return &screen{out: out, live: true, size: func() (int, int) { return width, height }}
}

// ViewOf is what the live view shows of a tally that has counted for so long.
func ViewOf(t *tally, took time.Duration, stats collector.Stats, state string) []string {
	counts := t.snapshot()
	return viewLines(&view{
		id: "paris-1", pools: []string{"default", "eu"}, servers: []string{"a:7070"}, up: took, now: sample{stats: stats, totals: counts},
		pace: paceOf(totals{}, counts, took), failing: t.failing(viewHosts), state: state,
	})
}
