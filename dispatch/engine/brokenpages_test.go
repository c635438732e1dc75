package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// visit is a request to a.example, by its path, and when it was made.
type visit struct {
	path string
	at   time.Duration // since the crawl began
}

// crawl fetches and reports one task after another, 10 ms each, for a while. Pages under /broken/ answer 500.
func (w *world) crawl(d time.Duration) (visits []visit) {
	w.T.Helper()
	for began := time.Now(); time.Since(began) < d; {
		res, err := w.Fetch(w.T.Context(), dispatchtest.Ask("c1", "", min(d-time.Since(began), bounds.MaxWait)))
		if err != nil {
			w.T.Fatal(err)
		}
		for _, g := range res.Tasks {
			path := strings.TrimPrefix(g.Task.URL, "http://a.example")
			visits = append(visits, visit{path, time.Since(began)})
			time.Sleep(10 * time.Millisecond)
			report := dispatchtest.Success(g)
			report.Succeeded.FetchDuration = 10 * time.Millisecond
			if strings.HasPrefix(path, "/broken/") {
				report.Succeeded, report.Failed = nil, &dispatch.Failed{Reason: dispatchtest.URLReason, HTTPStatus: 500, FetchDuration: 10 * time.Millisecond}
			}
			w.Settle(report)
		}
	}
	return visits
}

// site submits 50 pages and 3 that fail, in the order in which they are due.
func (w *world) site() {
	w.T.Helper()
	w.AddSource("site", nil)
	var tasks []engine.NewTask
	for i := range 53 {
		path := fmt.Sprintf("/page/%d", i)
		if i%20 == 5 {
			path = fmt.Sprintf("/broken/%d", i)
		}
		tasks = append(tasks, engine.NewTask{SourceID: "site", URL: "http://a.example" + path, Due: time.Now().Add(time.Duration(i+1) * time.Millisecond)})
	}
	w.MustSubmit(tasks...)
}

func polite() dispatch.QueueSettings {
	settings := dispatch.DefaultQueueSettings()
	settings.MinDelay = 100 * time.Millisecond
	return settings
}

// Three broken pages delay neither the 50 good ones of their host nor another source there.
func TestBrokenPages(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Rule("*", polite())
		w.Create("news", func(s *dispatch.SourceSpec) {
			s.Seeds, s.Schedule.Every = dispatchtest.Seeds("http://a.example/news"), 2*time.Second
		})
		w.site()
		visits := w.crawl(10 * time.Minute)
		var done, late, news time.Duration
		failed := make(map[string]int)
		pages := 0
		for _, v := range visits {
			switch {
			case v.path == "/news":
				late, news = max(late, v.at-news-2*time.Second), v.at
			case strings.HasPrefix(v.path, "/page/"):
				pages, done = pages+1, v.at
			default:
				failed[v.path]++
			}
		}
		if pages != 50 || done > 6*time.Second {
			t.Errorf("%d pages were done in %v, want 50 in 6s", pages, done)
		}
		// A page in flight, and one that has waited for longer.
		if late > 250*time.Millisecond || news < 10*time.Minute-3*time.Second {
			t.Errorf("the other source waited up to %v, its last turn was at %v", late, news)
		}
		for path, n := range failed {
			if n < 5 || n > 8 { // 7.5 s, 15 s, 30 s, ... apart
				t.Errorf("%s was asked for %d times", path, n)
			}
		}
		if len(failed) != 3 {
			t.Errorf("asked for %v", failed)
		}
	})
}

// A source that is seldom due finds its host free, although nothing else of the host works.
func TestBrokenPages_hourly(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Rule("*", polite())
		w.Create("news", func(s *dispatch.SourceSpec) {
			s.Seeds, s.Schedule.Every = dispatchtest.Seeds("http://a.example/news"), time.Hour
		})
		w.site()
		var late, news time.Duration
		for _, v := range w.crawl(2*time.Hour + time.Minute) {
			if v.path == "/news" {
				late, news = max(late, v.at-news-time.Hour), v.at
			}
		}
		if late > 250*time.Millisecond || news < 2*time.Hour {
			t.Errorf("it waited up to %v, its last turn was at %v", late, news)
		}
	})
}

// A page that failed goes behind all others of its host, whatever its priority, in every pick.
func TestBrokenPages_goBehind(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Rule("*", polite())
		for id, priority := range map[string]int{"high": 9, "low": 0} {
			w.AddSource(id, func(s *dispatch.SourceSpec) { s.Priority = priority })
		}
		w.MustSubmit(engine.NewTask{SourceID: "high", URL: "http://a.example/broken/1"})
		w.crawl(time.Second)
		time.Sleep(time.Minute) // it is due again, and has waited longest
		for i := range 30 {
			w.MustSubmit(engine.NewTask{SourceID: "low", URL: fmt.Sprintf("http://a.example/page/%d", i)})
		}
		visits := w.crawl(5 * time.Second)
		if at := slices.IndexFunc(visits, func(v visit) bool { return v.path == "/broken/1" }); at != 30 {
			t.Errorf("the broken page had turn %d, want it after 30 others: %v", at, visits)
		}
	})
}

