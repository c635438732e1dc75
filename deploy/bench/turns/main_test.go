package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/deploy/load/loadtest"
)

// TestRun measures a build in all workloads. Its figures are compared with nothing.
func TestRun(t *testing.T) {
	t.Parallel()
	var out, progress bytes.Buffer
	if err := run(t.Context(), []string{"-a", loadtest.Program(t), "-rounds", "1", "-tasks", "1100"}, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	for _, w := range workloads() {
		if row := regexp.MustCompile(`(?m)^ *` + w.name + `  .*  1100  +1  +[0-9.]*[1-9]`); !row.Match(out.Bytes()) {
			t.Errorf("no row is %s:\n%s", row, out.String())
		}
	}
}

// TestRun_TwoBuilds compares the command with itself. Each begins in every other round.
func TestRun_TwoBuilds(t *testing.T) {
	t.Parallel()
	program := loadtest.Program(t)
	var out, progress bytes.Buffer
	args := []string{"-a", program, "-b", program, "-workload", "queue", "-rounds", "2", "-tasks", "1000"}
	if err := run(t.Context(), args, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	var order []string
	for line := range strings.Lines(progress.String()) {
		order = append(order, strings.Fields(line)[3])
	}
	if got := strings.Join(order, ""); got != "abba" {
		t.Errorf("the builds had their turns as %s, want abba", got)
	}
	if row := regexp.MustCompile(`queue  +tasks/s  +1000  +2  +[1-9]\d+  +[1-9]\d+  +[0-9.]+  +[0-9.]+-[0-9.]+`); !row.Match(out.Bytes()) {
		t.Errorf("no row is %s:\n%s", row, out.String())
	}
}

func TestRun_Refuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"-b x", "usage"},
		{"-a x -b y -rounds 0", "usage"},
		{"-a x -tasks 99", "usage"},
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
	rate := func(a, b float64) turn { return turn{{{"tasks/s", a}}, {{"tasks/s", b}}} }
	c := comparison{programs: []string{"old", "new"}, workloads: []workload{{name: "queues"}, {name: "sources"}}, runs: [][]turn{
		{rate(1000, 900), rate(500, 500), rate(800, 640)},
		{rate(500, 810), rate(250, 500)},
	}}
	var out bytes.Buffer
	c.write(&out)
	const want = "queues  tasks/s      0       3  800.0  640.0  0.90   0.80-1.00\n"
	if !strings.Contains(out.String(), want) {
		t.Errorf("the table lacks %q:\n%s", want, out.String())
	}
}
