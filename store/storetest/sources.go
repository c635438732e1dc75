package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/history"
)

func sourceCases() []testCase {
	return []testCase{
		{"Create_IsReadBack", sourceCreate},
		{"Create_Twice", sourceCreateTwice},
		{"Update_ByVersion", sourceUpdate},
		{"MarkApplied_ByVersion", sourceApplied},
		{"List_PendingInPages", sourcePending},
		{"MarkApplied_RemovesDeleted", sourceRemoved},
		{"List_ByPrefixAscending", sourceList},
		{"ReadMany_NilWhereNone", sourceMany},
		{"Answers_AreTheCallers", sourceOwned},
		{"Filtered_IsSummedOverShards", sourceFiltered},
	}
}

// registered makes a source with every field set.
func registered(id string) *dispatch.Source {
	depth := 3
	return &dispatch.Source{
		ID: id, UID: "uid-" + id, Version: 1, Created: start, Updated: start,
		Spec: dispatch.SourceSpec{
			DisplayName: "A source", Labels: map[string]string{"team": "news"}, Scope: "shared", CanonicalRules: 2,
			Seeds: []dispatch.Seed{{URL: "http://a.test/", Priority: 7, Metadata: map[string]string{"a": "b"}, Payload: []byte("p")}},
			Pool:  pool, Schedule: dispatch.Schedule{Cron: "@daily", TimeZone: "Europe/Berlin", Revisit: true},
			FirstCrawl: dispatch.FirstCrawlSpread, Priority: 5, LeaseDuration: time.Minute, MaxHold: time.Hour,
			Retry: dispatch.Retry{
				MaxAttempts: 1, MaxExpirations: 2, MaxThrottled: 3, MinBackoff: time.Second, MaxBackoff: time.Minute,
			},
			Remember: remember, RevisitAfter: time.Hour,
			Follow:         &dispatch.Follow{MaxDepth: &depth, AllowHosts: []string{"*.test"}, Include: []string{"a"}, Exclude: []string{"b"}},
			MaxOutstanding: 9, Metadata: map[string]string{"m": "v"}, Payload: []byte("payload"),
		},
		Holds: []dispatch.Hold{
			{Target: dispatch.HoldTarget{Source: id}, Name: "a", Effect: dispatch.EndLeases, By: "ops", Reason: "why", Created: start, Until: start.Add(time.Hour)},
			{Target: dispatch.HoldTarget{Source: id}, Name: "b", Created: start},
		},
	}
}

func (e *env) source(id string) *dispatch.Source {
	e.Helper()
	found, err := e.Store.SourcesByID(e.ctx, []string{id})
	e.ok("source "+id, err)
	return found[0]
}

func sourceCreate(e *env) {
	is(e, "read before", e.source("news.a"), nil)
	e.ok("create", e.Store.PutSource(e.ctx, registered("news.a"), 0))
	is(e, "source", e.source("news.a"), registered("news.a"))
}

func sourceCreateTwice(e *env) {
	e.ok("create", e.Store.PutSource(e.ctx, registered("a"), 0))
	e.ok("create again", e.Store.PutSource(e.ctx, registered("a"), 0))
	other := registered("a")
	other.UID = "uid-other"
	e.fails("create with another uid", e.Store.PutSource(e.ctx, other, 0), dispatch.ErrSourceExists)
	is(e, "source", e.source("a"), registered("a"))
	gone := registered("a")
	gone.Version, gone.Deleted = 2, true
	e.ok("delete", e.Store.PutSource(e.ctx, gone, 1))
	e.fails("create while it is being deleted", e.Store.PutSource(e.ctx, other, 0), dispatch.ErrSourceExists)
}

