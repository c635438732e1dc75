package dispatch_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

func TestDispatcher_discover_appliesFollow(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.unhurried()
		depth := 1
		o.create("site", func(s *dispatch.SourceSpec) {
			s.Seeds = seeds("http://a.example/")
			s.Follow = &dispatch.Follow{MaxDepth: &depth, AllowHosts: []string{"a.example", "*.b.example"}, Include: []string{`/(p|q)`}, Exclude: []string{`\.zip$`}}
			s.Metadata = map[string]string{"k": "source"}
		})
		seed := o.fetchOne()
		r := o.succeed(seed,
			dispatch.DiscoveredItem{URL: "http://a.example/p1#top", Metadata: map[string]string{"own": "1"}},
			dispatch.DiscoveredItem{URL: "http://a.example/p1"},
			dispatch.DiscoveredItem{URL: "http://x.b.example/q"},
			dispatch.DiscoveredItem{URL: "http://b.example/q"},
			dispatch.DiscoveredItem{URL: "http://a.example/other"},
			dispatch.DiscoveredItem{URL: "http://a.example/p.zip"},
			dispatch.DiscoveredItem{URL: "mailto:x@a.example"},
		)
		var codes []engine.DiscoverCode
		for _, d := range r.Discovered {
			codes = append(codes, d.Code)
		}
		want := []engine.DiscoverCode{
			engine.DiscoverCreated, engine.DiscoverExists, engine.DiscoverCreated, engine.DiscoverFiltered,
			engine.DiscoverFiltered, engine.DiscoverFiltered, engine.DiscoverInvalid,
		}
		if !slices.Equal(codes, want) {
			t.Fatalf("codes %v, want %v: %+v", codes, want, r.Discovered)
		}
		for _, g := range o.fetch(10) {
			if g.Task.Depth != 1 || g.Task.Metadata["k"] != "source" {
				t.Errorf("discovered %+v", g.Task)
			}
			deeper := o.succeed(g, dispatch.DiscoveredItem{URL: "http://a.example/p/deeper"})
			if deeper.Discovered[0].Code != engine.DiscoverFiltered || !strings.Contains(deeper.Discovered[0].Message, "max_depth") {
				t.Errorf("too deep: %+v", deeper.Discovered)
			}
		}
	})
}

// A page inherits the metadata of the one that led to it, under its own and within
// the limit, and no page of a queue that is denied becomes a task.
func TestDispatcher_discover_metadata(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.unhurried()
		o.create("s", func(s *dispatch.SourceSpec) { s.Follow = &dispatch.Follow{AllowHosts: []string{"*"}} })
		denied := dispatch.QueueRule{Pattern: "no.example", Settings: dispatch.DefaultQueueSettings()}
		denied.Settings.Deny = true
		if _, _, err := o.SetQueueRule(t.Context(), denied, operate.AnyRules); err != nil {
			t.Fatal(err)
		}
		o.submit(engine.NewTask{SourceID: "s", URL: "http://a.example/", Metadata: map[string]string{"lang": "en", "team": "x"}})
		r := o.succeed(o.fetchOne(),
			dispatch.DiscoveredItem{URL: "http://a.example/1", Metadata: map[string]string{"lang": "de"}},
			dispatch.DiscoveredItem{URL: "http://a.example/2", Metadata: map[string]string{"k": strings.Repeat("v", bounds.MaxMetadataLength-10)}},
			dispatch.DiscoveredItem{URL: "http://no.example/"},
		)
		if got := r.Discovered[1]; got.Code != engine.DiscoverInvalid || !strings.Contains(got.Message, "the limit is 8192") {
			t.Errorf("over the limit with what is inherited: %+v", got)
		}
		if got := r.Discovered[2]; got.Code != engine.DiscoverFiltered || !strings.Contains(got.Message, `"no.example" is denied`) {
			t.Errorf("of a denied queue: %+v", got)
		}
		if got := o.task(r.Discovered[0].ID).Metadata; !maps.Equal(got, map[string]string{"lang": "de", "team": "x"}) {
			t.Errorf("metadata %v", got)
		}
	})
}

