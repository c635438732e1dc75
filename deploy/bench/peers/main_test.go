package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/deploy/load/loadtest"
)

// TestRun puts Waggle and asynq through a little work; BullMQ would need what npm installs.
func TestRun(t *testing.T) {
	t.Parallel()
	var out, progress bytes.Buffer
	args := []string{"-waggle", loadtest.Program(t), "-bullmq", "", "-tasks", "300", "-rounds", "1", "-tries", "1", "-batch", "1"}
	if err := run(t.Context(), args, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	for _, name := range []string{"Waggle", "asynq, one server", "asynq, several servers"} {
		if want := name + "       1  "; !strings.Contains(out.String(), want) {
			t.Errorf("no row begins %q:\n%s", want, out.String())
		}
	}
	if !strings.Contains(out.String(), "1.00x") {
		t.Errorf("Waggle is not once as fast as itself:\n%s", out.String())
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
