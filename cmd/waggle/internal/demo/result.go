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

// gap is the politeness of one host: the smallest time between the starts of two requests for pages, by any collectors.
type gap struct {
	host     *host
	requests int
	smallest time.Duration
}

// result is what the web server's log and the dispatcher's records say about each page, counted.
type result struct {
	took       time.Duration
	pages      int
	requests   int   // for pages; robots.txt is asked beside them
	settled    int64 // leases that an accepted report ended
	expired    int64 // leases that ran out
	crawled    int   // pages whose task settled exactly once, as DONE
	duplicates int   // pages that settled more than once, or were asked for more often than requeues explain
	lost       int   // pages that did not settle as DONE
	requeued   int   // tasks whose lease ran out after the kill
	finished   int   // tasks of those that another collector finished
	victim     string
	gaps       []gap
}

// count adds one page: how its task ended, which requests there were, and whether its lease was the killed collector's.
// It returns how many requests the kill does not explain.
func (r *result) count(task *pb.Task, visits []visit, held bool) (unexplained int) {
	switch {
	case task.GetState() != pb.TaskState_TASK_STATE_DONE:
		r.lost++
	case task.GetCycle() != 1:
		r.duplicates++
	default:
		r.crawled++
	}
	allowed := 1
	if held {
		allowed++
		last := len(visits) - 1
		if task.GetState() == pb.TaskState_TASK_STATE_DONE && last >= 0 && visits[last].answered && visits[last].agent != r.victim {
			r.finished++
		}
	}
	return max(0, len(visits)-allowed)
}

// otherwise is how many leases ran out that the kill does not explain.
func (r *result) otherwise() int { return max(0, int(r.expired)-r.requeued) }

// noteStarts gives each request the time at which its collector noted to have sent it. How much later it arrives
// depends on how busy the machine is, and tells nothing of the dispatcher. A request without a note, as that which the
// kill cut off, keeps the time of its arrival.
func noteStarts(dir string, visits []visit) error {
	files, err := filepath.Glob(filepath.Join(dir, "pages-*.jsonl"))
	if err != nil {
		return err
	}
	type request struct{ agent, url string }
	notes := map[request][]time.Time{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		agent := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(name), "pages-"), ".jsonl")
		for line := range strings.Lines(string(text)) {
			var page web.Page
			if err := json.Unmarshal([]byte(line), &page); err != nil {
				return fmt.Errorf("read %s: %w", name, err)
			}
			key := request{agent, page.URL}
			notes[key] = append(notes[key], page.FetchTime)
		}
	}
	for i, v := range visits {
		for _, sent := range notes[request{v.agent, v.url}] {
			if !sent.After(v.began) {
				visits[i].sent = sent // the last one before the arrival
			}
		}
	}
	slices.SortFunc(visits, func(a, b visit) int { return a.start().Compare(b.start()) })
	return nil
}

// gapOf finds the smallest time between the starts of two requests.
func gapOf(h *host, visits []visit) gap {
	g := gap{host: h}
	var last time.Time
	for _, v := range visits {
		if v.host != h.name {
			continue
		}
		g.requests++
		if d := v.start().Sub(last); g.requests == 2 || g.requests > 2 && d < g.smallest {
			g.smallest = d
		}
		last = v.start()
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
	check(r.requeued > 0, "no task of %s was requeued", r.victim)
	check(r.expired >= int64(r.requeued), "of %d leases of %s only %d ran out", r.requeued, r.victim, r.expired)
	check(r.finished == r.requeued, "of %d requeued tasks others finished %d", r.requeued, r.finished)
	check(r.settled == int64(r.pages), "%d reports were accepted for %d pages", r.settled, r.pages)
	for _, g := range r.gaps {
		check(g.smallest >= g.host.delay, "host %s was asked again after %s, before its delay of %s", g.host.name, g.smallest, g.host.delay)
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
	sh.Linef("requeued after the kill", "%s, the leases that %s left behind", human.Count(r.requeued), r.victim)
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