func TestDispatcher_Report_repeatedAndStale(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.create("s", nil)
		id := o.submit(engine.NewTask{SourceID: "s", URL: "http://a.example/1"})[0].ID
		first := o.fetchOne()
		time.Sleep(dispatch.DefaultLeaseDuration + time.Second) // it expires, and the queue's delay passes
		second := o.fetchOne()
		if stale := o.succeed(first); stale.Code != engine.ReportLeaseLost || stale.Lost != dispatch.LostExpired && stale.Lost != dispatch.LostTaken {
			t.Errorf("stale report: %+v", stale)
		}
		if task := o.task(id); task.State != dispatch.StateLeased || task.Counters.Expirations != 1 || len(task.History) != 1 {
			t.Errorf("after a stale report: %+v", task)
		}
		foreign, err := o.Report(t.Context(), "c9", []dispatch.Report{{ID: id, Token: second.Token, Succeeded: &dispatch.Succeeded{}}})
		if err != nil || foreign[0].Code != engine.ReportLeaseLost || o.task(id).State != dispatch.StateLeased {
			t.Errorf("report of a collector that the token does not name: %+v, %v", foreign, err)
		}
		done := o.succeed(second)
		again := o.succeed(second)
		if done.Code != engine.ReportOK || again.Code != engine.ReportAlready || again.State != dispatch.StateDone || again.Result != dispatch.ResultSucceeded {
			t.Errorf("done %+v, repeated %+v", done, again)
		}
		wrong := second
		wrong.Token.Collector = "c2"
		mixed := o.report(
			dispatch.Report{ID: id, Token: wrong.Token, Succeeded: &dispatch.Succeeded{}},
			dispatch.Report{ID: "1-aaaaaaaaaaaaaaaaaaaaaaaaaa", Token: second.Token, Succeeded: &dispatch.Succeeded{}},
			dispatch.Report{ID: id, Token: second.Token, Released: &dispatch.Released{}},
		)
		if mixed[0].Code != engine.ReportLeaseLost || mixed[1].Code != engine.ReportNotFound || mixed[2].Code != engine.ReportAlready {
			t.Errorf("%+v", mixed)
		}
	})
}

// Of two reports of one lease in one call the first counts, whatever they say.
func TestDispatcher_Report_twiceInOneCall(t *testing.T) {
	for name, first := range map[string]dispatch.Report{
		"released":  {Released: &dispatch.Released{}},
		"failed":    {Failed: &dispatch.Failed{Reason: 1, Permanent: true}},
		"succeeded": {Succeeded: &dispatch.Succeeded{}},
	} {
		t.Run(name, func(t *testing.T) {
			inOffice(t, func(t *testing.T, o *office) {
				o.create("s", nil)
				id := o.submit(engine.NewTask{SourceID: "s", URL: "http://a.example/1"})[0].ID
				g := o.fetchOne()
				first.ID, first.Token = id, g.Token
				results := o.report(first,
					dispatch.Report{ID: id, Token: g.Token, Succeeded: &dispatch.Succeeded{}},
					dispatch.Report{ID: id, Token: g.Token, Failed: &dispatch.Failed{Reason: 1}},
				)
				if results[0].Code != engine.ReportOK {
					t.Errorf("the first: %+v", results[0])
				}
				for _, r := range results[1:] {
					if r.Code != engine.ReportAlready || r.Result != results[0].Result {
						t.Errorf("a later one: %+v, after %+v", r, results[0])
					}
				}
			})
		})
	}
}

// A plain success is one call of the store; what is left to decide takes a read
// more, which brings the clock along.
func TestDispatcher_Report_storeCalls(t *testing.T) {
	t.Parallel()
	calls := []string{"Tasks", "Now", "Apply"}
	for _, c := range []struct {
		name   string
		before func(w *world, id dispatch.TaskID)
		report dispatch.Report
		want   [3]int
		state  dispatch.State
	}{
		{"a plain success", nil, dispatch.Report{Succeeded: &dispatch.Succeeded{Memo: []byte("m")}}, [3]int{0, 0, 1}, dispatch.StateDone},
		{"canceled", func(w *world, id dispatch.TaskID) {
			if err := w.store.RequestCancel(w.t.Context(), []dispatch.TaskID{id}, dispatch.CancelTask, nil); err != nil {
				w.t.Fatal(err)
			}
		}, dispatch.Report{Succeeded: &dispatch.Succeeded{}}, [3]int{1, 0, 2}, dispatch.StateCanceled},
		{"discovered", nil, dispatch.Report{
			Succeeded: &dispatch.Succeeded{Discovered: []dispatch.DiscoveredItem{{URL: "mailto:nobody@a.example"}}},
		}, [3]int{1, 0, 1}, dispatch.StateDone},
		{"a failure", nil, dispatch.Report{Failed: &dispatch.Failed{Reason: 1}}, [3]int{1, 0, 1}, dispatch.StateScheduled},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, setup{}, func(t *testing.T, w *world) {
				w.source("s", nil)
				w.submit("s", "", 1, 0)
				g := w.mustFetch(ask("c1", "t1", 0)).Tasks[0]
				if c.before != nil {
					c.before(w, g.Task.ID)
				}
				var before [3]int
				for i, call := range calls {
					before[i] = w.spies[0].count(call)
				}
				r := c.report
				r.ID, r.Token = g.Task.ID, g.Token
				w.report(r)
				for i, call := range calls {
					if n := w.spies[0].count(call) - before[i]; n != c.want[i] {
						t.Errorf("%d calls of %s, want %d", n, call, c.want[i])
					}
				}
				tasks, _, err := w.store.Tasks(t.Context(), []dispatch.TaskID{g.Task.ID}, true)
				if err != nil || tasks[0].State != c.state {
					t.Fatalf("ended as %+v, %v, want %v", tasks, err, c.state)
				}
				if s := r.Succeeded; s != nil && string(tasks[0].Memo) != string(s.Memo) {
					t.Errorf("memo %q, want %q", tasks[0].Memo, s.Memo)
				}
			})
		})
	}
}

