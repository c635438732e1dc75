package operate_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	"github.com/waggle-crawl/waggle/store"
)

// findings are those of an operator, by kind.
func findings(t *testing.T, o *operate.Operator, prefixes ...string) map[operate.FindingKind]operate.Finding {
	t.Helper()
	found, err := o.Findings(t.Context(), prefixes)
	if err != nil {
		t.Fatal(err)
	}
	byKind := make(map[operate.FindingKind]operate.Finding)
	for _, f := range found.All {
		if byKind[f.Kind] = f; f.Count < 1 || f.Next == "" || f.Message == "" && f.Worst == nil {
			t.Errorf("a finding does not say all: %+v", f)
		}
	}
	return byKind
}

// failure is a report of a grant that failed.
func failure(g dispatch.Grant, reason dispatch.FailureReason, httpStatus int) dispatch.Report {
	return dispatch.Report{ID: g.Task.ID, Token: g.Token, Failed: &dispatch.Failed{Reason: reason, HTTPStatus: httpStatus, Message: "it broke"}}
}

// A collector that can do nothing is found by each dispatcher, whoever got its reports, and one that works is not.
func TestOperator_Findings_collector(t *testing.T) {
	t.Parallel()
	const (
		forbidden, handler, dns, connect, proxy, disk, internal, timeout = 2, 11, 100, 101, 200, 201, 204, 300
		success, release                                                 = -1, -2
	)
	for name, one := range map[string]struct {
		ends   []dispatch.FailureReason // of tasks of a host each, in this order
		status int
		unable bool
	}{
		"its disk is full":             {ends: []dispatch.FailureReason{disk, disk, disk}, unable: true},
		"its disk became full":         {ends: []dispatch.FailureReason{success, success, disk, disk, disk}, unable: true},
		"two ways":                     {ends: []dispatch.FailureReason{proxy, internal, proxy}, unable: true},
		"its handler":                  {ends: []dispatch.FailureReason{handler, handler, handler}, unable: true},
		"its network":                  {ends: []dispatch.FailureReason{dns, connect, timeout}, unable: true},
		"it gives everything back":     {ends: slices.Repeat([]dispatch.FailureReason{release}, 10), unable: true},
		"it gives some back":           {ends: slices.Repeat([]dispatch.FailureReason{release}, 9)},
		"a success in between":         {ends: []dispatch.FailureReason{disk, disk, success, disk, disk}},
		"an answer in between":         {ends: []dispatch.FailureReason{disk, disk, forbidden, disk, disk}},
		"two hosts do not answer":      {ends: []dispatch.FailureReason{dns, connect}},
		"some hosts do not answer":     {ends: []dispatch.FailureReason{success, dns, connect, dns, timeout}},
		"three hosts answer with 503":  {ends: []dispatch.FailureReason{301, 301, 301}, status: 503},
		"it works again":               {ends: []dispatch.FailureReason{disk, disk, disk, disk, success}},
		"nothing but forbidden pages":  {ends: []dispatch.FailureReason{forbidden, forbidden, forbidden}},
		"as many failures as releases": {ends: []dispatch.FailureReason{disk, release, disk, release}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
				w.AddSource("s", nil)
				w.Submit("s", "", len(one.ends), 0)
				for i, g := range w.HoldTasks("c1", len(one.ends)) {
					switch reason := one.ends[i]; reason {
					case success:
						w.Settle(dispatchtest.Success(g))
					case release:
						w.Settle(dispatch.Report{ID: g.Task.ID, Token: g.Token, Released: &dispatch.Released{}})
					default:
						w.Settle(failure(g, reason, one.status))
					}
				}
				for d, o := range w.O {
					f, unable := findings(t, o)["COLLECTOR"]
					if unable != one.unable {
						t.Errorf("dispatcher %d: unable: %v, want %v: %+v", d, unable, one.unable, f)
					}
					if unable && (!slices.Equal(f.Names, []string{"c1"}) || f.Since.IsZero()) {
						t.Errorf("dispatcher %d: %+v", d, f)
					}
					w.MustBeat(0, "c1", nil) // what the first dispatcher has counted goes to the store
				}
				if _, err := w.D[0].Beat(t.Context(), dispatch.CollectorInfo{ID: "c1", Session: "s2"}, nil); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				w.beats2("c1")
				if f, unable := findings(t, w.O[0])["COLLECTOR"]; unable {
					t.Errorf("after its restart: %+v", f)
				}
			})
		})
	}
}

