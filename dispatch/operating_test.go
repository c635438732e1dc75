package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/memstore"
)

// office is a dispatcher over a memory store, in virtual time.
type office struct {
	*dispatch.Dispatcher
	t     *testing.T
	store dispatch.Store
	calls int
}

// inOffice runs f with a running dispatcher, in a synctest bubble.
func inOffice(t *testing.T, f func(t *testing.T, o *office)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, err := memstore.New(memstore.Config{Shards: 2})
		if err != nil {
			t.Fatal(err)
		}
		d, err := dispatch.New(dispatch.Config{Store: store, ID: "d1", Rand: func() float64 { return 0.5 }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		synctest.Wait()
		defer func() {
			stop()
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
			if err := store.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}()
		f(t, &office{Dispatcher: d, t: t, store: store})
	})
}

func (o *office) create(id string, change func(*dispatch.SourceSpec)) *dispatch.SourceView {
	o.t.Helper()
	spec := dispatch.SourceSpec{Priority: dispatch.DefaultPriority}
	if change != nil {
		change(&spec)
	}
	view, err := o.CreateSource(o.t.Context(), id, spec)
	if err != nil {
		o.t.Fatalf("create source %q: %v", id, err)
	}
	return view
}

func (o *office) submit(tasks ...dispatch.NewTask) []dispatch.NewTaskResult {
	o.t.Helper()
	for i := range tasks {
		tasks[i].Priority = dispatch.DefaultPriority
	}
	results, err := o.SubmitTasks(o.t.Context(), tasks)
	if err != nil {
		o.t.Fatalf("submit: %v", err)
	}
	return results
}

// fetch takes up to n tasks that can be had now.
func (o *office) fetch(n int) []dispatch.Grant {
	o.t.Helper()
	o.calls++
	result, err := o.Fetch(o.t.Context(), dispatch.FetchRequest{
		Collector: "c1", Session: "s1", ClientToken: fmt.Sprintf("t%d", o.calls), MaxTasks: n, MaxBytes: dispatch.MaxFetchBytes,
	})
	if err != nil {
		o.t.Fatalf("fetch: %v", err)
	}
	return result.Tasks
}

func (o *office) fetchOne() dispatch.Grant {
	o.t.Helper()
	grants := o.fetch(1)
	if len(grants) != 1 {
		o.t.Fatalf("fetched %d tasks, want 1", len(grants))
	}
	return grants[0]
}

func (o *office) report(reports ...dispatch.Report) []dispatch.ReportResult {
	o.t.Helper()
	results, err := o.Report(o.t.Context(), "c1", "s1", reports)
	if err != nil {
		o.t.Fatalf("report: %v", err)
	}
	return results
}

func (o *office) succeed(g dispatch.Grant, discovered ...dispatch.DiscoveredItem) dispatch.ReportResult {
	o.t.Helper()
	for i := range discovered {
		discovered[i].Priority = dispatch.DefaultPriority
	}
	return o.report(dispatch.Report{ID: g.Task.ID, Token: g.Token, Succeeded: &dispatch.Succeeded{Discovered: discovered}})[0]
}

func (o *office) task(id dispatch.TaskID) *dispatch.Task {
	o.t.Helper()
	task, err := o.Task(o.t.Context(), id)
	if err != nil {
		o.t.Fatalf("task %s: %v", id, err)
	}
	return task
}

// unhurried lets every queue be fetched from without delay.
func (o *office) unhurried() {
	o.t.Helper()
	rule := dispatch.QueueRule{Pattern: "*", Settings: dispatch.DefaultQueueSettings()}
	rule.Settings.MinDelay, rule.Settings.MaxInFlight = 0, 1000
	if _, err := o.SetQueueRule(o.t.Context(), rule); err != nil {
		o.t.Fatal(err)
	}
}

func seeds(urls ...string) []dispatch.Seed {
	var out []dispatch.Seed
	for _, u := range urls {
		out = append(out, dispatch.Seed{URL: u, Priority: dispatch.DefaultPriority})
	}
	return out
}

