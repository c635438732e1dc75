package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteTable writes the result for people.
func (r *Result) WriteTable(out io.Writer) {
	m := r.Machine
	fmt.Fprintf(out, "%s, %d cores, %s; Redis %s; load average before %s; median of %d, spread in brackets\n",
		m.System, m.Cores, m.Go, or(m.Redis, "none"), or(m.LoadBefore, "unknown"), m.Repeats)
	if m.Processors > 0 {
		fmt.Fprintf(out, "Each dispatcher had GOMAXPROCS=%d.\n", m.Processors)
	}
	for _, section := range []func(io.Writer){
		r.writeThroughput, r.writeCost, r.writeFloor, r.writeLatency, r.writeFlat, r.writeKeeping,
	} {
		section(out)
	}
}

func or(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// grid writes a titled table; nothing without rows.
func grid(out io.Writer, title, head string, rows []string) {
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(out, "\n%s\n", title)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.ReplaceAll(head, "|", "\t"))
	for _, row := range rows {
		fmt.Fprintln(w, strings.ReplaceAll(row, "|", "\t"))
	}
	w.Flush()
}

func (r *Result) writeThroughput(out io.Writer) {
	var rows []string
	for i := range r.Throughput {
		t := &r.Throughput[i]
		rows = append(rows, fmt.Sprintf("%s|%s|%d|%d|%s|%s|%s|%s", t.Store, t.Workload, t.Batch, t.Collectors,
			spread(t.Submit), spread(t.Work), spread(t.Carried), spread(t.Life)))
	}
	at := "at once"
	if r.Machine.Rate > 0 {
		at = fmt.Sprintf("at once, %d tasks a second", r.Machine.Rate)
	}
	grid(out, "Throughput, tasks a second. A: 1 queue; B: 1,000 queues; C: 10,000 queues 100 ms apart; 200-byte payloads.\nCarried: reports go along in FetchTask. Whole life: submitted, fetched and reported "+at+".",
		"store|workload|batch|collectors|submit|fetch and report|carried|whole life", rows)
}

func (r *Result) writeCost(out io.Writer) {
	var rows []string
	for i := range r.Throughput {
		t := &r.Throughput[i]
		if t.WorkCost == (Cost{}) {
			continue
		}
		for _, c := range []struct {
			what string
			cost *Cost
		}{{"submit", &t.SubmitCost}, {"fetch, report", &t.WorkCost}, {"whole life", &t.LifeCost}} {
			rows = append(rows, fmt.Sprintf("%s|%s|%d|%d|%s|%s|%s|%s|%s|%s", t.Store, t.Workload, t.Batch, t.Collectors, c.what,
				number("%.3f", c.cost.RedisCalls), number("%.1f", c.cost.RedisCommands), micros(c.cost.RedisCPU),
				number("%.0f", c.cost.RedisBytes), micros(c.cost.DispatcherCPU)))
		}
	}
	grid(out, "Cost of a task. Scripts are the calls to Redis; commands are what ran within them.",
		"store|workload|batch|collectors|of|scripts|commands|Redis CPU|Redis bytes|dispatcher CPU", rows)
}

func (r *Result) writeFloor(out io.Writer) {
	var rows []string
	for _, f := range r.Floor {
		rows = append(rows, fmt.Sprintf("%d|%s|%s|%s|%s|%s", f.Batch, spread(f.Submit), micros(f.SubmitCPU.Median), spread(f.Work), micros(f.WorkCPU.Median), r.timesFloor(&f)))
	}
	grid(out, fmt.Sprintf("The floor: records, locks and indexes alone, by raw pipelined commands (%d to submit, %d to fetch and report), no Lua, no gRPC.\nRatio: Redis CPU of fetch and report on A, by that of the floor.", floorSubmit, floorFetch+floorReport),
		"batch|submit|Redis CPU|fetch and report|Redis CPU|ratio", rows)
	rows = nil
	for i := range r.Empty {
		empty := &r.Empty[i]
		rows = append(rows, fmt.Sprintf("%d|%s|%s", empty.Collectors, spread(empty.Calls), micros(empty.DispatcherCPU.Median)))
	}
	grid(out, "Empty gRPC calls, health checks, one at a time for each collector: what one task a call costs besides.",
		"collectors|calls a second|dispatcher CPU", rows)
}

// timesFloor is how many times the floor's Redis CPU Waggle takes on A.
func (r *Result) timesFloor(f *FloorRow) string {
	for i := range r.Throughput {
		t := &r.Throughput[i]
		if t.Store == StoreRedis && t.Workload == "A" && t.Batch == f.Batch && f.WorkCPU.Median > 0 {
			return fmt.Sprintf("%.2f", t.WorkCost.RedisCPU/f.WorkCPU.Median)
		}
	}
	return "-"
}

