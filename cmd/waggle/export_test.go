package main

import (
	"context"
	"io"
	"time"
)

// What tests reach in for.
var (
	Main      = main
	Span      = span
	Exact     = exact
	ParseSpan = parseSpan
	Count     = count[int]
	BytesText = bytesText
	Since     = since
	Plain     = plain
	Brief     = brief
	VersionOf = versionOf
)

// Exit codes.
const (
	ExitOK     = exitOK
	ExitFailed = exitFailed
	ExitUsage  = exitUsage
)

// Run runs a command with the given environment.
func Run(ctx context.Context, args []string, in io.Reader, out, err io.Writer, env map[string]string) int {
	return run(ctx, args, console{in: in, out: out, err: err, env: func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}})
}

// TimeAt reads what --until takes.
func TimeAt(text string, now time.Time) (time.Time, error) {
	var f timeFlag
	if err := f.Set(text); err != nil {
		return time.Time{}, err
	}
	t, err := f.at(now)
	return t.AsTime(), err
}