// A pass crawls what earlier passes settled once more, and each page once.
func TestDispatcher_passes(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.unhurried()
		o.create("site", func(s *dispatch.SourceSpec) {
			s.Seeds = seeds("http://a.example/")
			s.Schedule = dispatch.Schedule{Every: time.Hour, Revisit: true}
			s.Follow = &dispatch.Follow{}
		})
		links := []dispatch.DiscoveredItem{{URL: "http://a.example/1"}, {URL: "http://a.example/2"}, {URL: "http://a.example/"}}
		for pass := range 3 {
			var fetched []string
			for {
				grants := o.fetch(10)
				if len(grants) == 0 {
					break
				}
				for _, g := range grants {
					fetched = append(fetched, g.Task.URL)
					if pass > 0 && !g.Task.Recurring && string(g.Task.Memo) != "etag" {
						t.Errorf("pass %d: memo of %s is %q", pass, g.Task.URL, g.Task.Memo)
					}
					o.report(dispatch.Report{ID: g.Task.ID, Token: g.Token, Succeeded: &dispatch.Succeeded{Memo: []byte("etag"), Discovered: links}})
				}
			}
			slices.Sort(fetched)
			if want := []string{"http://a.example/", "http://a.example/1", "http://a.example/2"}; !slices.Equal(fetched, want) {
				t.Errorf("pass %d fetched %q, want %q", pass, fetched, want)
			}
			time.Sleep(time.Hour)
		}
	})
}

// A seed that redirects to another queue is crawled there in each of its cycles;
// two pages that redirect to each other are crawled once.
func TestDispatcher_discover_redirect(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.unhurried()
		depth := 0
		o.create("site", func(s *dispatch.SourceSpec) {
			s.Seeds = seeds("http://a.example/")
			s.Schedule = dispatch.Schedule{Every: time.Hour}
			s.Follow = &dispatch.Follow{MaxDepth: &depth, AllowHosts: []string{"*.example"}}
		})
		to := func(url string) dispatch.DiscoveredItem {
			return dispatch.DiscoveredItem{URL: url, Relation: dispatch.RelationRedirect}
		}
		for cycle, want := range []engine.DiscoverCode{engine.DiscoverCreated, engine.DiscoverRevisit, engine.DiscoverRevisit} {
			moved := o.succeed(o.fetchOne(), to("http://www.example/"), to("http://elsewhere.test/"), dispatch.DiscoveredItem{URL: "http://b.example/"})
			codes := []engine.DiscoverCode{moved.Discovered[0].Code, moved.Discovered[1].Code, moved.Discovered[2].Code}
			if !slices.Equal(codes, []engine.DiscoverCode{want, engine.DiscoverFiltered, engine.DiscoverFiltered}) {
				t.Fatalf("cycle %d: %+v", cycle, moved.Discovered)
			}
			page := o.fetchOne()
			if page.Task.URL != "http://www.example/" || page.Task.Depth != 0 || page.Task.Recurring {
				t.Errorf("cycle %d: %+v", cycle, page.Task)
			}
			back := o.succeed(page, to("http://a.example/"), to("http://third.example/"))
			if back.Discovered[0].Code != engine.DiscoverExists {
				t.Errorf("cycle %d: a redirect back is %+v", cycle, back.Discovered)
			}
			for _, g := range o.fetch(9) { // the third page, once
				if again := o.succeed(g, to("http://www.example/")); cycle > 0 || again.Discovered[0].Code != engine.DiscoverExists {
					t.Errorf("cycle %d: %s leads to %+v", cycle, g.Task.URL, again.Discovered)
				}
			}
			time.Sleep(time.Hour)
		}
	})
}

