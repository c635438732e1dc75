package main

import (
	"bytes"
	"regexp"
	"testing"

	"github.com/waggle-crawl/waggle/deploy/load/loadtest"
)

func TestRun(t *testing.T) {
	t.Parallel()
	var out, progress bytes.Buffer
	if err := run(t.Context(), []string{"-waggle", loadtest.Program(t), "-most", "10000", "-chunks", "2"}, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	// A waiting task takes some hundred bytes.
	for _, row := range []string{`tasks +1000 +1000 .* [1-9]\d\d+\n`, `tasks +10000 +1000 .* [1-9]\d\d+\n`, `queues +10000 +10000 .* [1-9]\d\d+\n`} {
		if !regexp.MustCompile(row).Match(out.Bytes()) {
			t.Errorf("no row is %s:\n%s", row, out.String())
		}
	}
}
