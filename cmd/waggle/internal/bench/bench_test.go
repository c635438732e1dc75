package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/bench"
)

// program builds the command, whose own processes a bench starts.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "waggle")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/waggle-crawl/waggle/cmd/waggle")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

func TestRun(t *testing.T) {
	t.Parallel()
	path := program(t)
	t.Run("Quick", func(t *testing.T) {
		t.Parallel()
		testQuick(t, path)
	})
	t.Run("Memory", func(t *testing.T) {
		t.Parallel()
		testMemory(t, path)
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		testCluster(t, path)
	})
	t.Run("Interrupted", func(t *testing.T) {
		t.Parallel()
		testInterrupted(t, path)
	})
	t.Run("InterruptedServer", func(t *testing.T) {
		t.Parallel()
		testInterruptedServer(t, path)
	})
}

// testQuick runs the parts once, on Redis, but for those whose leases run out on
// time, which a busy machine cannot keep up with. What is measured is not
// compared with anything.
func testQuick(t *testing.T, path string) {
	pictures, temp := t.TempDir(), t.TempDir()
	cmd := exec.CommandContext(t.Context(), path, "bench", "--quick", "--only", "throughput,floor,latency,wake,flat,idle", "--store", "redis", "--duration", "50ms", "--workload", "B", "--backlog", "1000", "--queues", "10", "--output", "json", "--svg", pictures)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	var out, progress bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &progress
	if err := cmd.Run(); err != nil {
		t.Fatalf("waggle bench --quick: %v\n%s", err, progress.String())
	}
	var result bench.Result
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		t.Fatalf("its output is not the result: %v\n%s", err, out.String())
	}
	checkResult(t, &result)
	for _, name := range []string{"throughput.svg", "latency.svg"} {
		if picture, err := os.ReadFile(filepath.Join(pictures, name)); err != nil || !bytes.Contains(picture, []byte("<polyline")) {
			t.Errorf("%s: %v, %d bytes; want a picture with lines", name, err, len(picture))
		}
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("the bench left %v (%v)", left, err)
	}
	var table bytes.Buffer
	result.WriteTable(&table)
	for _, title := range []string{"Throughput", "Cost", "The floor", "Empty gRPC calls", "Latency", "Flatness", "Idle"} {
		if !strings.Contains(table.String(), "\n"+title) {
			t.Errorf("the table has no section %q:\n%s", title, table.String())
		}
	}
}

func checkResult(t *testing.T, r *bench.Result) {
	t.Helper()
	rows := map[string]int{
		"throughput": len(r.Throughput), "floor": len(r.Floor), "empty": len(r.Empty), "latency": len(r.Latency), "wake": len(r.Wake),
		"flat": len(r.Flat), "requeue": len(r.Requeue), "renew": len(r.Renew), "idle": len(r.Idle),
	}
	want := map[string]int{"throughput": 2, "floor": 2, "empty": 1, "latency": 5, "wake": 1, "flat": 2, "idle": 1}
	for part, n := range want {
		if rows[part] != n {
			t.Errorf("part %s has %d rows, want %d", part, rows[part], n)
		}
	}
	for i := range r.Flat {
		if row := &r.Flat[i]; row.Scripts < 500 {
			t.Errorf("flat ran %d scripts over %s: too few to tell of slow ones", row.Scripts, row.Over)
		}
	}
	for i := range r.Throughput {
		row := &r.Throughput[i]
		checkRates(t, row)
		if row.WorkCost.RedisCalls <= 0 || row.WorkCost.RedisCPU < 0 {
			t.Errorf("what a task cost Redis: %+v", row.WorkCost)
		}
	}
}

func checkRates(t *testing.T, row *bench.ThroughputRow) {
	t.Helper()
	if row.Submit.Median <= 0 || row.Work.Median <= 0 || row.Carried.Median <= 0 || row.Life.Median <= 0 {
		t.Errorf("a rate is missing: %+v", row)
	}
}