func sourceUpdate(e *env) {
	e.fails("update of none", e.Store.PutSource(e.ctx, registered("a"), 1), dispatch.ErrSourceNotFound)
	e.ok("create", e.Store.PutSource(e.ctx, registered("a"), 0))
	next := registered("a")
	next.Version, next.Holds, next.Spec.Pool = 2, nil, "eu"
	e.fails("update of another version", e.Store.PutSource(e.ctx, next, 7), dispatch.ErrEtagMismatch)
	is(e, "version", e.source("a").Version, 1)
	e.ok("update", e.Store.PutSource(e.ctx, next, 1))
	e.ok("update again", e.Store.PutSource(e.ctx, next, 1))
	is(e, "source", e.source("a"), next)
	other := registered("a")
	other.Version = 2
	e.fails("another update of the version", e.Store.PutSource(e.ctx, other, 1), dispatch.ErrEtagMismatch)
}

func (e *env) pending() []string {
	e.Helper()
	ids, _ := e.pendingAfter("", 10)
	return ids
}

func (e *env) pendingAfter(after string, limit int) (ids []string, more bool) {
	e.Helper()
	sources, more, err := e.Store.ListSources(e.ctx, dispatch.SourceFilter{Pending: true}, after, limit)
	e.ok("pending sources", err)
	for _, s := range sources {
		ids = append(ids, s.ID)
	}
	return ids, more
}

func (e *env) mark(uid string, version int64, seeds ...dispatch.TaskID) bool {
	e.Helper()
	applied, err := e.Store.MarkApplied(e.ctx, "a", uid, version, seeds)
	e.ok("mark applied", err)
	return applied
}

func sourceApplied(e *env) {
	is(e, "pending before", e.pending(), nil)
	e.ok("create", e.Store.PutSource(e.ctx, registered("a"), 0))
	is(e, "pending", e.pending(), []string{"a"})
	seeds := []dispatch.TaskID{item(source("a"), queue, "1").ID, item(source("a"), queue, "2").ID}
	is(e, "applied", e.mark("uid-a", 1, seeds...), true)
	is(e, "pending then", e.pending(), nil)
	is(e, "applied version", e.source("a").Applied, 1)
	is(e, "seeds", e.source("a").AppliedSeeds, seeds)

	next := e.source("a")
	next.Version = 2
	e.ok("update", e.Store.PutSource(e.ctx, next, 1))
	is(e, "pending after an update", e.pending(), []string{"a"})
	is(e, "applied of the older", e.mark("uid-a", 1, seeds...), false)
	is(e, "applied of another source", e.mark("uid-other", 2, seeds...), false)
	is(e, "pending still", e.pending(), []string{"a"})
	is(e, "applied of the newest", e.mark("uid-a", 2, seeds[0]), true)
	is(e, "seeds then", e.source("a").AppliedSeeds, seeds[:1])
}

func sourcePending(e *env) {
	for _, id := range []string{"c", "a", "e", "b", "d"} {
		e.ok("create", e.Store.PutSource(e.ctx, registered(id), 0))
	}
	for _, page := range []struct {
		after string
		limit int
		want  []string
		more  bool
	}{
		{"", 2, []string{"a", "b"}, true},
		{"b", 2, []string{"c", "d"}, true},
		{"bb", 1, []string{"c"}, true},
		{"d", 2, []string{"e"}, false},
		{"e", 2, nil, false},
	} {
		ids, more := e.pendingAfter(page.after, page.limit)
		is(e, "pending after "+page.after, ids, page.want)
		is(e, "more after "+page.after, more, page.more)
	}
	e.mark("uid-a", 1)
	some, _, err := e.Store.ListSources(e.ctx, dispatch.SourceFilter{Prefix: "d", Pending: true}, "", 9)
	e.ok("pending sources", err)
	is(e, "pending with a prefix", len(some), 1)
	is(e, "pending then", e.pending(), []string{"b", "c", "d", "e"})
}

