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
	if err := run(t.Context(), []string{"-waggle", loadtest.Program(t), "-tasks", "2000", "-rounds", "1"}, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	for _, row := range []string{`(?m)^ +1  +[1-9]\d* +[1-9]\d* +[1-9]\d* `, `(?m)^ +1000  +[1-9]\d* +[1-9]\d* +[1-9]\d* `, `(?m)^ +64  +[1-9]\d* `} {
		if !regexp.MustCompile(row).Match(out.Bytes()) {
			t.Errorf("no row is %s:\n%s", row, out.String())
		}
	}
}
