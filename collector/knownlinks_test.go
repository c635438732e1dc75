package collector_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// linksTaken answers a report, with the code that its discovered items' URLs name; CREATED when they name none.
func linksTaken(_ int, r *wagglev1.TaskReport) *wagglev1.ReportResult {
	summary := &wagglev1.DiscoverSummary{}
	for _, item := range r.GetOutcome().GetSucceeded().GetDiscovered() {
		code := wagglev1.DiscoverCode_DISCOVER_CODE_CREATED
		for value, name := range wagglev1.DiscoverCode_name {
			if strings.HasSuffix(item.GetUrl(), "/"+name) {
				code = wagglev1.DiscoverCode(value)
			}
		}
		summary.Results = append(summary.Results, &wagglev1.DiscoverResult{Code: code})
	}
	return &wagglev1.ReportResult{TaskId: r.GetTaskId(), Code: wagglev1.ReportCode_REPORT_CODE_OK, Discovered: summary}
}

// TestCollector_KnownLinks reports pages that lead to the same links, one after the other: a link goes out again only
// where it could make a difference.
func TestCollector_KnownLinks(t *testing.T) {
	t.Parallel()
	priority := 7
	plain := []collector.Discovered{{URL: "http://a/x"}}
	for name, test := range map[string]struct {
		links []collector.Discovered
		pause time.Duration // before the second page
		page  func(*wagglev1.Task)
		again bool
	}{
		"same":                      {links: plain},
		"deeper":                    {links: plain, page: func(p *wagglev1.Task) { p.Depth = 4 }},
		"less deep":                 {links: plain, page: func(p *wagglev1.Task) { p.Depth = 2 }, again: true},
		"another run":               {links: plain, page: func(p *wagglev1.Task) { p.Run = 2 }, again: true},
		"another source":            {links: plain, page: func(p *wagglev1.Task) { p.SourceUid = "other" }, again: true},
		"soon":                      {links: plain, pause: 25 * time.Second},
		"late":                      {links: plain, pause: 61 * time.Second, again: true},
		"second attempt":            {links: plain, page: func(p *wagglev1.Task) { p.Attempt = 2 }, again: true},
		"same page, as if new":      {links: plain, page: func(p *wagglev1.Task) { p.Id = "1-0" }, again: true},
		"another kind":              {links: []collector.Discovered{{URL: "http://a/x", Kind: "feed"}}},
		"key":                       {links: []collector.Discovered{{URL: "http://a/x", Key: "x"}}, again: true},
		"queue":                     {links: []collector.Discovered{{URL: "http://a/x", Queue: "b"}}, again: true},
		"priority":                  {links: []collector.Discovered{{URL: "http://a/x", Priority: &priority}}, again: true},
		"metadata":                  {links: []collector.Discovered{{URL: "http://a/x", Metadata: map[string]string{"k": "v"}}}, again: true},
		"payload":                   {links: []collector.Discovered{{URL: "http://a/x", Payload: []byte("p")}}, again: true},
		"of a sitemap":              {links: []collector.Discovered{{URL: "http://a/x", Relation: collector.RelationSitemap}}},
		"of a feed":                 {links: []collector.Discovered{{URL: "http://a/x", Relation: collector.RelationFeedItem}}, again: true},
		"of a redirect":             {links: []collector.Discovered{{URL: "http://a/x", Relation: collector.RelationRedirect}}, again: true},
		"modified":                  {links: []collector.Discovered{{URL: "http://a/x", Modified: time.Unix(1, 0)}}, again: true},
		"existing":                  {links: []collector.Discovered{{URL: "http://a/DISCOVER_CODE_EXISTS"}}},
		"due again":                 {links: []collector.Discovered{{URL: "http://a/DISCOVER_CODE_REVISIT"}}},
		"filtered":                  {links: []collector.Discovered{{URL: "http://a/DISCOVER_CODE_FILTERED"}}},
		"no room":                   {links: []collector.Discovered{{URL: "http://a/DISCOVER_CODE_LIMITED"}}, again: true},
		"what a newer server knows": {links: []collector.Discovered{{URL: "http://a/DISCOVER_CODE_UNSPECIFIED"}}, again: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDispatcher()
				d.onReport = linksTaken
				r := start(t, d, collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
					return collector.Succeeded{Discovered: test.links}, nil
				}), func(c *collector.Config) { c.Slots = 2 })
				pages := [2]*wagglev1.Task{}
				for i := range pages {
					pages[i] = &wagglev1.Task{Id: fmt.Sprintf("1-%d", i), SourceUid: "uid", Run: 1, Depth: 3, Attempt: 1}
				}
				if test.page != nil {
					test.page(pages[1])
				}
				d.ready <- pages[0]
				pass(time.Second + test.pause)
				d.ready <- pages[1]
				pass(time.Second)
				if err := r.stop(); err != nil {
					t.Error(err)
				}
				wantSent(t, d, test.links, test.again)
			})
		})
	}
}