func sourceRemoved(e *env) {
	e.ok("create", e.Store.PutSource(e.ctx, registered("a"), 0))
	gone := registered("a")
	gone.Version, gone.Deleted = 2, true
	e.ok("delete", e.Store.PutSource(e.ctx, gone, 1))
	is(e, "deleted", e.source("a").Deleted, true)
	is(e, "pending", e.pending(), []string{"a"})
	is(e, "applied of the older", e.mark("uid-a", 1), false)
	is(e, "applied", e.mark("uid-a", 2), true)
	is(e, "read then", e.source("a"), nil)
	is(e, "pending then", e.pending(), nil)
	is(e, "applied again", e.mark("uid-a", 2), true)
	again := registered("a")
	again.UID = "uid-second"
	e.ok("create anew", e.Store.PutSource(e.ctx, again, 0))
}

func sourceList(e *env) {
	ids := []string{"news.c", "news.a", "blogs", "news", "news.b", "newsy"}
	for _, id := range ids {
		e.ok("create "+id, e.Store.PutSource(e.ctx, registered(id), 0))
	}
	list := func(prefix, after string, limit int) []string {
		sources, more, err := e.Store.ListSources(e.ctx, dispatch.SourceFilter{Prefix: prefix}, after, limit)
		e.ok("list sources", err)
		if more && len(sources) == 0 {
			e.Fatalf("others follow a page without sources")
		}
		names := []string{}
		for _, s := range sources {
			names = append(names, s.ID)
			is(e, "uid of "+s.ID, s.UID, "uid-"+s.ID)
		}
		return names
	}
	is(e, "all", list("", "", 10), []string{"blogs", "news", "news.a", "news.b", "news.c", "newsy"})
	is(e, "prefix", list("news.", "", 10), []string{"news.a", "news.b", "news.c"})
	is(e, "page", list("news.", "", 2), []string{"news.a", "news.b"})
	is(e, "next page", list("news.", "news.b", 2), []string{"news.c"})
	is(e, "after one that is gone", list("", "news.aa", 2), []string{"news.b", "news.c"})
	is(e, "none", list("x", "", 10), []string{})
}

func sourceMany(e *env) {
	for i := range 3 {
		e.ok("create", e.Store.PutSource(e.ctx, registered(fmt.Sprint("s", i)), 0))
	}
	sources, err := e.Store.SourcesByID(e.ctx, []string{"s2", "unknown", "s0", "s2"})
	e.ok("sources by id", err)
	is(e, "sources", len(sources), 4)
	if sources[1] != nil {
		e.Fatalf("an unknown id read %v", sources[1])
	}
	is(e, "ids", []string{sources[0].ID, sources[2].ID, sources[3].ID}, []string{"s2", "s0", "s2"})
}

func sourceOwned(e *env) {
	s := registered("a")
	e.ok("create", e.Store.PutSource(e.ctx, s, 0))
	s.Spec.Metadata["m"], s.Spec.Payload[0], s.Spec.Seeds[0].URL = "x", 'x', "x"
	got := e.source("a")
	is(e, "source", got, registered("a"))
	got.Spec.Metadata["m"], got.Spec.Payload[0], got.Holds[0].By = "y", 'y', "y"
	is(e, "source read again", e.source("a"), registered("a"))
}

func sourceFiltered(e *env) {
	e.open()
	g := source("a")
	for shard := range e.Store.Shards() {
		e.create(g, item(g, e.queueIn(shard), "k"))
	}
	want := dispatch.Filtered{}
	for shard := range e.Store.Shards() {
		for n, counted := range []dispatch.Filtered{{}, {dispatch.FilterDepth: 1, dispatch.FilterExclude: 1 << 33}, {dispatch.FilterDepth: 2}} {
			e.ok(fmt.Sprintf("count %d in shard %d", n, shard), e.Store.CountEntries(e.ctx, shard, g.UID, history.Entries{Filtered: counted}))
			want.Add(counted)
		}
		e.ok("count of an unknown source", e.Store.CountEntries(e.ctx, shard, "uid-unknown", history.Entries{Filtered: want}))
	}
	is(e, "filtered", e.status(g.UID).Filtered, want)
	e.fails("count in a shard that is not there", e.Store.CountEntries(e.ctx, e.Store.Shards(), g.UID, history.Entries{Filtered: want}), dispatch.ErrInvalid)
}
