package bench

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/deploy/load"
)

// figures are what one repeat measured, by the name of the metric.
type figures map[string]float64

// latency adds the metrics of a distribution of times, in milliseconds.
func (f figures) latency(name string, all []time.Duration) {
	f[name+"_p50"] = load.Quantile(all, 0.50).Seconds() * 1e3
	f[name+"_p99"] = load.Quantile(all, 0.99).Seconds() * 1e3
}

// metric is a figure of a workload: its name in JSON, and what the table has.
type metric struct{ name, title, unit, format string }

func metrics() []metric {
	return []metric{
		{"submit", "submit", "tasks/s", "%.0f"},
		{"fetch_report", "fetch and report", "tasks/s", "%.0f"},
		{"dispatcher_cpu", "  CPU, dispatcher", "µs/task", "%.1f"},
		{"redis_cpu", "  CPU, Redis", "µs/task", "%.1f"},
		{"redis_bytes", "Redis memory", "bytes/task", "%.0f"},
		{"one_a_call", "one task a call", "tasks/s", "%.0f"},
		{"fetch_p50", "fetch p50", "ms", "%.2f"},
		{"fetch_p99", "fetch p99", "ms", "%.2f"},
		{"report_p50", "report p50", "ms", "%.2f"},
		{"report_p99", "report p99", "ms", "%.2f"},
		{"wake_up_p50", "wake-up p50", "ms", "%.2f"},
		{"wake_up_p99", "wake-up p99", "ms", "%.2f"},
	}
}

// Result is what a bench measured, and where.
type Result struct {
	System string `json:"system"`
	Cores  int    `json:"cores"`
	Go     string `json:"go"`
	// LoadBefore is the load average of the last minute before: above 0, others used the machine.
	LoadBefore string `json:"load_before,omitempty"`
	config
	// Rows by store, then by workload.
	Rows []*Row `json:"rows"`
}

// Row is one workload on one store.
type Row struct {
	Store    string `json:"store"`
	Workload string `json:"workload"`
	// Figures are over the repeats, by the name of the metric; 0 is what was not measured.
	Figures map[string]load.Spread `json:"figures"`

	repeats []figures
}

func newResult(c config) *Result {
	r := &Result{System: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version(), config: c}
	if average, err := os.ReadFile("/proc/loadavg"); err == nil {
		r.LoadBefore, _, _ = strings.Cut(string(average), " ")
	}
	return r
}

// row finds a workload of a store; nil if it was not measured.
func (r *Result) row(store, workload string) *Row {
	i := slices.IndexFunc(r.Rows, func(row *Row) bool { return row.Store == store && row.Workload == workload })
	if i < 0 {
		return nil
	}
	return r.Rows[i]
}

// add takes in one repeat.
func (r *Result) add(store, workload string, f figures) {
	row := r.row(store, workload)
	if row == nil {
		row = &Row{Store: store, Workload: workload, Figures: map[string]load.Spread{}}
		r.Rows = append(r.Rows, row)
	}
	row.repeats = append(row.repeats, f)
	for _, m := range metrics() {
		row.Figures[m.name] = load.SpreadOf(row.repeats, func(f figures) float64 { return f[m.name] })
	}
}

// WriteTable writes the medians for people, in lines of at most 80 columns.
func (r *Result) WriteTable(out io.Writer) {
	processors := ""
	if r.Processors > 0 {
		processors = fmt.Sprintf("; dispatcher with GOMAXPROCS=%d", r.Processors)
	}
	fmt.Fprintf(out, `%s, %d cores, %s; load average before: %s
Medians, repeats: %d%s.
Tasks a call: %d, collectors: %d; from "one task a call" on: 1 and 16.
`, r.System, r.Cores, r.Go, cmp.Or(r.LoadBefore, "unknown"), r.Repeats, processors, r.Batch, r.Collectors)
	for _, store := range Stores() {
		head, rows := []string{strings.ToUpper(store), "UNIT"}, []*Row{}
		for _, workload := range Workloads() {
			if row := r.row(store, workload); row != nil {
				head, rows = append(head, ">"+workload), append(rows, row)
			}
		}
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintln(out)
		t := human.NewTable(head...)
		for _, m := range metrics() {
			cells := []string{m.title, m.unit}
			for _, row := range rows {
				text := "-"
				if median := row.Figures[m.name].Median; median != 0 {
					text = fmt.Sprintf(m.format, median)
				}
				cells = append(cells, text)
			}
			t.Row(cells...)
		}
		t.Write(out, "")
	}
}
