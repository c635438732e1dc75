package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/collector/web"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// result is what the web server, the dispatcher and the collectors' records have of each page, counted.
type result struct {
	took       time.Duration
	pages      int
	requests   int   // for pages; robots.txt is requested beside them
	settled    int64 // leases that an accepted report ended
	crawled    int   // pages whose task settled exactly once, as DONE
	expired    int64 // leases that expired
	duplicates int   // pages that settled more than once, or were requested more often than expired leases explain
	lost       int   // pages whose task is not DONE
	requeued   int   // tasks whose lease expired after the kill
	finished   int   // tasks of those that another collector finished
	gaps       []gap
}

// gap is the politeness of one host: the smallest time between the starts of two requests for pages, by any collectors.
type gap struct {
	host     *host
	requests int
	smallest time.Duration
}

// count adds one page: how its task ended, how many requests there were, and whether the killed collector held its lease. It
// returns how many requests the kill does not explain.
func (r *result) count(task *pb.Task, requests int, held bool) (unexplained int) {
	r.requests += requests
	done := task.GetState() == pb.TaskState_TASK_STATE_DONE
	switch {
	case !done:
		r.lost++
	case task.GetCycle() != 1:
		r.duplicates++
	default:
		r.crawled++
	}
	if !held {
		return max(0, requests-1)
	}
	r.requeued++
	if done {
		r.finished++
	}
	return max(0, requests-2)
}

// otherwise is how many leases expired that the kill does not explain.
func (r *result) otherwise() int { return max(0, int(r.expired)-r.requeued) }

// readStarts reads from the collectors' records when they sent the requests for each host, in order. The arrival at the web
// server would depend on how busy the machine is.
func readStarts(dir string) (map[string][]time.Time, error) {
	files, err := filepath.Glob(filepath.Join(dir, "pages-*.jsonl"))
	if err != nil {
		return nil, err
	}
	starts := map[string][]time.Time{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			var page web.Page
			if err := json.Unmarshal([]byte(line), &page); err != nil {
				return nil, fmt.Errorf("read %s: %w", name, err)
			}
			host, _, _ := strings.Cut(strings.TrimPrefix(page.URL, "http://"), "/")
			starts[host] = append(starts[host], page.FetchTime)
		}
	}
	for _, times := range starts {
		slices.SortFunc(times, time.Time.Compare)
	}
	return starts, nil
}

// gapOf finds the smallest time between two starts.
func gapOf(h *host, starts []time.Time) gap {
	g := gap{host: h, requests: len(starts)}
	for i := range max(0, len(starts)-1) {
		if d := starts[i+1].Sub(starts[i]); i == 0 || d < g.smallest {
			g.smallest = d
		}
	}
	return g
}

// verdict is nil when everything holds, else what does not.
func (r *result) verdict() error {
	var failed []error
	check := func(holds bool, format string, args ...any) {
		if !holds {
			failed = append(failed, fmt.Errorf(format, args...))
		}
	}
	check(r.crawled == r.pages, "%d of %d pages were crawled once", r.crawled, r.pages)
	check(r.duplicates == 0, "%d pages were crawled more than once", r.duplicates)
	check(r.lost == 0, "%d pages were lost", r.lost)
	check(r.requeued > 0, "no task of %s was requeued", victim)
	check(r.expired >= int64(r.requeued), "of %d leases of %s only %d expired", r.requeued, victim, r.expired)
	check(r.finished == r.requeued, "of %d requeued tasks others finished %d", r.requeued, r.finished)
	check(r.settled == int64(r.pages), "%d reports were accepted for %d pages", r.settled, r.pages)
	for _, g := range r.gaps {
		check(g.smallest >= g.host.delay, "host %s was requested again after %s, before its delay of %s", g.host.name, g.smallest, g.host.delay)
	}
	return errors.Join(failed...)
}

// write writes the closing table.
func (r *result) write(out io.Writer) {
	var sh human.Sheet
	sh.Line("pages on the site", human.Count(r.pages))
	sh.Linef("crawled once", "%s, by %s accepted", human.Count(r.crawled), human.Plural(r.settled, "report"))
	sh.Line("duplicates", human.Count(r.duplicates))
	sh.Line("lost", human.Count(r.lost))
	sh.Linef("requeued after the kill", "%s, the leases that %s left behind", human.Count(r.requeued), victim)
	sh.Line("finished by others", human.Count(r.finished))
	sh.LineIf(r.otherwise() > 0, "requeued otherwise", "%s, by a collector that lives and was too slow to renew", human.Count(r.otherwise()))
	sh.Linef("requests for pages", "%s, beside one for robots.txt by each collector on each host", human.Count(r.requests))
	sh.Line("time", human.Span(r.took))
	fmt.Fprintln(out)
	sh.Write(out)
	fmt.Fprintln(out)
	t := human.NewTable("HOST", ">REQUESTS", ">DELAY", ">SMALLEST GAP")
	for _, g := range r.gaps {
		t.Row(g.host.name, human.Count(g.requests), g.host.delay.String(), fmt.Sprintf("%.1fms", float64(g.smallest.Microseconds())/1000))
	}
	t.Write(out, "")
}