// testMemory measures the store that needs no Redis.
func testMemory(t *testing.T, path string) {
	cmd := exec.CommandContext(t.Context(), path, "bench", "--quick", "--store", "memory", "--processors", "1", "--only", "throughput,wake", "--duration", "50ms", "--workload", "B", "--rate", "2000", "--output", "json")
	var out, progress bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &progress
	if err := cmd.Run(); err != nil {
		t.Fatalf("waggle bench --store memory: %v\n%s", err, progress.String())
	}
	var result bench.Result
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		t.Fatalf("its output is not the result: %v\n%s", err, out.String())
	}
	if len(result.Throughput) != 2 || len(result.Wake) != 1 {
		t.Fatalf("%d rows of throughput, %d of wake, want 2 and 1", len(result.Throughput), len(result.Wake))
	}
	if result.Machine.Processors != 1 {
		t.Errorf("the result tells of %d processors a dispatcher, want 1", result.Machine.Processors)
	}
	for i := range result.Throughput {
		checkRates(t, &result.Throughput[i])
		// The first call is not held back.
		if life := result.Throughput[i].Life.Median; life > 2*2000 {
			t.Errorf("whole lives at 2,000 tasks a second went at %.0f", life)
		}
		if cost := result.Throughput[i].WorkCost; cost.RedisCalls != 0 || cost.RedisCPU != 0 {
			t.Errorf("a store without Redis cost Redis %+v", cost)
		}
	}
}

// testCluster measures on three nodes, all of which do some of the work.
func testCluster(t *testing.T, path string) {
	temp := t.TempDir()
	cmd := exec.CommandContext(t.Context(), path, "bench", "--quick", "--store", "cluster", "--only", "throughput", "--duration", "50ms", "--workload", "B", "--batch", "100", "--output", "json")
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	var out, progress bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &progress
	if err := cmd.Run(); err != nil {
		t.Fatalf("waggle bench --store cluster: %v\n%s", err, progress.String())
	}
	var result bench.Result
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		t.Fatalf("its output is not the result: %v\n%s", err, out.String())
	}
	if len(result.Throughput) != 1 {
		t.Fatalf("%d rows of throughput, want 1", len(result.Throughput))
	}
	checkRates(t, &result.Throughput[0])
	if cost := result.Throughput[0].WorkCost; cost.RedisCalls <= 0 || cost.RedisCommands <= cost.RedisCalls {
		t.Errorf("what a task cost the nodes: %+v", cost)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("the bench left %v (%v)", left, err)
	}
}

// testInterrupted ends a bench half-way: it still tells what it has, and
// leaves nothing.
func testInterrupted(t *testing.T, path string) {
	temp := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "bench", "--store", "redis", "--only", "throughput", "--workload", "A", "--collectors", "16", "--duration", "50ms", "--repeats", "1")
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
	// The first row is done when its line comes.
	line := make([]byte, 256)
	if _, err := progress.Read(line); err != nil {
		t.Fatalf("the bench told no progress: %v", err)
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
	if !strings.Contains(out.String(), "Throughput") {
		t.Errorf("an interrupted bench does not tell what it has:\n%s", out.String())
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("the bench left %v (%v)", left, err)
	}
}

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	cfg := bench.Config{}
	if err := cfg.Validate(); err != nil {
		t.Fatalf("the defaults are refused: %v", err)
	}
	if !slices.Equal(cfg.Only, bench.Parts()) || len(cfg.Batches) != 4 {
		t.Errorf("defaults: %+v", cfg)
	}
	for _, c := range []struct {
		want string
		cfg  bench.Config
	}{
		{"Only", bench.Config{Only: []string{"speed"}}},
		{"Stores", bench.Config{Stores: []string{"disk"}}},
		{"Workloads", bench.Config{Workloads: []string{"D"}}},
		{"Batches", bench.Config{Batches: []int{1001}}},
		{"Collectors", bench.Config{Collectors: []int{0}}},
		{"Processors", bench.Config{Processors: 257}},
		{"Rate", bench.Config{Rate: -1}},
		{"Duration", bench.Config{Duration: time.Hour}},
		{"Tasks", bench.Config{Tasks: 200_001}},
	} {
		if err := c.cfg.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want an error about %s", c.cfg, err, c.want)
		}
	}
}