// A seed's page is crawled where the seed redirects to, though nothing else is
// followed, unless the rule names hosts or excludes it.
func TestDispatcher_discover_movedSeed(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.unhurried()
		for name, test := range map[string]struct {
			follow *dispatch.Follow
			want   engine.DiscoverCode
		}{
			"none":     {nil, engine.DiscoverCreated},
			"default":  {&dispatch.Follow{Include: []string{"/deep/"}}, engine.DiscoverCreated},
			"named":    {&dispatch.Follow{AllowHosts: []string{"new.example"}}, engine.DiscoverCreated},
			"others":   {&dispatch.Follow{AllowHosts: []string{"old.example"}}, engine.DiscoverFiltered},
			"excluded": {&dispatch.Follow{Exclude: []string{"new"}}, engine.DiscoverFiltered},
		} {
			o.create(name, func(s *dispatch.SourceSpec) {
				s.Seeds = seeds("http://old.example/")
				s.Follow = test.follow
			})
			seed := o.fetchOne()
			moved := o.succeed(seed, dispatch.DiscoveredItem{URL: "http://new.example/", Relation: dispatch.RelationRedirect}, dispatch.DiscoveredItem{URL: "http://new.example/link"})
			if moved.Discovered[0].Code != test.want {
				t.Errorf("%s: %+v, want code %d", name, moved.Discovered[0], test.want)
			}
			if follows := name == "named"; (moved.Discovered[1].Code == engine.DiscoverCreated) != follows {
				t.Errorf("%s: a link: %+v", name, moved.Discovered[1])
			}
			for _, g := range o.fetch(9) {
				further := o.succeed(g, dispatch.DiscoveredItem{URL: "http://third.example/", Relation: dispatch.RelationRedirect})
				if further.Discovered[0].Code != engine.DiscoverFiltered {
					t.Errorf("%s: what is no seed moves: %+v", name, further.Discovered)
				}
			}
		}
	})
}

// What a list says has changed since it was crawled is crawled again, with its
// memo.
func TestDispatcher_discover_modified(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.unhurried()
		o.create("site", func(s *dispatch.SourceSpec) {
			s.Seeds = seeds("http://a.example/sitemap.xml")
			s.Schedule = dispatch.Schedule{Every: time.Hour}
			s.Follow = &dispatch.Follow{}
		})
		var crawled time.Time
		for cycle, test := range []struct {
			modified time.Duration // after the last crawl
			want     engine.DiscoverCode
		}{
			{0, engine.DiscoverCreated},
			{-time.Minute, engine.DiscoverExists},
			{time.Minute, engine.DiscoverRevisit},
			{365 * 24 * time.Hour, engine.DiscoverExists}, // a wrong clock
		} {
			item := dispatch.DiscoveredItem{URL: "http://a.example/page", Modified: crawled.Add(test.modified)}
			r := o.succeed(o.fetchOne(), item)
			if r.Discovered[0].Code != test.want {
				t.Fatalf("cycle %d: %+v, want code %d", cycle, r.Discovered, test.want)
			}
			for _, g := range o.fetch(9) {
				if cycle > 0 && string(g.Task.Memo) != "etag" {
					t.Errorf("cycle %d: memo %q", cycle, g.Task.Memo)
				}
				o.report(dispatch.Report{ID: g.Task.ID, Token: g.Token, Succeeded: &dispatch.Succeeded{Memo: []byte("etag")}})
				crawled = time.Now()
			}
			time.Sleep(time.Hour)
		}
	})
}

// What a host asks for holds from the report on that tells of it, for a success
// and for a failure.
func TestDispatcher_Report_queueDelay(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.unhurried()
		o.create("s", nil)
		for _, n := range []string{"1", "2", "3", "4"} {
			o.submit(engine.NewTask{SourceID: "s", URL: "http://a.example/" + n})
		}
		five, none := 5*time.Second, time.Duration(0)
		g := o.fetchOne()
		o.report(dispatch.Report{ID: g.Task.ID, Token: g.Token, Succeeded: &dispatch.Succeeded{QueueDelay: &five}})
		for range 2 {
			if early := o.fetch(9); len(early) > 0 {
				t.Fatalf("granted %d tasks within the host's delay", len(early))
			}
			queue, err := o.FindQueue(t.Context(), "a.example")
			if err != nil || queue.QueueDelay != five || len(queue.Gates) != 1 || !strings.Contains(queue.Gates[0].Reason, "5s") {
				t.Fatalf("queue %+v, %v", queue, err)
			}
			time.Sleep(five)
			g = o.fetchOne()
		}
		o.report(dispatch.Report{ID: g.Task.ID, Token: g.Token, Failed: &dispatch.Failed{Reason: 1, Permanent: true, QueueDelay: &none}})
		if rest := o.fetch(9); len(rest) != 1 {
			t.Errorf("granted %d tasks once the host asks for nothing, want 1", len(rest))
		}
	})
}