// A collector that has reported a problem for a while is a finding with its words, and what it works on is explained by them; both
// end with the problem.
func TestOperator_Findings_problem(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Create("s", func(s *dispatch.SourceSpec) { s.Seeds = dispatchtest.Seeds("http://a.example/") })
		g := w.TakeOne()
		const text = "no page is taken: exit status 3"
		for _, one := range []struct {
			problem string
			lasted  time.Duration
			found   bool
		}{{text, 29 * time.Second, false}, {text, 8 * time.Minute, true}, {"", 0, false}} {
			info := dispatch.CollectorInfo{ID: g.Token.Collector, Session: "s1", Slots: 2, Problem: one.problem, ProblemDuration: one.lasted}
			if _, err := w.Beat(t.Context(), info, nil); err != nil {
				t.Fatal(err)
			}
			f, found := findings(t, w.O[0])["COLLECTOR"]
			if found != one.found || found && (f.Message != text || !slices.Equal(f.Names, []string{info.ID}) || time.Since(f.Since) != one.lasted ||
				f.Next != "waggle collector list --collector "+info.ID) {
				t.Errorf("after %v of %q: %+v", one.lasted, one.problem, f)
			}
			e, err := w.ExplainSource(t.Context(), "s")
			if holds(t, e, err); len(e.Holds) != 1 || strings.Contains(e.Holds[0].Reason, "it reports a problem for "+one.lasted.String()+": "+text) != (one.problem != "") {
				t.Errorf("after %v the source is held by %+v", one.lasted, e.Holds)
			}
		}
	})
}

// However many reasons a collector makes up, its record has a bounded number of them, and all failures.
func TestOperator_Findings_manyReasons(t *testing.T) {
	t.Parallel()
	const failures = 200
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		w.Submit("s", "", failures, 0)
		for i, g := range w.HoldTasks("c1", failures) {
			w.Settle(failure(g, dispatch.FailureReason(1000+i), 0))
		}
		w.MustBeat(0, "c1", nil)
		views, _, _, err := w.O[0].ListCollectors(t.Context(), "", 1)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, of := range views[0].Info.Outcomes.Failed {
			n += of
		}
		if reasons := len(views[0].Info.Outcomes.Failed); reasons > 100 || n != failures {
			t.Errorf("%d failures for %d reasons", n, reasons)
		}
	})
}

// beats2 is a beat of the second session of a collector.
func (w *world) beats2(id string) {
	w.T.Helper()
	if _, err := w.D[0].Beat(w.T.Context(), dispatch.CollectorInfo{ID: id, Session: "s2"}, nil); err != nil {
		w.T.Fatal(err)
	}
}

// A system of 300 feeds that is well has no finding in an hour, though some links are dead and some hosts are busy. One dead
// feed among them is named, and nothing else.
func TestOperator_Findings_healthy(t *testing.T) {
	t.Parallel()
	for name, dead := range map[string]string{"well": "", "a dead feed": "https://h7.example/feed"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
				for i := range 300 {
					w.Create(fmt.Sprintf("news.%d", i), func(s *dispatch.SourceSpec) {
						s.Seeds = dispatchtest.Seeds(fmt.Sprintf("https://h%d.example/feed", i))
						s.Schedule, s.FirstCrawl = dispatch.Schedule{Every: 20 * time.Minute}, dispatch.FirstCrawlSpread
					})
				}
				done, named := 0, map[operate.FindingKind]bool{}
				for range 120 { // half minutes
					w.MustBeat(0, "c1", nil)
					for _, g := range w.Take(1000) {
						switch done++; {
						case g.Task.URL == dead, done%30 == 0 && !g.Task.Recurring:
							w.Settle(failure(g, 1, 404))
						case g.Task.Recurring:
							w.Succeed(g, dispatch.DiscoveredItem{URL: fmt.Sprintf("%s/%d", g.Task.URL, done), Relation: dispatch.RelationFeedItem})
						case done%31 == 0:
							w.Settle(failure(g, 301, 503))
						default:
							w.Succeed(g)
						}
					}
					for kind, f := range findings(t, w.O[0]) {
						if named[kind] = true; dead == "" || !slices.Equal(f.Names, []string{"news.7"}) {
							t.Fatalf("after %d tasks: %+v", done, f)
						}
					}
					time.Sleep(30 * time.Second)
				}
				if done < 1200 || named["NEVER"] != (dead != "") || named["FAILING"] != (dead != "") {
					t.Errorf("%d tasks were done, and %v named", done, named)
				}
			})
		})
	}
}