func TestDispatcher_CreateSource_makesSeedsDue(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		view := o.create("news.a", func(s *dispatch.SourceSpec) {
			s.Seeds = seeds("http://a.example/feed")
			s.Schedule.Every = time.Hour
			s.Metadata = map[string]string{"lang": "en"}
			s.Payload = []byte("p")
		})
		if view.Source.Version != 1 || view.Source.Applied != 1 || view.Status.Counts.Ready != 1 || view.Health != dispatch.HealthOK {
			t.Errorf("%+v", view)
		}
		g := o.fetchOne()
		if g.Task.URL != "http://a.example/feed" || !g.Task.Recurring || g.Task.Metadata["lang"] != "en" || string(g.Task.Payload) != "p" || g.Task.SourceID != "news.a" {
			t.Errorf("granted %+v", g.Task)
		}
		r := o.succeed(g)
		if r.Code != dispatch.ReportOK || r.State != dispatch.StateScheduled || time.Until(r.Due) != time.Hour {
			t.Errorf("report: %+v, due in %v", r, time.Until(r.Due))
		}
		time.Sleep(time.Hour - time.Millisecond)
		if early := o.fetch(1); len(early) != 0 {
			t.Errorf("fetched %d tasks before their due time", len(early))
		}
		time.Sleep(time.Millisecond)
		if again := o.fetchOne(); again.Task.Counters.Cycle != 1 || again.Token.Fence <= g.Token.Fence {
			t.Errorf("second cycle: %+v", again)
		}
	})
}

func TestDispatcher_CreateSource_refuses(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.create("taken", nil)
		if _, err := o.CreateSource(t.Context(), "taken", dispatch.SourceSpec{}); !errors.Is(err, dispatch.ErrSourceExists) {
			t.Errorf("taken id: %v", err)
		}
		for field, change := range map[string]func(*dispatch.SourceSpec){
			"schedule.cron":      func(s *dispatch.SourceSpec) { s.Schedule.Cron = "nonsense" },
			"follow.include[1]":  func(s *dispatch.SourceSpec) { s.Follow = &dispatch.Follow{Include: []string{"ok", "("}} },
			"seeds[1]":           func(s *dispatch.SourceSpec) { s.Seeds = seeds("http://a.example", "http://A.example:80/#x") },
			"seeds[0].url":       func(s *dispatch.SourceSpec) { s.Seeds = seeds("no url") },
			"lease_duration":     func(s *dispatch.SourceSpec) { s.LeaseDuration = time.Millisecond },
			"max_hold":           func(s *dispatch.SourceSpec) { s.MaxHold = 25 * time.Hour },
			"retry.max_backoff":  func(s *dispatch.SourceSpec) { s.Retry.MinBackoff, s.Retry.MaxBackoff = time.Hour, time.Minute },
			"schedule.time_zone": func(s *dispatch.SourceSpec) { s.Schedule = dispatch.Schedule{Cron: "@daily", TimeZone: "X"} },
			"schedule.every":     func(s *dispatch.SourceSpec) { s.Schedule.Every = 1 },
			"follow.exclude[0]":  func(s *dispatch.SourceSpec) { s.Follow = &dispatch.Follow{Exclude: []string{"["}} },
		} {
			spec := dispatch.SourceSpec{}
			change(&spec)
			_, err := o.CreateSource(t.Context(), "bad", spec)
			var got *dispatch.FieldError
			if !errors.As(err, &got) || got.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
	})
}

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
		var codes []dispatch.DiscoverCode
		for _, d := range r.Discovered {
			codes = append(codes, d.Code)
		}
		want := []dispatch.DiscoverCode{
			dispatch.DiscoverCreated, dispatch.DiscoverExists, dispatch.DiscoverCreated, dispatch.DiscoverFiltered,
			dispatch.DiscoverFiltered, dispatch.DiscoverFiltered, dispatch.DiscoverInvalid,
		}
		if !slices.Equal(codes, want) {
			t.Fatalf("codes %v, want %v: %+v", codes, want, r.Discovered)
		}
		for _, g := range o.fetch(10) {
			if g.Task.Depth != 1 || g.Task.Metadata["k"] != "source" {
				t.Errorf("discovered %+v", g.Task)
			}
			deeper := o.succeed(g, dispatch.DiscoveredItem{URL: "http://a.example/p/deeper"})
			if deeper.Discovered[0].Code != dispatch.DiscoverFiltered || !strings.Contains(deeper.Discovered[0].Message, "max_depth") {
				t.Errorf("too deep: %+v", deeper.Discovered)
			}
		}
	})
}

