package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/waggle-crawl/waggle/deploy/load"
)

// Result is what a bench found: medians of the repeats.
type Result struct {
	System string `json:"system"`
	Cores  int    `json:"cores"`
	Go     string `json:"go"`
	// LoadBefore is the load average of the last minute before: above 0, others used the machine.
	LoadBefore string `json:"load_before,omitempty"`
	// What was asked for.
	Tasks      int `json:"tasks"`
	Repeats    int `json:"repeats"`
	Batch      int `json:"batch"`
	Collectors int `json:"collectors"`
	Processors int `json:"dispatcher_processors,omitempty"`
	// Rows by store, then by workload.
	Rows []Row `json:"rows"`
}

// Row is one workload on one store. Rates are tasks a second, CPU is µs a task, 0 where the system does not tell.
type Row struct {
	Store    string `json:"store"`
	Workload string `json:"workload"`
	// Submit, and Work: fetched and reported, so many tasks a call as was asked for.
	Submit load.Spread `json:"submit"`
	Work   load.Spread `json:"fetch_report"`
	// ByA is Work by that of workload A, 0 without it; the median of the repeats' ratios, as Ratio is.
	ByA           float64 `json:"fetch_report_by_a,omitempty"`
	DispatcherCPU float64 `json:"dispatcher_cpu_us"`
	RedisCPU      float64 `json:"redis_cpu_us"`
	// Bytes of Redis memory for each submitted task, with its share of its queue.
	Bytes float64 `json:"redis_bytes"`
	// TwoCalls and Carried: fetched and reported, one task a call, the report in a call of its own or in the next fetch.
	TwoCalls load.Spread `json:"two_calls"`
	Carried  load.Spread `json:"carried"`
	// Ratio is Carried by TwoCalls. CPU is of dispatcher and Redis together.
	Ratio       float64 `json:"carried_by_two_calls"`
	TwoCallsCPU float64 `json:"two_calls_cpu_us"`
	CarriedCPU  float64 `json:"carried_cpu_us"`
	// Fetch and Report are single calls, WakeUp from a submit to the delivery at a waiting collector.
	Fetch  Latency `json:"fetch"`
	Report Latency `json:"report"`
	WakeUp Latency `json:"wake_up"`
}

// Latency is a distribution of times, in seconds; all 0 when it was not measured.
type Latency struct {
	P50 float64 `json:"p50_seconds"`
	P99 float64 `json:"p99_seconds"`
}

// latencyCollectors is how many collectors make the calls that are timed.
const latencyCollectors = 16

// WriteTable writes the result for people, in lines of at most 80 columns.
func (r *Result) WriteTable(out io.Writer) {
	fmt.Fprintf(out, "%s, %d cores, %s; load average before: %s\n", r.System, r.Cores, r.Go, or(r.LoadBefore, "unknown"))
	processors := ""
	if r.Processors > 0 {
		processors = fmt.Sprintf("; dispatcher with GOMAXPROCS=%d", r.Processors)
	}
	fmt.Fprintf(out, "Medians, repeats: %d%s.\n", r.Repeats, processors)
	fmt.Fprint(out, "A: 1 queue. B: 1,000 queues. S: 1,000 queues, each of a source of its own.\nP: 10,000 queues with one request in flight. Payloads have 200 bytes.\n")

	title := fmt.Sprintf("Tasks a second, tasks a call: %d, collectors: %d. By A: fetch and report by\nthat of A. CPU of it in µs a task; Redis memory in bytes a task.", r.Batch, r.Collectors)
	r.grid(out, title, "submit|fetch+report|by A|dispatcher|Redis CPU|memory|", func(w *Row) string {
		return fmt.Sprintf("%.0f|%.0f|%s|%s|%s|%s|", w.Submit.Median, w.Work.Median, known("%.2f", w.ByA),
			known("%.1f", w.DispatcherCPU), known("%.1f", w.RedisCPU), known("%.0f", w.Bytes))
	})
	r.grid(out, "One task a call, 64 collectors, tasks a second: the report in a call of its own,\nor carried in the next fetch. CPU of dispatcher and Redis in µs a task.",
		"two calls|carried|ratio|CPU: two calls|carried|", func(w *Row) string {
			return fmt.Sprintf("%.0f|%.0f|%.2f|%s|%s|", w.TwoCalls.Median, w.Carried.Median, w.Ratio, known("%.1f", w.TwoCallsCPU), known("%.1f", w.CarriedCPU))
		})
	r.grid(out, fmt.Sprintf("Latency in ms: one task a call, %d collectors; wake-up: from a submit to the\ndelivery at one of %d that wait.", latencyCollectors, latencyCollectors),
		"fetch p50|p99|report p50|p99|wake-up p50|p99|", func(w *Row) string {
			return fmt.Sprintf("%s|%s|%s|%s|%s|%s|", millis(w.Fetch.P50), millis(w.Fetch.P99), millis(w.Report.P50), millis(w.Report.P99), millis(w.WakeUp.P50), millis(w.WakeUp.P99))
		})
}

// grid writes a titled table of all rows.
func (r *Result) grid(out io.Writer, title, head string, cells func(*Row) string) {
	fmt.Fprintf(out, "\n%s\n\n", title)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, strings.ReplaceAll("store|workload|"+head, "|", "\t"))
	for i := range r.Rows {
		row := &r.Rows[i]
		fmt.Fprintln(w, strings.ReplaceAll(row.Store+"|"+row.Workload+"|"+cells(row), "|", "\t"))
	}
	w.Flush()
}

func or(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// known writes a number, and nothing for 0, which is what was not measured.
func known(format string, n float64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf(format, n)
}

func millis(seconds float64) string { return known("%.2f", seconds*1e3) }