// Sources that never succeed, and those with many dead tasks, are found; a caller that is narrowed sees its own.
func TestOperator_Findings_sources(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		for _, id := range []string{"news.a", "news.b", "shop.a"} {
			w.Create(id, func(s *dispatch.SourceSpec) {
				s.Seeds, s.Schedule = dispatchtest.Seeds("https://"+id+".example/"), dispatch.Schedule{Every: time.Minute}
			})
		}
		for range 5 {
			w.MustBeat(0, "c1", nil)
			for _, g := range w.Take(10) {
				if g.Task.URL == "https://news.b.example/" {
					w.Succeed(g)
				} else {
					w.Settle(failure(g, dispatchtest.TaskReason, 0))
				}
			}
			time.Sleep(30 * time.Second)
		}
		w.MustBeat(0, "c1", nil)
		all := findings(t, w.O[0])
		if f := all["NEVER"]; f.Count != 2 || f.Worst.(*operate.SourceView).Status.LastError == nil || f.Since.IsZero() {
			t.Errorf("never: %+v", f)
		}
		if f := findings(t, w.O[0], "news.", "news.a"); f["NEVER"].Count != 1 || f["NEVER"].Names[0] != "news.a" {
			t.Errorf("of news: %+v", f)
		}
		w.Submit("news.b", "", 9, 0)
		for i, g := range w.Take(9) {
			if i < 3 {
				w.Settle(dispatch.Report{ID: g.Task.ID, Token: g.Token, Failed: &dispatch.Failed{Reason: 10, Permanent: true}})
			} else {
				w.Succeed(g)
			}
		}
		if f := findings(t, w.O[0])["DEAD"]; f.Count != 1 || f.Names[0] != "news.b" {
			t.Errorf("dead: %+v", f)
		}
	})
}

// fullStore is a store of some kind without room.
type fullStore struct {
	*store.Store
	kind string
}

func (s fullStore) Kind() string { return s.kind }

func (s fullStore) Stats(ctx context.Context) (dispatch.StoreStats, error) {
	stats, err := s.Store.Stats(ctx)
	stats.Full = true
	return stats, err
}