func TestDispatcher_Report_repeatedAndStale(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.create("s", nil)
		id := o.submit(dispatch.NewTask{SourceID: "s", URL: "http://a.example/1"})[0].ID
		first := o.fetchOne()
		time.Sleep(dispatch.DefaultLeaseDuration + time.Second) // it expires, and the queue's delay passes
		second := o.fetchOne()
		if stale := o.succeed(first); stale.Code != dispatch.ReportLeaseLost || stale.Lost != dispatch.LostExpired && stale.Lost != dispatch.LostTaken {
			t.Errorf("stale report: %+v", stale)
		}
		if task := o.task(id); task.State != dispatch.StateLeased || task.Counters.Expirations != 1 || len(task.History) != 1 {
			t.Errorf("after a stale report: %+v", task)
		}
		done := o.succeed(second)
		again := o.succeed(second)
		if done.Code != dispatch.ReportOK || again.Code != dispatch.ReportAlready || again.State != dispatch.StateDone || again.Result != dispatch.ResultSucceeded {
			t.Errorf("done %+v, repeated %+v", done, again)
		}
		wrong := second
		wrong.Token.Collector = "c2"
		mixed := o.report(
			dispatch.Report{ID: id, Token: wrong.Token, Succeeded: &dispatch.Succeeded{}},
			dispatch.Report{ID: "1-aaaaaaaaaaaaaaaaaaaaaaaaaa", Token: second.Token, Succeeded: &dispatch.Succeeded{}},
			dispatch.Report{ID: id, Token: second.Token, Released: &dispatch.Released{}},
		)
		if mixed[0].Code != dispatch.ReportLeaseLost || mixed[1].Code != dispatch.ReportNotFound || mixed[2].Code != dispatch.ReportAlready {
			t.Errorf("%+v", mixed)
		}
	})
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

func TestDispatcher_UpdateSource(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.unhurried()
		o.create("s", func(s *dispatch.SourceSpec) {
			s.Seeds = seeds("http://a.example/1", "http://a.example/2")
			s.Schedule.Every = 24 * time.Hour
		})
		for _, g := range o.fetch(10) {
			o.succeed(g)
		}
		view, err := o.UpdateSource(t.Context(), "s", 1, func(s *dispatch.SourceSpec) error {
			s.Seeds = seeds("http://a.example/2", "http://a.example/3")
			s.Schedule.Every = time.Hour
			s.Pool = "browser"
			return nil
		})
		if err != nil || view.Source.Version != 2 || view.Source.Applied != 2 || len(view.Source.AppliedSeeds) != 2 {
			t.Fatalf("%+v, %v", view, err)
		}
		if view.Status.Counts.Canceled != 1 {
			t.Errorf("counts after a seed went: %+v", view.Status.Counts)
		}
		if grants := o.fetch(10); len(grants) != 0 {
			t.Errorf("the default pool still gets %d tasks", len(grants))
		}
		fetch := func() (urls []string) {
			o.calls++
			result, err := o.Fetch(t.Context(), dispatch.FetchRequest{
				Collector: "c1", Session: "s1", ClientToken: fmt.Sprintf("b%d", o.calls), Pools: []string{"browser"}, MaxTasks: 10, MaxBytes: 1 << 20,
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range result.Tasks {
				urls = append(urls, g.Task.URL)
				o.succeed(g)
			}
			slices.Sort(urls)
			return urls
		}
		if got := fetch(); !slices.Equal(got, []string{"http://a.example/3"}) {
			t.Errorf("due at once: %q, want the new seed", got)
		}
		time.Sleep(time.Hour)
		if got := fetch(); !slices.Equal(got, []string{"http://a.example/2", "http://a.example/3"}) {
			t.Errorf("an hour later: %q, want both", got)
		}
		if _, err := o.UpdateSource(t.Context(), "s", 1, func(*dispatch.SourceSpec) error { return nil }); !errors.Is(err, dispatch.ErrEtagMismatch) {
			t.Errorf("stale etag: %v", err)
		}
		same, err := o.UpdateSource(t.Context(), "s", 0, func(*dispatch.SourceSpec) error { return nil })
		if err != nil || same.Source.Version != 2 {
			t.Errorf("an update without a change: version %d, %v", same.Source.Version, err)
		}
		_, err = o.UpdateSource(t.Context(), "s", 0, func(s *dispatch.SourceSpec) error { s.Scope = "other"; return nil })
		if !errors.Is(err, dispatch.ErrInvalid) {
			t.Errorf("a change of scope: %v", err)
		}
	})
}

