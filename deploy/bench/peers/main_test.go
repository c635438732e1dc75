package main

import (
	"bytes"
	"context"
	"regexp"
	"testing"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/load/loadtest"
)

// TestRun puts Waggle and asynq through a little work; BullMQ would need what npm installs.
func TestRun(t *testing.T) {
	t.Parallel()
	var out, progress bytes.Buffer
	args := []string{"-waggle", loadtest.Program(t), "-bullmq", "", "-tasks", "300", "-rounds", "1", "-tries", "1", "-batch", "10"}
	if err := run(t.Context(), args, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	for _, row := range []string{
		`Waggle, 10,000 queues, one in flight  +16 collectors, 10 tasks a call.*  1  +[1-9]\d*  +[1-9]\d*  +[1-9]\d*`,
		`Waggle, one queue  +16 collectors, 10 tasks a call.*  1  +[1-9]`,
		`Waggle, 10,000 queues, one task a call  +64 collectors, 1 tasks a call.*  1  +[1-9]`,
		`asynq, one server  +1 servers, concurrency \d+  +1  +[1-9]`,
		`asynq, several servers  +whole life  +\d+\.\d\d  +\d+\.\d\d  +\d+\.\d\d`,
	} {
		if !regexp.MustCompile(row).Match(out.Bytes()) {
			t.Errorf("no row is %s:\n%s", row, out.String())
		}
	}
}

func TestSystem_Tune(t *testing.T) {
	t.Parallel()
	s := &system{name: "some"}
	for text, works := range map[string][]float64{"often fast": {9, 8, 1}, "once fast": {1, 2, 99}} {
		s.settings = append(s.settings, fixed(text, works))
	}
	if err := s.tune(t.Context(), 3, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	if s.best.text != "often fast" {
		t.Errorf("the best setting is %q", s.best.text)
	}
}

// fixed is a setting that fetches and reports at the given rates, one after the other.
func fixed(text string, works []float64) setting {
	return setting{text: text, measure: func(context.Context) (rate, error) {
		r := rate{1, works[0], 1}
		works = works[1:]
		return r, nil
	}}
}