// A store without room is named with what is full, and with the remedy of its kind.
func TestOperator_Findings_fullStore(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{
		"redis":  "full: submits are refused, work in hand goes on. Raise maxmemory",
		"file":   "the disk is full: submits are refused, work in hand goes on. Make room",
		"memory": "full: submits are refused, work in hand goes on.",
	} {
		store, err := store.New(store.Config{})
		if err != nil {
			t.Fatal(err)
		}
		d, err := engine.New(engine.Config{ID: "d", Store: fullStore{store, kind}})
		if err != nil {
			t.Fatal(err)
		}
		if f := findings(t, operate.New(d))["STORE"]; f.Message != want {
			t.Errorf("%s: %+v", kind, f)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}

// ownedStore is a store that dispatchers own one after the other.
type ownedStore struct {
	*store.Store
	ownership dispatch.Ownership
}

func (s ownedStore) Stats(ctx context.Context) (dispatch.StoreStats, error) {
	stats, err := s.Store.Stats(ctx)
	stats.Ownership = &s.ownership
	return stats, err
}

// A store without an owner is a finding once another dispatcher should have it, so are shards without one, a standby that is missing,
// many changes of owner, and a term that ran out or a write that was refused a short time ago. A dispatcher alone has no standby, and
// no finding of that.
func TestOperator_Findings_owner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner, err := store.New(store.Config{Shards: 3})
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		for _, test := range []struct {
			ownership dispatch.Ownership
			want      string // of the first finding
			since     time.Duration
		}{
			{dispatch.Ownership{
				Owner: "d", SelfFences: 9, SelfFenced: now.Add(-time.Hour), OwnerlessTotal: time.Hour, WithoutStandby: 3,
				WithoutStandbyFor: 59 * time.Second, Changes: 9, RecentChanges: 3, Refused: 9, RefusedAt: now.Add(-time.Hour),
			}, "", 0},
			{dispatch.Ownership{Ownerless: 4 * time.Second, Away: []int{1}}, "", 0},
			{dispatch.Ownership{Ownerless: 12 * time.Second}, "no dispatcher has owned it for 12s: calls wait, then fail", 12 * time.Second},
			{dispatch.Ownership{Ownerless: 12 * time.Second, Away: []int{0, 1, 2}}, "no dispatcher has owned it for 12s: calls wait, then fail", 12 * time.Second},
			{dispatch.Ownership{Owner: "d", Ownerless: time.Minute, Away: []int{1, 2}}, "2 of 3 shards have had no owner for 1m0s: 1, 2", time.Minute},
			{dispatch.Ownership{Owner: "d", SelfFences: 9, SelfFenced: now.Add(-90 * time.Second)}, "its owner renewed its term too late 1m30s ago, 9 times in all", 90 * time.Second},
			{dispatch.Ownership{Owner: "d", WithoutStandbyFor: 90 * time.Second}, "no standby for 1m30s: a crash costs a load", 90 * time.Second},
			{dispatch.Ownership{Owner: "d", Changes: 9, RecentChanges: 4}, "its owner has changed 4 times in 10m0s", 10 * time.Minute},
			{dispatch.Ownership{Owner: "d", Refused: 9, RefusedAt: now.Add(-90 * time.Second)}, "writes of its owner were refused 1m30s ago, 9 in all: another one owned it", 90 * time.Second},
		} {
			d, err := engine.New(engine.Config{ID: "d", Store: ownedStore{inner, test.ownership}})
			if err != nil {
				t.Fatal(err)
			}
			f := findings(t, operate.New(d))["STORE"]
			next := "waggle stats"
			if test.ownership.WithoutStandbyFor > 0 {
				next = "waggle owner"
			}
			if f.Message != test.want || test.want != "" && (!f.Since.Equal(now.Add(-test.since)) || f.Next != next) {
				t.Errorf("%+v: %+v", test.ownership, f)
			}
		}
		if err := inner.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Sources with seeds that moved for good are found, and those that redirect to where they do not follow links; what follows the
// moves ends that.
func TestOperator_Findings_moved(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.MustBeat(0, "c1", nil)
		for id, test := range map[string]struct {
			status int
			to     string
			follow *dispatch.Follow
		}{
			"https":     {301, "https://https.example/", &dispatch.Follow{}},                                  // works as it is
			"page":      {302, "http://login.test/", nil},                                                     // follows no links
			"www":       {307, "http://www.www.example/", &dispatch.Follow{}},                                 // another name of the site
			"any":       {302, "http://elsewhere.test/", &dispatch.Follow{AllowHosts: []string{"*"}}},         // follows links there
			"away":      {303, "http://elsewhere.test/", &dispatch.Follow{}},                                  // filters links there
			"refused":   {302, "http://elsewhere.test/", &dispatch.Follow{AllowHosts: []string{"a.example"}}}, // is not fetched
			"moved":     {308, "http://elsewhere.test/new", &dispatch.Follow{}},                               // both
			"not-moved": {200, "", &dispatch.Follow{}},
		} {
			w.Create(id, func(s *dispatch.SourceSpec) {
				s.Seeds, s.Schedule, s.Follow = dispatchtest.Seeds("http://"+id+".example/"), dispatch.Schedule{Every: 2 * time.Hour}, test.follow
			})
			r := dispatchtest.Success(w.Take(1, dispatch.DefaultPool)[0])
			if r.Succeeded.HTTPStatus = test.status; test.to != "" {
				r.Succeeded.Discovered = []dispatch.DiscoveredItem{{URL: test.to, Relation: dispatch.RelationRedirect, Priority: dispatch.DefaultPriority}}
			}
			w.Settle(r)
			for _, g := range w.Take(9) {
				w.Settle(dispatchtest.Success(g))
			}
		}
		all, err := w.O[0].Findings(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range all.All {
			got = append(got, fmt.Sprint(f.Kind, f.Names, f.Next))
		}
		want := []string{
			"MOVED[moved https]waggle source update moved https --follow-moves",
			"MOVED[away refused]waggle source get away",
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
