package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/bench"
	"github.com/waggle-crawl/waggle/deploy/load"
	"github.com/waggle-crawl/waggle/deploy/load/loadtest"
)

func TestRun(t *testing.T) {
	t.Parallel()
	path := loadtest.Program(t)
	t.Run("Quick", func(t *testing.T) {
		t.Parallel()
		testQuick(t, path)
	})
	t.Run("Interrupted", func(t *testing.T) {
		t.Parallel()
		testInterrupted(t, path)
	})
}

// testQuick runs everything once. What is measured is compared with nothing.
func testQuick(t *testing.T, path string) {
	temp := t.TempDir()
	cmd := exec.CommandContext(t.Context(), path, "bench", "--tasks", "200", "--repeats", "1", "--processors", "1", "--output", "json")
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	var out, progress bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &progress
	if err := cmd.Run(); err != nil {
		t.Fatalf("waggle bench: %v\n%s", err, progress.String())
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("the bench left %v (%v)", left, err)
	}
	var result bench.Result
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		t.Fatalf("its output is not the result: %v\n%s", err, out.String())
	}
	if want := len(bench.Stores()) * len(bench.Workloads()); len(result.Rows) != want {
		t.Fatalf("%d rows, want %d", len(result.Rows), want)
	}
	for _, r := range result.Rows {
		for _, name := range []string{
			"submit", "fetch_report", "one_a_call", "fetch_p50", "report_p99", "wake_up_p50",
		} {
			if value := r.Figures[name].Median; value <= 0 {
				t.Errorf("%s, workload %s: %s is %v", r.Store, r.Workload, name, value)
			}
		}
		bytes, cpu := r.Figures["redis_bytes"].Median, r.Figures["redis_cpu"].Median
		if redis := r.Store == load.StoreRedis; redis != (bytes > 0) || !redis && cpu > 0 {
			t.Errorf("%s, workload %s: %v bytes, %v µs of Redis", r.Store, r.Workload, bytes, cpu)
		}
	}
	var table bytes.Buffer
	result.WriteTable(&table)
	for line := range strings.Lines(table.String()) {
		if n := utf8.RuneCountInString(line) - 1; n > 80 {
			t.Errorf("a line of the table has %d columns: %s", n, line)
		}
	}
	for _, head := range []string{"REDIS ", "MEMORY ", "FILE "} {
		if !strings.Contains(table.String(), "\n"+head) {
			t.Errorf("there is no table of %s:\n%s", head, table.String())
		}
	}
}

// testInterrupted ends a bench half-way: it writes what it has, and leaves nothing.
func testInterrupted(t *testing.T, path string) {
	temp := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "bench", "--store", "redis", "--workload", "queue,queues", "--tasks", "1000", "--repeats", "100")
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	var out bytes.Buffer
	cmd.Stdout = &out
	progress, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// The first measurement is done when its line comes.
	if _, err := progress.Read(make([]byte, 256)); err != nil {
		t.Fatalf("the bench wrote no progress: %v", err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(progress)
	if err != nil || !strings.HasSuffix(string(rest), "waggle: interrupted; the result has what was measured until then\n") {
		t.Errorf("an interrupted bench ends with (%v)\n%s", err, rest)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("an interrupted bench exits 0")
	}
	if !strings.Contains(out.String(), "\nREDIS ") {
		t.Errorf("an interrupted bench does not write what it has:\n%s", out.String())
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("the bench left %v (%v)", left, err)
	}
}
