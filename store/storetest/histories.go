package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/history"
)

func historyCases() []testCase {
	return []testCase{
		{"Cycles_AndTheDay", historyCycles},
		{"Pages_CountIntoTheDay", historyPages},
		{"Pages_Lately", historyLately},
		{"Pages_Lately", historyLately},
		{"Full_KeepsTheNewest", historyFull},
		{"Entries_BeforeTheReport", historyEntries},
		{"News_AndTheirGap", historyNews},
		{"Empty_InARow", historyEmpty},
		{"Restart_KeepsAll", historyRestart},
		{"Released_IsNoAttempt", historyReleased},
	}
}

// history reads what is remembered of a source.
func (e *env) history(uid string) dispatch.SourceStatus {
	e.Helper()
	statuses, err := e.Store.SourceStatuses(e.ctx, []string{uid}, true)
	e.ok("source statuses", err)
	return statuses[0]
}

// cycled settles a cycle of a seed, which is due again at once.
func cycled(t *dispatch.Task, visit history.Visit) dispatch.Transition {
	tr := done(t)
	tr.State, tr.Remember, tr.Shrink, tr.Visit = dispatch.StateScheduled, 0, false, visit
	return tr
}

// seeded makes a source with a seed.
func (e *env) seeded() dispatch.SourceGate {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "seed", reseed(start)))
	return g
}

func (e *env) cycle(visit history.Visit) {
	e.Helper()
	grant := e.takeOne()
	e.settle(cycled(&grant.Task, visit))
}

func dayOf(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }

func historyCycles(e *env) {
	g := e.seeded()
	is(e, "history before", e.history(g.UID).History, nil)
	visit := history.Visit{
		HTTPStatus: 206, Bytes: 5000, Duration: 1230 * time.Millisecond, Document: history.Feed, BrokenOff: true,
		Entries: history.Entries{Found: 30, New: 2, Filtered: [history.Filters]int64{dispatch.FilterHost: 3, dispatch.FilterExclude: 1}},
	}
	e.cycle(visit)
	e.advance(time.Minute)
	e.cycle(history.Visit{HTTPStatus: 304, Unchanged: true})
	e.advance(time.Minute)
	grant := e.takeOne()
	failed := cycled(&grant.Task, history.Visit{HTTPStatus: 503})
	failed.Result, failed.LastError = dispatch.ResultFailed, &dispatch.Failure{Result: dispatch.ResultFailed, Reason: 102}
	e.settle(failed)
	want := history.History{
		Cycles: []history.Cycle{
			{Ended: start, Visit: visit},
			{Ended: start.Add(time.Minute), Visit: history.Visit{HTTPStatus: 304, Unchanged: true}},
			{Ended: start.Add(2 * time.Minute), Failed: true, Reason: 102, Visit: history.Visit{HTTPStatus: 503}},
		},
		Days: []history.Day{{Date: dayOf(start), Cycles: 3, Pages: 2, New: 2, Bytes: 5 << 10, Failed: []history.Failures{{Reason: 102, Count: 1}}}},
	}
	is(e, "history", e.history(g.UID).History, &want)
	is(e, "without histories", e.status(g.UID).History, nil)
}

func historyPages(e *env) {
	e.open()
	g := source("a")
	for i := range 12 {
		e.create(g, item(g, fmt.Sprintf("host%d.test", i), "k"))
	}
	n := 0
	for shard := range e.Store.Shards() {
		reply, err := e.Store.Claim(e.ctx, shard, pool, e.held.version, []dispatch.Want{e.want(100)}, nil)
		e.ok("claim", err)
		for _, grant := range reply.Grants[0] {
			tr := done(&grant.Task)
			tr.Visit = history.Visit{HTTPStatus: 200, Bytes: 1 << 10, Entries: history.Entries{Found: 2, New: 1}}
			if n++; n%3 == 0 {
				tr = dead(&grant.Task)
			}
			e.settle(tr)
		}
	}
	h := e.history(g.UID).History
	is(e, "cycles", h.Cycles, nil)
	is(e, "days", len(h.Days), 1)
	day := h.Days[0]
	failed := int64(0)
	for _, f := range day.Failed {
		failed += f.Count
	}
	is(e, "pages, new, kibibytes and failed", [4]int64{day.Pages, day.New, day.Bytes >> 10, failed}, [4]int64{8, 8, 8, 4})
}

