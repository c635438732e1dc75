package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/deploy/load"
	"github.com/waggle-crawl/waggle/deploy/load/loadtest"
)

// TestRun compares the command with itself, in all workloads. Its figures are compared with nothing.
func TestRun(t *testing.T) {
	t.Parallel()
	program := loadtest.Program(t)
	var out, progress bytes.Buffer
	if err := run(t.Context(), []string{"-a", program, "-b", program, "-rounds", "2", "-tasks", "1100"}, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	for _, w := range workloads() {
		if want := w.Name + "       2  "; !strings.Contains(out.String(), want) {
			t.Errorf("no row begins %q:\n%s", want, out.String())
		}
	}
	// Each build begins in every other round.
	var order []string
	for line := range strings.Lines(progress.String()) {
		if fields := strings.Fields(line); fields[2] == "queue" {
			order = append(order, fields[3])
		}
	}
	if got := strings.Join(order, ""); got != "abba" {
		t.Errorf("the builds had their turns as %s, want abba", got)
	}
}

func TestRun_Refuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"-a x", "usage"},
		{"-a x -b y -rounds 0", "usage"},
		{"-a x -b y -workload slow", `no workload "slow"`},
		{"-a ./absent -b ./absent", "./absent"},
	} {
		var out, progress bytes.Buffer
		if err := run(t.Context(), strings.Fields(c.args), &out, &progress); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("turns %s: %v, want an error with %q", c.args, err, c.want)
		}
	}
}

func TestComparison_Write(t *testing.T) {
	t.Parallel()
	queues := workload{Workload: load.Workload{Name: "queues"}}
	sources := workload{Workload: load.Workload{Name: "sources"}}
	c := comparison{programs: [2]string{"old", "new"}, workloads: []workload{queues, sources}, runs: [][]turn{
		{{{rate: 1000, cpu: 50}, {rate: 900, cpu: 60}}, {{rate: 500, cpu: 50}, {rate: 500, cpu: 50}}, {{rate: 800, cpu: 40}, {rate: 640, cpu: 44}}},
		{{{rate: 500, cpu: 50}, {rate: 810, cpu: 60}}, {{rate: 250, cpu: 50}, {rate: 500, cpu: 50}}},
	}}
	var out bytes.Buffer
	c.write(&out)
	const want = "queues       3     800     640  0.90   0.80-1.00   50.0   50.0  1.10   1.00-1.20\n"
	if !strings.Contains(out.String(), want) {
		t.Errorf("the table lacks %q:\n%s", want, out.String())
	}
}