// A seed that fails is retried as often as its schedule says. One URL that fails again and again does not block its host.
func TestBrokenPages_seed(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Rule("*", polite())
		w.Create("s", func(s *dispatch.SourceSpec) {
			s.Seeds, s.Schedule.Every = dispatchtest.Seeds("http://a.example/broken/1"), 2*time.Second
		})
		visits := w.crawl(31 * time.Second)
		if len(visits) != 16 {
			t.Errorf("fetched %d times in 31s, want each 2s: %v", len(visits), visits)
		}
		if queue, err := w.FindQueue(t.Context(), "a.example"); err != nil || queue.BlockStep != 0 {
			t.Errorf("one URL that failed %d times: %+v, %v", len(visits), queue, err)
		}
	})
}

// How many URLs in a row fail decides when the host is blocked.
func TestBrokenPages_blockTheHost(t *testing.T) {
	t.Parallel()
	fails := func(reason dispatch.FailureReason) *dispatch.Report {
		return &dispatch.Report{Failed: &dispatch.Failed{Reason: reason}}
	}
	asks := fails(dispatchtest.URLReason)
	asks.Failed.RetryAfter = time.Minute
	missing := fails(dispatchtest.TaskReason)
	missing.Failed.Permanent = true
	ends := map[string]*dispatch.Report{
		"500": fails(dispatchtest.URLReason), "404": missing, "429": fails(dispatchtest.HostReason), "503 Retry-After": asks, "proxy": fails(dispatchtest.CollectorReason),
		"200": {Succeeded: &dispatch.Succeeded{}}, "released": {Released: &dispatch.Released{Delay: time.Hour}},
	}
	for name, c := range map[string]struct {
		ends    []string // PAGE: END
		blocked bool
	}{
		"three":                       {[]string{"1: 500", "2: 500", "3: 500"}, true},
		"two":                         {[]string{"1: 500", "2: 500"}, false},
		"two, again and again":        {[]string{"1: 500", "2: 500", "1: 500", "2: 500", "1: 500", "2: 500"}, false},
		"two and a repetition, third": {[]string{"1: 500", "2: 500", "1: 500", "3: 500"}, true},
		"a success between":           {[]string{"1: 500", "2: 500", "4: 200", "3: 500"}, false},
		"a 404 between":               {[]string{"1: 500", "2: 500", "4: 404", "3: 500"}, false},
		"a 404, then three":           {[]string{"1: 500", "4: 404", "2: 500", "3: 500", "5: 500"}, true},
		"a 404, two and a retry":      {[]string{"1: 500", "4: 404", "1: 500", "2: 500", "3: 500"}, false},
		"a release between":           {[]string{"1: 500", "2: 500", "4: released", "3: 500"}, true},
		"a proxy between":             {[]string{"1: 500", "2: 500", "4: proxy", "3: 500"}, true},
		"the host says so":            {[]string{"1: 429"}, true},
		"the host asks to wait":       {[]string{"1: 503 Retry-After"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
				w.Unhurried()
				w.AddSource("s", nil)
				for i, end := range c.ends {
					page, how, _ := strings.Cut(end, ": ")
					w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/" + page})
					g := w.MustFetch(dispatchtest.Ask(fmt.Sprint("c", i), "", bounds.MaxWait)).Tasks[0]
					if !strings.HasSuffix(g.Task.URL, "/"+page) {
						t.Fatalf("fetched %s, want page %s", g.Task.URL, page)
					}
					report := *ends[how]
					report.ID, report.Token = g.Task.ID, g.Token
					w.Settle(report)
					queue, err := w.FindQueue(t.Context(), "a.example")
					if err != nil {
						t.Fatal(err)
					}
					if blocked := queue.BlockStep > 0; blocked != (c.blocked && i == len(c.ends)-1) {
						t.Fatalf("after %q: blocked %v", c.ends[:i+1], blocked)
					}
					time.Sleep(100 * time.Millisecond) // so that retries keep their order
				}
			})
		})
	}
}

// 150 dead links make 150 requests in the first hour: those that are not there two each in all, those that are forbidden three,
// and never more than max_attempts.
func TestDispatcher_deadLinks(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		wants := map[string]int{"gone": 2, "lost": 2, "shut": 3, "once": 1, "twice": 2, "other": 4}
		reasons := map[string]dispatch.FailureReason{"gone": 3, "lost": 1, "shut": 2, "once": 1, "twice": 2, "other": 4}
		for id := range wants {
			w.AddSource(id, func(s *dispatch.SourceSpec) {
				s.Retry.MaxAttempts = map[string]int{"once": 1, "twice": 2}[id]
			})
			w.Submit(id, "", 30, 0)
		}
		requests := map[string]int{}
		for began := time.Now(); time.Since(began) < 5*time.Hour; time.Sleep(10 * time.Second) {
			for grants := w.Take(100); len(grants) > 0; grants = w.Take(100) {
				for _, g := range grants {
					requests[g.Task.SourceID]++
					w.Settle(dispatch.Report{ID: g.Task.ID, Token: g.Token, Failed: &dispatch.Failed{Reason: reasons[g.Task.SourceID]}})
				}
			}
			if made := requests["gone"] + requests["lost"] + requests["shut"] + requests["once"] + requests["twice"]; time.Since(began) < time.Hour && made != 150 {
				t.Fatalf("%d requests of 150 dead links after %v", made, time.Since(began))
			}
		}
		for id, want := range wants {
			if got := requests[id]; got != 30*want {
				t.Errorf("%s: %d requests for 30 links, want %d each", id, got, want)
			}
			if dead := w.MustView(id).Status.Counts.Dead; dead != 30 {
				t.Errorf("%s: %d are dead", id, dead)
			}
		}
	})
}