func TestDispatcher_DeleteSource(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.unhurried()
		view := o.create("s", func(s *dispatch.SourceSpec) { s.Seeds = seeds("http://a.example/seed") })
		ids := o.submit(
			dispatch.NewTask{SourceID: "s", URL: "http://a.example/1"},
			dispatch.NewTask{SourceID: "s", URL: "http://b.example/2", Due: time.Now().Add(time.Hour)},
		)
		held := o.fetchOne()
		if err := o.DeleteSource(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		if err := o.DeleteSource(t.Context(), "s"); !errors.Is(err, dispatch.ErrSourceNotFound) {
			t.Errorf("deleted twice: %v", err)
		}
		if grants := o.fetch(10); len(grants) != 0 {
			t.Errorf("fetched %d tasks of a deleted source", len(grants))
		}
		beat, err := o.Beat(t.Context(), dispatch.CollectorInfo{ID: "c1", Session: "s1"}, []dispatch.LeaseBeat{{ID: held.Task.ID, Token: held.Token.String()}})
		if err != nil || len(beat.Cancel) != 1 || beat.Cancel[0].Reason != dispatch.CancelSourceDeleted {
			t.Errorf("beat of its holder: %+v, %v", beat, err)
		}
		if r := o.succeed(held); r.State != dispatch.StateCanceled {
			t.Errorf("report of its holder: %+v", r)
		}
		for _, id := range []dispatch.TaskID{held.Task.ID, ids[0].ID, ids[1].ID} {
			if task := o.task(id); task.State != dispatch.StateCanceled {
				t.Errorf("task %s is %v", id, task.State)
			}
		}
		if r := o.submit(dispatch.NewTask{SourceID: "s", URL: "http://a.example/1"}); !errors.Is(r[0].Err, dispatch.ErrSourceNotFound) {
			t.Errorf("submit to a deleted source: %+v", r)
		}
		again := o.create("s", func(s *dispatch.SourceSpec) { s.Seeds = seeds("http://a.example/seed") })
		if again.Source.UID == view.Source.UID {
			t.Error("the source made again has the old uid")
		}
		if g := o.fetchOne(); g.Task.SourceUID != again.Source.UID {
			t.Errorf("fetched %+v", g.Task)
		}
	})
}

func TestDispatcher_PauseSource(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.unhurried()
		o.create("s", nil)
		o.submit(dispatch.NewTask{SourceID: "s", URL: "http://a.example/1"})
		changed, err := o.PauseSource(t.Context(), "s", dispatch.Gate{By: "ops", Reason: "why", Until: time.Now().Add(time.Minute)})
		if err != nil || !changed {
			t.Fatal(changed, err)
		}
		view, err := o.Source(t.Context(), "s")
		if err != nil || view.Health != dispatch.HealthPaused || view.Source.Paused.By != "ops" || view.Source.Paused.Time.IsZero() {
			t.Errorf("%+v, %v", view, err)
		}
		if grants := o.fetch(1); len(grants) != 0 {
			t.Error("fetched a task of a paused source")
		}
		time.Sleep(time.Minute)
		o.succeed(o.fetchOne())
		if changed, err := o.ResumeSource(t.Context(), "s"); err != nil || !changed {
			t.Errorf("resume: %v, %v", changed, err)
		}
		if changed, err := o.ResumeSource(t.Context(), "s"); err != nil || changed {
			t.Errorf("resume again: %v, %v", changed, err)
		}
		if _, err := o.PauseSource(t.Context(), "s", dispatch.Gate{Until: time.Now()}); !errors.Is(err, dispatch.ErrInvalid) {
			t.Errorf("a pause until now: %v", err)
		}
		if _, err := o.PauseSource(t.Context(), "nowhere", dispatch.Gate{}); !errors.Is(err, dispatch.ErrSourceNotFound) {
			t.Errorf("unknown source: %v", err)
		}
	})
}

func TestDispatcher_TriggerSource(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.unhurried()
		o.create("s", func(s *dispatch.SourceSpec) { s.Seeds = seeds("http://a.example/"); s.Schedule.Every = time.Hour })
		g := o.fetchOne()
		for range 3 { // while leased, however often: once more
			if changed, err := o.TriggerSource(t.Context(), "s", false); err != nil || !changed {
				t.Fatal(changed, err)
			}
		}
		o.succeed(g)
		o.succeed(o.fetchOne())
		if grants := o.fetch(1); len(grants) != 0 {
			t.Fatalf("due once more: %+v", grants[0].Task)
		}
		if _, err := o.TriggerSource(t.Context(), "s", true); err != nil {
			t.Fatal(err)
		}
		if g := o.fetchOne(); g.Task.Run.IsZero() {
			t.Error("a trigger with revisit began no pass")
		}
	})
}

