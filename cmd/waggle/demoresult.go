package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// demoGap is the politeness of one host, as its web server saw it.
type demoGap struct {
	host     *demoHost
	requests int
	smallest time.Duration
}

// demoResult is what the web server's log and the dispatcher's records say
// about each page, counted.
type demoResult struct {
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
	gaps       []demoGap
}

// result counts.
func (d *demo) result(ctx context.Context, took time.Duration) (*demoResult, error) {
	r := &demoResult{took: took, pages: d.site.pages(), requeued: len(d.held), victim: d.children[demoVictim].id}
	visits := d.site.log()
	r.requests = len(visits)
	byPage := map[string][]demoVisit{}
	for _, v := range visits {
		byPage[v.url] = append(byPage[v.url], v)
	}
	stats, err := d.admin.GetStats(ctx, &pb.GetStatsRequest{})
	if err != nil {
		return nil, err
	}
	r.settled, r.expired = stats.GetCounters().GetSettled(), stats.GetCounters().GetExpired()
	unexplained := 0
	for _, host := range d.site.hosts {
		r.gaps = append(r.gaps, gapOf(host, visits))
		for page := range host.pages {
			url := host.url(page)
			reply, err := d.tasks.GetTask(ctx, &pb.GetTaskRequest{SourceId: demoSource, Url: url})
			if err != nil && status.Code(err) != codes.NotFound {
				return nil, err
			}
			unexplained += r.count(reply.GetTask(), byPage[url], d.held[url])
		}
	}
	// What a collector that lives was too slow to renew is asked for again, too.
	r.duplicates += max(0, unexplained-r.otherwise())
	return r, nil
}

// count adds one page: how its task ended, which requests there were, and
// whether its lease was the killed collector's. It returns how many requests
// the kill does not explain.
func (r *demoResult) count(task *pb.Task, visits []demoVisit, held bool) (unexplained int) {
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
func (r *demoResult) otherwise() int { return max(0, int(r.expired)-r.requeued) }

// gapOf finds the smallest time between the starts of two requests.
func gapOf(host *demoHost, visits []demoVisit) demoGap {
	gap := demoGap{host: host}
	var last time.Time
	for _, v := range visits {
		if v.host != host.name {
			continue
		}
		if gap.requests++; gap.requests > 1 {
			if d := v.began.Sub(last); gap.requests == 2 || d < gap.smallest {
				gap.smallest = d
			}
		}
		last = v.began
	}
	return gap
}

// verdict is nil when everything holds, else what does not.
func (r *demoResult) verdict() error {
	var failed []error
	fail := func(format string, args ...any) { failed = append(failed, fmt.Errorf(format, args...)) }
	if r.crawled != r.pages {
		fail("%d of %d pages were crawled once", r.crawled, r.pages)
	}
	if r.duplicates > 0 {
		fail("%d pages were crawled more than once", r.duplicates)
	}
	if r.lost > 0 {
		fail("%d pages were lost", r.lost)
	}
	if r.requeued == 0 {
		fail("no task of %s was requeued", r.victim)
	}
	if r.expired < int64(r.requeued) {
		fail("of %d leases of %s only %d ran out", r.requeued, r.victim, r.expired)
	}
	if r.finished != r.requeued {
		fail("of %d requeued tasks others finished %d", r.requeued, r.finished)
	}
	if r.settled != int64(r.pages) {
		fail("%d reports were accepted for %d pages", r.settled, r.pages)
	}
	for _, g := range r.gaps {
		if g.smallest < g.host.delay {
			fail("host %s was asked again after %s, before its delay of %s", g.host.name, g.smallest, g.host.delay)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return errors.Join(failed...)
}

// write writes the closing table.
func (r *demoResult) write(out io.Writer) {
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, value, note string) { fmt.Fprintf(w, "%s\t%s\t%s\n", name, value, note) }
	line("pages on the site", count(r.pages), "")
	line("crawled once", count(r.crawled), fmt.Sprintf("%s reports accepted", count(r.settled)))
	line("duplicates", count(r.duplicates), "")
	line("lost", count(r.lost), "")
	line("requeued after the kill", count(r.requeued), "whose leases ran out, "+r.victim+" being dead")
	line("finished by others", count(r.finished), "")
	if other := r.otherwise(); other > 0 {
		line("requeued otherwise", count(other), "a collector that lives was too slow to renew")
	}
	line("requests for pages", count(r.requests), "robots.txt, asked once per host and collector, not counted")
	line("time", span(r.took), "")
	w.Flush()
	fmt.Fprintln(out)
	t := newTable("HOST", ">REQUESTS", ">DELAY", ">SMALLEST GAP")
	for _, g := range r.gaps {
		t.row(g.host.name, count(g.requests), g.host.delay.String(), fmt.Sprintf("%.1fms", float64(g.smallest.Microseconds())/1000))
	}
	t.write(out)
}
