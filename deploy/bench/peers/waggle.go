package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
)

// waggle is measured by its own bench: one dispatcher and the collectors in a
// process each, gRPC between them.
type waggle struct {
	o *options
	// processors that the dispatcher may use at once; 0 = all.
	processors int
}

func (w *waggle) name() string { return "waggle" }

// choices are about Redis, which has one processor for itself only if others leave it
// one.
func (w *waggle) choices() []string { return []string{"0 processors", "1 processors"} }

func (w *waggle) choose(choice string) {
	// The choices above are of this form.
	_, _ = fmt.Sscanf(choice, "%d processors", &w.processors)
}

func (w *waggle) settings() string {
	processors := "all processors"
	if w.processors > 0 {
		processors = fmt.Sprintf("GOMAXPROCS=%d", w.processors)
	}
	return fmt.Sprintf("workload %s, %d tasks a call, %d collectors, 1 dispatcher with %s; settled tasks are remembered for a minute",
		w.o.workload, w.o.batch, w.o.collectors, processors)
}

func (w *waggle) measure(ctx context.Context) (rate, error) {
	cmd := exec.CommandContext(ctx, w.o.waggle, "bench", "--only", "throughput", "--store", "redis", "--workload", w.o.workload,
		"--batch", strconv.Itoa(w.o.batch), "--collectors", strconv.Itoa(w.o.collectors), "--repeats", "1", "--tasks", strconv.Itoa(w.o.tasks), "--processors", strconv.Itoa(w.processors), "--output", "json")
	text, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return rate{}, fmt.Errorf("waggle bench: %w\n%s", err, exit.Stderr)
		}
		return rate{}, fmt.Errorf("waggle bench: %w", err)
	}
	type sample struct {
		Median float64 `json:"median"`
	}
	var result struct {
		Throughput []struct {
			Submit  sample `json:"submit"`
			Work    sample `json:"fetch_report"`
			Carried sample `json:"fetch_report_carried"`
			Life    sample `json:"whole_life"`
		} `json:"throughput"`
	}
	if err := json.Unmarshal(text, &result); err != nil {
		return rate{}, fmt.Errorf("read what waggle bench wrote: %w", err)
	}
	if len(result.Throughput) != 1 {
		return rate{}, fmt.Errorf("waggle bench wrote %d rows, not 1", len(result.Throughput))
	}
	row := result.Throughput[0]
	work := row.Work.Median
	if w.o.batch == 1 {
		// What a collector does that works on one task at a time.
		work = row.Carried.Median
	}
	return rate{submit: row.Submit.Median, work: work, life: row.Life.Median}, nil
}