func (r *Result) writeLatency(out io.Writer) {
	var rows []string
	for i := range r.Latency {
		l := &r.Latency[i]
		rows = append(rows, fmt.Sprintf("%s|%s|%d|%d|%s|-", l.Store, l.Call, l.Collectors, l.Batch, quantiles(&l.Latency)))
	}
	for i := range r.Wake {
		w := &r.Wake[i]
		rows = append(rows, fmt.Sprintf("%s|wake-up|%d|1|%s|%.2f claims a task", w.Store, w.Parked, quantiles(&w.Latency), w.Claims))
	}
	grid(out, "Latency. Fetch and report: one task a call, work waiting; heartbeat: of so many leases on a stream;\nwake-up: from submit to delivery at one of the parked collectors.",
		"store|call|collectors|batch|p50|p99|p99.9|max|count|more", rows)
}

func (r *Result) writeFlat(out io.Writer) {
	var rows, slow []string
	for i := range r.Flat {
		f := &r.Flat[i]
		size := fmt.Sprintf("%s|%s|%d|%d", f.Store, f.Over, f.Backlog, f.Queues)
		rows = append(rows, fmt.Sprintf("%s|%s|%s|%s|%s|%s|%s|%s|%s|%s", size, millis(f.Fetch.P50), millis(f.Fetch.P99), millis(f.Report.P50),
			micros(f.ScriptSeconds), number("%.3f", f.FetchCost.RedisCalls), number("%.1f", f.FetchCost.RedisCommands),
			number("%.0f", f.TaskBytes), f.slowness(), millis(f.RedisWaited)))
		for _, s := range f.Slow {
			slow = append(slow, fmt.Sprintf("%s|%s|%d|%s", size, s.What, s.Count, millis(s.Longest)))
		}
	}
	grid(out, "Flatness over the number of queued tasks (backlog) and of queues: one collector fetches, at most 100 tasks a call.\nSlow: scripts of 5 ms and more, of those of that and of 16 collectors with a task a call, and the longest;\nRedis is slow too while it has to wait for a processor: so long in all.",
		"store|over|tasks|queues|fetch p50|fetch p99|report p50|claim script|scripts a task|commands a task|bytes a task|slow|Redis waited", rows)
	grid(out, "What took Redis 5 ms and more while those were queued: scripts by their names, commands, and in lower case with a dash\nwhat it did of its own accord (LATENCY), which tells the longest only.",
		"store|over|tasks|queues|what|count|longest", slow)
}

func (r *Result) writeKeeping(out io.Writer) {
	var rows []string
	for i := range r.Requeue {
		q := &r.Requeue[i]
		rows = append(rows, fmt.Sprintf("%s|%d|%s|%s|%d|%s|%s|%s", q.Store, q.Delivered, millis(q.Lag.P50), millis(q.Lag.P99),
			q.Leases, millis(q.All), millis(q.Fetch.P50), millis(q.Fetch.P99)))
	}
	grid(out, "Requeue. Leases that ran out while collectors were parked, from the deadline of each to its next delivery;\nleases that ran out at the same moment, until all were requeued, and single fetches meanwhile.",
		"store|leases|lag p50|lag p99|at once|all requeued|fetch p50|fetch p99", rows)
	rows = nil
	for i := range r.Renew {
		n := &r.Renew[i]
		rows = append(rows, fmt.Sprintf("%s|%d|%d|%s|%s|%s|%s|%.1f %%", n.Store, n.Leases, n.Collectors, millis(n.Renewal.P50), millis(n.Renewal.P99),
			micros(n.Cost.RedisCPU), micros(n.Cost.DispatcherCPU), 100*n.RedisShare))
	}
	grid(out, "Renewal of all leases once; the last column is the part of a Redis core when it is each 10 s.",
		"store|leases|collectors|call p50|call p99|Redis CPU a lease|dispatcher CPU a lease|Redis core", rows)
	rows = nil
	for i := range r.Idle {
		n := &r.Idle[i]
		rows = append(rows, fmt.Sprintf("%s|%d|%.1f|%.2f %%|%.2f %%|%.1f KiB", n.Store, n.Parked, n.Calls, 100*n.RedisShare, 100*n.DispatcherShare, n.Bytes/1024))
	}
	grid(out, "Idle: collectors are parked, nothing happens. Memory: of a dispatcher with GOGC=10, which leaves little garbage in it.", "store|parked|Redis scripts/s|Redis core|dispatcher core|dispatcher memory a fetch", rows)
}

func spread(s Sample) string {
	if s == (Sample{}) {
		return "-"
	}
	if s.Low == s.High {
		return thousands(s.Median)
	}
	return fmt.Sprintf("%s [%s-%s]", thousands(s.Median), thousands(s.Low), thousands(s.High))
}

func thousands(n float64) string {
	text := fmt.Sprintf("%.0f", n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func quantiles(l *Latency) string {
	return fmt.Sprintf("%s|%s|%s|%s|%d", millis(l.P50), millis(l.P99), millis(l.P999), millis(l.Max), l.Count)
}

func millis(seconds float64) string { return fmt.Sprintf("%.2f ms", seconds*1e3) }

// micros writes nothing for 0, which is what was not measured.
func micros(seconds float64) string { return number("%.1f µs", seconds*1e6) }

// number writes nothing for 0, which is what was not measured.
func number(format string, n float64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf(format, n)
}
