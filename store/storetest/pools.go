package storetest

import (
	"errors"
	"strconv"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

func poolCases() []testCase {
	return []testCase{
		{"Pause_HoldsUntilResumed", poolPause},
		{"Pause_HoldsUntilThen", poolPauseUntil},
		{"Pause_HoldsEveryShard", poolPauseShards},
		{"Pause_LeavesReplaysAndOtherPools", poolPauseReplay},
		{"Pause_IsBounded_P10", poolPauseLimit},
		{"List", poolList},
	}
}

func (e *env) pausePool(name string, until time.Time) dispatch.Gate {
	e.Helper()
	gate := dispatch.Gate{Until: until, By: "ops", Reason: "we move", Time: start}
	return e.setHold(dispatch.HoldTarget{Pool: name}, dispatch.HoldDefault, gate).Gate
}

func (e *env) resumePool(name string) (held bool) {
	e.Helper()
	return e.lift(dispatch.HoldTarget{Pool: name}, dispatch.HoldDefault)
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

func poolPause(e *env) {
	e.open()
	is(e, "before", e.pool(), dispatch.Pool{})
	e.pausePool(pool, start.Add(time.Second))
	gate := e.pausePool(pool, time.Time{}) // replaces the earlier one
	g := source("a")
	e.create(g, numbered(g, queue, 2)...)
	is(e, "paused", e.pool(), dispatch.Pool{Name: pool, Open: 1, Paused: &gate})
	reply := e.takeNone()
	is(e, "next", reply.Next, time.Time{})
	is(e, "wait", reply.Wait, dispatch.WaitPaused)
	e.advance(1000 * time.Hour)
	is(e, "more", e.takeNone().More, false)
	is(e, "held", e.resumePool(pool), true)
	is(e, "held again", e.resumePool(pool), false)
	is(e, "resumed", e.pool(), dispatch.Pool{Name: pool, Open: 1})
	e.take(2)
}

func poolPauseUntil(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.pausePool(pool, start.Add(time.Minute))
	reply := e.takeNone(func(w *dispatch.Want) { w.SourceUIDs = []string{g.UID} })
	is(e, "next", reply.Next, start.Add(time.Minute))
	is(e, "again", reply.Again, start.Add(time.Minute))
	e.advance(time.Minute - time.Millisecond)
	is(e, "wait", e.takeNone().Wait, dispatch.WaitPaused)
	e.advance(time.Millisecond)
	is(e, "over", e.pool(), dispatch.Pool{Name: pool, Open: 1})
	e.takeOne()
}

func poolPauseShards(e *env) {
	g := source("a")
	for shard := range e.Store.Shards() {
		e.create(g, item(g, e.queueIn(shard), "k"))
	}
	e.pausePool(pool, time.Time{})
	granted := func() (n int) {
		for shard := range e.Store.Shards() {
			reply, err := e.Store.Claim(e.ctx, shard, pool, []dispatch.Want{e.want(9)})
			e.ok("claim", err)
			n += len(reply.Grants[0])
		}
		return n
	}
	is(e, "granted while paused", granted(), 0)
	is(e, "held", e.resumePool(pool), true)
	is(e, "granted then", granted(), e.Store.Shards())
}

// poolPauseReplay: what was granted is held and settled as ever, and its claim can
// be repeated (P7).
func poolPauseReplay(e *env) {
	e.open()
	g := source("a")
	other := source("b", func(g *dispatch.SourceGate) { g.Pool = "browser" })
	e.create(g, numbered(g, queue, 2)...)
	e.create(other, item(other, queue, "b"))
	want := e.want(1)
	first := e.claim(want).Grants[0]
	e.pausePool(pool, time.Time{})
	reply := e.claim(want)
	is(e, "replayed", keys(reply.Grants[0]), keys(first))
	is(e, "used", reply.Used[0], true)
	is(e, "renewal", e.renew(first[0]).Lost, dispatch.LostNone)
	e.settle(done(&first[0].Task))
	is(e, "granted in the other pool", len(e.claimFrom("browser", e.want(9)).Grants[0]), 1)
	e.takeNone()
}

func poolPauseLimit(e *env) {
	for n := range bounds.MaxHolds {
		e.pausePool("p"+strconv.Itoa(n), start.Add(time.Minute))
	}
	err := e.Store.SetHold(e.ctx, dispatch.Hold{Target: dispatch.HoldTarget{Pool: "more"}, Name: dispatch.HoldDefault})
	var field *dispatch.FieldError
	if !errors.As(err, &field) || field.Field != "name" || field.Value != "more" {
		e.Errorf("one more: %v, want an error that names field, value and limit", err)
	}
	e.pausePool("p7", time.Time{}) // again
	e.advance(time.Minute)
	e.pausePool("more", time.Time{}) // the others are over
	known, err := e.Store.ListPools(e.ctx, "", "", 9)
	e.ok("list pools", err)
	is(e, "paused then", len(known), 2)
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
	gate := e.pausePool("eu", time.Time{})
	soon := e.pausePool("soon", start.Add(time.Minute))
	paused := func() map[string]dispatch.Gate {
		paused := make(map[string]dispatch.Gate)
		for _, h := range e.holds() {
			paused[h.Target.Pool] = h.Gate
		}
		return paused
	}
	is(e, "paused", paused(), map[string]dispatch.Gate{"eu": gate, "soon": soon})
	is(e, "held", e.resumePool("soon"), true)
	is(e, "paused, one resumed", paused(), map[string]dispatch.Gate{"eu": gate})
	e.pausePool("over", start.Add(time.Second))
	e.advance(time.Second)
	is(e, "paused, one over", paused(), map[string]dispatch.Gate{"eu": gate})
	all := []dispatch.Pool{
		{Name: "browser", Waiting: 1}, {Name: pool, Open: int64(e.Store.Shards())}, {Name: "eu", Paused: &gate},
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