// historyLately ends pages. First failures and successes count; what a collector is to blame for, retries, redirects and seeds do not.
func historyLately(e *env) {
	g := e.seeded()
	e.cycle(history.Visit{HTTPStatus: 200})
	grant := e.takeOne()
	seed := cycled(&grant.Task, history.Visit{HTTPStatus: 503})
	seed.Result, seed.SourceFailure = dispatch.ResultFailed, true
	seed.LastError, seed.Counters.Failures = &dispatch.Failure{Result: dispatch.ResultFailed, Reason: 102}, 1
	seed.Delay = 1000 * time.Hour
	e.settle(seed)
	is(e, "last pages without one", e.status(g.UID).Pages, history.Pages{})
	page := func(change func(tr *dispatch.Transition), succeeds bool) {
		e.Helper()
		e.calls++
		e.create(g, item(g, queue, fmt.Sprint("page", e.calls)))
		grant := e.takeOne()
		tr := dead(&grant.Task)
		if tr.SourceFailure = false; succeeds {
			tr = done(&grant.Task)
		}
		change(&tr)
		e.settle(tr)
	}
	as := func(*dispatch.Transition) {}
	for range 12 {
		page(as, false)
	}
	page(func(tr *dispatch.Transition) { tr.LastError.Reason = 200 }, false)
	page(func(tr *dispatch.Transition) { tr.Counters.Throttled = 1 }, false)
	page(func(tr *dispatch.Transition) { tr.Visit.HTTPStatus = 302 }, true)
	page(func(tr *dispatch.Transition) { tr.Result = dispatch.ResultExpired }, false)
	is(e, "last pages", e.status(g.UID).Pages, history.Pages{Ended: 12, Failed: 12})
	e.restart()
	is(e, "last pages after a restart", e.status(g.UID).Pages, history.Pages{Ended: 12, Failed: 12})
	e.advance(24 * time.Hour)
	page(as, true)
	page(func(tr *dispatch.Transition) { tr.Visit.HTTPStatus = 304 }, true)
	is(e, "last pages on the next day", e.status(g.UID).Pages, history.Pages{Ended: 14, Failed: 12})
	for range 8 {
		page(as, true)
	}
	e.restart()
	is(e, "last pages once there are enough", e.status(g.UID).Pages, history.Pages{Ended: 10})
	e.advance(history.PagesDays * 24 * time.Hour)
	is(e, "last pages of long ago", e.status(g.UID).Pages, history.Pages{})
}

func historyFull(e *env) {
	g := e.seeded()
	const days = history.MaxDays + 10
	for i := range days {
		e.cycle(history.Visit{HTTPStatus: 200, Bytes: 1 << 10, Entries: history.Entries{Found: 1, New: int64(i % 2)}})
		e.advance(24 * time.Hour)
	}
	h := e.history(g.UID).History
	is(e, "cycles", len(h.Cycles), history.MaxCycles)
	is(e, "days", len(h.Days), history.MaxDays)
	is(e, "the oldest cycle", h.Cycles[0].Ended, start.Add((days-history.MaxCycles)*24*time.Hour))
	is(e, "the newest cycle", h.Cycles[history.MaxCycles-1].Ended, start.Add((days-1)*24*time.Hour))
	is(e, "the oldest day", h.Days[0].Date, dayOf(start.Add((days-history.MaxDays)*24*time.Hour)))
	is(e, "a day", h.Days[history.MaxDays-1], history.Day{Date: dayOf(start.Add((days - 1) * 24 * time.Hour)), Cycles: 1, Pages: 1, New: 1, Bytes: 1 << 10})
}