func TestDispatcher_SetQueueRule(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		ctx := t.Context()
		o.create("s", nil)
		o.submit(dispatch.NewTask{SourceID: "s", URL: "http://www.a.example/1"})
		rule := dispatch.QueueRule{Pattern: "*.a.example", Queue: "a-group", Settings: dispatch.DefaultQueueSettings()}
		if _, err := o.SetQueueRule(ctx, rule); !errors.Is(err, dispatch.ErrQueueNotEmpty) {
			t.Errorf("a mapping away from tasks: %v", err)
		}
		o.succeed(o.fetchOne())
		if _, err := o.SetQueueRule(ctx, rule); err != nil {
			t.Fatal(err)
		}
		o.submit(dispatch.NewTask{SourceID: "s", URL: "http://x.a.example/1"}, dispatch.NewTask{SourceID: "s", URL: "http://y.a.example/2"})
		queue, err := o.Queue(ctx, "a-group")
		if err != nil || queue.Waiting != 2 || queue.SettingsName != "a-group" {
			t.Errorf("%+v, %v", queue, err)
		}
		other := dispatch.QueueRule{Pattern: "b.example", Queue: "a-group", Settings: dispatch.DefaultQueueSettings()}
		other.Settings.MinDelay = time.Minute
		if _, err := o.SetQueueRule(ctx, other); !errors.Is(err, dispatch.ErrInvalid) {
			t.Errorf("two rules that contradict each other for one queue: %v", err)
		}
		if _, err := o.DeleteQueueRule(ctx, "*.a.example"); !errors.Is(err, dispatch.ErrQueueNotEmpty) {
			t.Errorf("deleting a mapping of tasks: %v", err)
		}
		if _, err := o.DeleteQueueRule(ctx, "nowhere"); !errors.Is(err, dispatch.ErrRuleNotFound) {
			t.Errorf("unknown rule: %v", err)
		}
	})
}

func TestDispatcher_SetQueueRule_denyEndsLeases(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.create("s", nil)
		o.submit(dispatch.NewTask{SourceID: "s", URL: "http://a.example/1"})
		g := o.fetchOne()
		rule := dispatch.QueueRule{Pattern: "a.example", Settings: dispatch.DefaultQueueSettings()}
		rule.Settings.Deny = true
		if _, err := o.SetQueueRule(t.Context(), rule); err != nil {
			t.Fatal(err)
		}
		if r := o.succeed(g); r.Code != dispatch.ReportLeaseLost || r.Lost != dispatch.LostRevoked {
			t.Errorf("report after deny: %+v", r)
		}
		if r := o.submit(dispatch.NewTask{SourceID: "s", URL: "http://a.example/2"}); !errors.Is(r[0].Err, dispatch.ErrQueueDenied) {
			t.Errorf("submit to a denied queue: %+v", r)
		}
		if grants := o.fetch(1); len(grants) != 0 {
			t.Error("fetched from a denied queue")
		}
		if _, err := o.DeleteQueueRule(t.Context(), "a.example"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		o.fetchOne()
	})
}

func TestDispatcher_BlockQueue(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		ctx := t.Context()
		o.create("s", nil)
		queue, err := o.BlockQueue(ctx, "a.example", dispatch.Gate{By: "ops", Reason: "they asked"})
		if err != nil || len(queue.Gates) != 1 || queue.Gates[0].Kind != dispatch.GateBlocked || queue.Gates[0].By != "ops" {
			t.Fatalf("%+v, %v", queue, err)
		}
		o.submit(dispatch.NewTask{SourceID: "s", URL: "http://a.example/1"})
		if grants := o.fetch(1); len(grants) != 0 {
			t.Error("fetched from a blocked queue")
		}
		if _, err := o.UnblockQueue(ctx, "a.example", false); err != nil {
			t.Fatal(err)
		}
		o.fetchOne()
		if _, err := o.UnblockQueue(ctx, "nowhere.example", false); !errors.Is(err, dispatch.ErrQueueNotFound) {
			t.Errorf("unknown queue: %v", err)
		}
	})
}