// wantSent wants the links with the first of two reports, and with the second only if again.
func wantSent(t *testing.T, d *dispatcher, links []collector.Discovered, again bool) {
	t.Helper()
	var sent []int
	for _, report := range d.reported() {
		sent = append(sent, len(report.GetOutcome().GetSucceeded().GetDiscovered()))
	}
	want := []int{len(links), 0}
	if again {
		want[1] = len(links)
	}
	if !slices.Equal(sent, want) {
		t.Errorf("links reported: %v, want %v", sent, want)
	}
}

// TestCollector_KnownLinksRefused holds that links are known only by a report that was taken.
func TestCollector_KnownLinksRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.onReport = func(n int, r *wagglev1.TaskReport) *wagglev1.ReportResult {
			switch n {
			case 0:
				return &wagglev1.ReportResult{TaskId: r.GetTaskId(), Code: wagglev1.ReportCode_REPORT_CODE_LEASE_LOST}
			case 1:
				return &wagglev1.ReportResult{
					TaskId: r.GetTaskId(), Code: wagglev1.ReportCode_REPORT_CODE_STORE_FULL, RetryAfter: durationpb.New(time.Second),
				}
			}
			return linksTaken(n, r)
		}
		links := []collector.Discovered{{URL: "http://a/x"}}
		r := start(t, d, collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
			return collector.Succeeded{Discovered: links}, nil
		}), func(c *collector.Config) { c.Slots = 2 })
		for _, id := range []string{"1-a", "1-b", "1-c"} {
			d.put(id)
			pass(5 * time.Second)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		var sent []int
		for _, report := range d.reported() {
			sent = append(sent, len(report.GetOutcome().GetSucceeded().GetDiscovered()))
		}
		if want := []int{1, 1, 1, 0}; !slices.Equal(sent, want) { // lost, refused, repeated and taken, known
			t.Errorf("links reported: %v, want %v", sent, want)
		}
	})
}

// TestCollector_KnownLinksOutage holds that an outage ends what is known: behind it the store may have lost the links.
func TestCollector_KnownLinksOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.plain = true
		var away atomic.Bool // for one fetch
		d.onFetch = func(context.Context, int, *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
			if away.CompareAndSwap(true, false) {
				return nil, unavailable()
			}
			return nil, nil
		}
		d.onReport = linksTaken
		links := []collector.Discovered{{URL: "http://a/x"}}
		r := start(t, d, collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
			return collector.Succeeded{Discovered: links}, nil
		}), func(c *collector.Config) { c.Slots = 2 })
		d.put("1-a")
		pass(time.Second)
		away.Store(true)
		pass(15 * time.Second)
		if away.Load() {
			t.Error("no fetch failed")
		}
		d.put("1-b")
		pass(15 * time.Second)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		wantSent(t, d, links, true)
	})
}

// TestCollector_KnownLinksBytes holds that what is known is bounded: what came before 17 MB of other links is reported again.
func TestCollector_KnownLinksBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.onReport = linksTaken
		first := []collector.Discovered{{URL: "http://a/x"}}
		r := start(t, d, collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
			links := first
			if strings.HasPrefix(task.ID, "2-") {
				links = nil
				for i := range 500 {
					links = append(links, collector.Discovered{URL: fmt.Sprintf("http://a/%s/%d/%s", task.ID, i, strings.Repeat("l", 1900))})
				}
			}
			return collector.Succeeded{Discovered: links}, nil
		}), func(c *collector.Config) { c.Slots = 2 })
		d.put("1-a")
		pass(time.Second)
		for i := range 18 {
			d.put(fmt.Sprintf("2-%d", i))
			pass(time.Second)
		}
		d.put("1-b")
		pass(time.Second)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		reports := d.reported()
		if n := len(reports[len(reports)-1].GetOutcome().GetSucceeded().GetDiscovered()); n != 1 {
			t.Errorf("%d links reported, want 1", n)
		}
	})
}