func historyEntries(e *env) {
	g := e.seeded()
	grant := e.takeOne()
	shard := dispatch.ShardOf(grant.Task.ID.Slot(), e.Store.Shards())
	early := history.Entries{Found: 1000, New: 10, Filtered: [history.Filters]int64{dispatch.FilterDepth: 7}}
	e.ok("count", e.Store.CountEntries(e.ctx, shard, g.UID, early))
	e.ok("count", e.Store.CountEntries(e.ctx, shard, g.UID, early))
	if !e.Copied { // a copy begins with the next cycle
		e.restart()
	}
	e.settle(cycled(e.task(grant.Task.ID), history.Visit{HTTPStatus: 200, Document: history.Sitemap, Entries: history.Entries{Found: 1}}))
	e.cycle(history.Visit{HTTPStatus: 200, Document: history.Sitemap})
	s := e.history(g.UID)
	want := history.Entries{Found: 2001, New: 20, Filtered: [history.Filters]int64{dispatch.FilterDepth: 14}}
	is(e, "cycles", len(s.History.Cycles), 2)
	is(e, "entries of the first cycle", s.History.Cycles[0].Entries, want)
	is(e, "entries of the next cycle", s.History.Cycles[1].Entries, history.Entries{})
	is(e, "new of the day", s.History.Days[0].New, 20)
	is(e, "filtered", s.Filtered, dispatch.Filtered(want.Filtered))
	is(e, "empty cycles", s.EmptyCycles, 0)
}

func historyNews(e *env) {
	g := e.seeded()
	is(e, "last new before", e.history(g.UID).LastNew, time.Time{})
	fresh := history.Visit{HTTPStatus: 200, Entries: history.Entries{Found: 3, New: 1}}
	for i := range 6 {
		e.cycle(fresh)
		s := e.history(g.UID)
		is(e, "last new", s.LastNew, start.Add(time.Duration(i)*time.Hour))
		want := time.Duration(0)
		if i == 5 {
			want = time.Hour
		}
		is(e, fmt.Sprintf("usual gap after %d", i+1), s.UsualGap, want)
		e.advance(time.Hour)
	}
	e.advance(99 * time.Hour) // counts as 8 of them
	e.cycle(history.Visit{HTTPStatus: 200, Entries: history.Entries{Found: 3}})
	is(e, "last new", e.history(g.UID).LastNew, start.Add(5*time.Hour))
	e.cycle(fresh)
	then := time.Hour + 7*time.Hour/6
	is(e, "usual gap then", e.history(g.UID).UsualGap, then)
	// What one crawl brings over time is one gap, here of no length.
	grant := e.takeOne()
	shard := dispatch.ShardOf(grant.Task.ID.Slot(), e.Store.Shards())
	for range 3 {
		e.ok("count", e.Store.CountEntries(e.ctx, shard, g.UID, history.Entries{Found: 1000, New: 1}))
		is(e, "usual gap within a crawl", e.history(g.UID).UsualGap, then)
		e.advance(time.Minute)
	}
	e.settle(cycled(e.task(grant.Task.ID), fresh))
	is(e, "usual gap after it", e.history(g.UID).UsualGap, then)
}

func historyEmpty(e *env) {
	g := e.seeded()
	for i, c := range []struct {
		visit history.Visit
		empty bool
		want  int64
	}{
		{history.Visit{Unchanged: true}, false, 0},
		{history.Visit{Document: history.Feed}, true, 1},
		{history.Visit{Unchanged: true}, false, 2},
		{history.Visit{}, false, 2}, // of a collector that does not say what it has read
		{history.Visit{Document: history.Empty}, true, 3},
		{history.Visit{Document: history.Page}, false, 0},
		{history.Visit{Document: history.Feed}, true, 1},
		{history.Visit{Document: history.Feed, Entries: history.Entries{Found: 1}}, false, 0},
	} {
		grant := e.takeOne()
		tr := cycled(&grant.Task, c.visit)
		tr.Empty = c.empty
		e.settle(tr)
		is(e, fmt.Sprintf("empty cycles after %d", i+1), e.history(g.UID).EmptyCycles, c.want)
	}
}

func historyRestart(e *env) {
	g := e.seeded()
	for i := range 3 {
		e.cycle(history.Visit{HTTPStatus: 200, Bytes: 100 << 10, Document: history.Feed, Entries: history.Entries{Found: 9, New: int64(i)}})
		e.advance(25 * time.Hour)
		before := e.history(g.UID)
		e.restart()
		is(e, fmt.Sprintf("after restart %d", i+1), e.history(g.UID), before)
	}
	is(e, "cycles", len(e.history(g.UID).History.Cycles), 3)
}

func historyReleased(e *env) {
	g := e.seeded()
	grant := e.takeOne()
	tr := cycled(&grant.Task, history.Visit{})
	tr.Result, tr.Settled, tr.SourceSuccess = dispatch.ResultReleased, false, false
	e.settle(tr)
	is(e, "history", e.history(g.UID).History, nil)
}
