package main

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/load/loadtest"
)

// TestRun measures a build in all workloads in Redis, and in some in the other stores. Its figures are compared with nothing.
func TestRun(t *testing.T) {
	t.Parallel()
	program := loadtest.Program(t)
	t.Run("TwoBuilds", func(t *testing.T) { testTwoBuilds(t, program) })
	t.Run("Interrupted", func(t *testing.T) { testInterrupted(t, program) })
	for _, c := range []struct{ stores, workloads string }{
		{"redis", strings.Join(workloadNames(), ",")}, {"memory,file", "polite,single,wake,leases,calls,floor"},
	} {
		var out, progress bytes.Buffer
		args := []string{"-a", program, "-rounds", "1", "-tasks", "220", "-store", c.stores, "-workload", c.workloads}
		if err := run(t.Context(), args, &out, &progress); err != nil {
			t.Fatalf("%v\n%s", err, progress.String())
		}
		for store := range strings.SplitSeq(c.stores, ",") {
			for w := range strings.SplitSeq(c.workloads, ",") {
				row := regexp.MustCompile(`(?m)^ *` + w + `  +` + store + `  .*  220  +1  +[0-9.]*[1-9]`)
				if found := row.Match(out.Bytes()); found != (w != "floor" || store == "redis") {
					t.Errorf("a row is %s: %v\n%s", row, found, out.String())
				}
			}
		}
	}
}

// testTwoBuilds compares the command with itself. Each begins in every other round.
func testTwoBuilds(t *testing.T, program string) {
	var out, progress bytes.Buffer
	args := []string{"-a", program, "-b", program, "-workload", "queue", "-rounds", "2", "-tasks", "1000"}
	if err := run(t.Context(), args, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	var order []string
	for line := range strings.Lines(progress.String()) {
		order = append(order, strings.Fields(line)[4])
	}
	if got := strings.Join(order, ""); got != "abba" {
		t.Errorf("the builds had their turns as %s, want abba", got)
	}
	if row := regexp.MustCompile(`queue  +redis  +tasks/s  +1000  +2  +[1-9][0-9.]+  +[1-9][0-9.]+  +[0-9.]+  +[0-9.]+-[0-9.]+`); !row.Match(out.Bytes()) {
		t.Errorf("no row is %s:\n%s", row, out.String())
	}
}

// testInterrupted shows that what was measured until then is written.
func testInterrupted(t *testing.T, program string) {
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	args := []string{"-a", program, "-workload", "queue", "-store", "memory", "-rounds", "100", "-tasks", "100"}
	err := run(ctx, args, &out, cancels(cancel))
	if err == nil || !regexp.MustCompile(`queue  memory  +tasks/s  +100  +1  `).Match(out.Bytes()) {
		t.Errorf("%v, written was\n%s", err, out.String())
	}
}

// cancels are called at the first line of progress.
type cancels func()

func (c cancels) Write(line []byte) (int, error) {
	c()
	return len(line), nil
}

func TestRun_Refuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"-b x more", "usage"},
		{"-store disk", `no store "disk"`},
		{"-store file -workload floor,bytes", "only -store redis has it"},
		{"-a x -b y -rounds 0", "usage"},
		{"-a x -tasks 99", "usage"},
		{"-a x -b y -workload slow", `no workload "slow"`},
		{"-a ./absent -b ./absent", "./absent"},
	} {
		var out, progress bytes.Buffer
		if err := run(t.Context(), strings.Fields(c.args), &out, &progress); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("bench %s: %v, want an error with %q", c.args, err, c.want)
		}
	}
}

func TestComparison_Write(t *testing.T) {
	t.Parallel()
	rate := func(a, b float64) turn { return turn{{{"tasks/s", a}}, {{"tasks/s", b}}} }
	c := comparison{programs: []string{"old", "new"}, cases: []one{{workload{name: "queues"}, "file"}, {workload{name: "sources"}, "file"}}, runs: [][]turn{
		{rate(1000, 900), rate(500, 500), rate(800, 640)},
		{rate(500, 810), rate(250, 500)},
	}}
	var out bytes.Buffer
	c.write(&out)
	const want = "queues   file  tasks/s      0       3  800.0  640.0  0.90   0.80-1.00\n"
	if !strings.Contains(out.String(), want) {
		t.Errorf("the table lacks %q:\n%s", want, out.String())
	}
}
