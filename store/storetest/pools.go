package storetest

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func poolCases() []testCase {
	return []testCase{
		{"List", poolList},
	}
}

func (e *env) pool() dispatch.Pool {
	e.Helper()
	known, err := e.Store.ListPools(e.ctx, pool, "", 9)
	e.ok("read pool", err)
	if len(known) == 0 {
		return dispatch.Pool{}
	}
	return known[0]
}

func poolList(e *env) {
	list := func(after string, limit int) []dispatch.Pool {
		known, err := e.Store.ListPools(e.ctx, "", after, limit)
		e.ok("list pools", err)
		return known
	}
	is(e, "nothing", len(list("", 9)), 0)
	a := source("a")
	b := source("b", func(g *dispatch.SourceGate) { g.Pool = "browser" })
	for shard := range e.Store.Shards() {
		e.create(a, item(a, e.queueIn(shard), "k"))
	}
	e.create(b, item(b, queue, "later", withPriority(5, start.Add(time.Minute))))
	e.putHolds([]dispatch.Hold{e.newHold(dispatch.HoldTarget{Pool: "eu"}, "a", time.Time{})}) // no reason to list it
	all := []dispatch.Pool{
		{Name: "browser", Waiting: 1}, {Name: pool, Open: int64(e.Store.Shards())},
	}
	is(e, "all", list("", 9), all)
	is(e, "first", list("", 1), all[:1])
	is(e, "after the first", list("browser", 9), all[1:])
	// What has come due meanwhile is ready, though no claim has looked yet.
	e.advance(time.Minute)
	is(e, "due by then", list("", 1), []dispatch.Pool{{Name: "browser", Open: 1}})
	for _, after := range []string{"", "brow"} {
		alone, err := e.Store.ListPools(e.ctx, "browser", after, 9)
		e.ok("read pool", err)
		is(e, "read alone", alone, []dispatch.Pool{{Name: "browser", Open: 1}})
	}
	none, err := e.Store.ListPools(e.ctx, "browser", "browser", 9)
	e.ok("read pool", err)
	is(e, "read after it", len(none), 0)
}
