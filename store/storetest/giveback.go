package storetest

import (
	"strconv"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

func (e *env) giveBack(token, call string) int {
	e.Helper()
	n, err := e.Store.GiveBack(e.ctx, e.shard(queue), "c1", token, call)
	e.ok("give back", err)
	return n
}

func giveBack(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 3)...)
	grants := e.take(2, by("t", "1"))
	is(e, "given back", e.giveBack("t", "1"), 2)
	for i := range grants {
		task := e.task(grants[i].Task.ID)
		is(e, "state", task.State, dispatch.StateReady)
		is(e, "attempt", task.Counters.Attempt, 0)
		is(e, "due", task.Due, start)
		value, _ := e.LockValue(task.ID)
		is(e, "lock", value, "")
		if lost := e.renew(grants[i]).Lost; lost == dispatch.LostNone {
			e.Fatal("a lease that was given back can be renewed")
		}
	}
	is(e, "leased", e.info(queue).Leased, 0)
	is(e, "given back again", e.giveBack("t", "1"), 0)
	is(e, "granted again", keys(e.take(2)), keys(grants))
}

func giveBackDelay(e *env) {
	e.rule("*", delayed(10*time.Second, 5))
	g := source("a")
	e.create(g, numbered(g, queue, 3)...)
	e.takeOne(by("t", "1"))
	e.advance(time.Second)
	e.takeNone()
	is(e, "given back", e.giveBack("t", "1"), 1)
	e.takeOne()
}

func giveBackLater(e *env) {
	e.rule("*", delayed(10*time.Second, 5))
	g := source("a")
	e.create(g, numbered(g, queue, 3)...)
	e.takeOne(by("t", "1"))
	e.advance(10 * time.Second)
	e.takeOne(by("u", "2"))
	is(e, "given back", e.giveBack("t", "1"), 1)
	is(e, "next", e.takeNone().Next, e.now().Add(10*time.Second))
}

func giveBackAnswered(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 3)...)
	e.takeOne(by("t", "1"))
	is(e, "replayed", len(e.poll("c1", "s1", "t", "2").Replay), 1)
	is(e, "given back by the first call", e.giveBack("t", "1"), 0)
	is(e, "leased", e.info(queue).Leased, 1)
	is(e, "given back by the second call", e.giveBack("t", "2"), 1)

	e.takeOne(by("u", "3"))
	e.claim(e.want(1, by("u", "4")))
	is(e, "given back by the call before", e.giveBack("u", "3"), 0)
	is(e, "given back by the last call", e.giveBack("u", "4"), 1)
}

// giveBackRepeated repeats a call that was answered, by a claim and by a poll: the end of
// a repetition takes nothing from the call before.
func giveBackRepeated(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 3)...)
	grants := e.take(2, by("t", "1"))
	repeat := map[string]func(call string) []dispatch.Grant{
		"claim": func(call string) []dispatch.Grant { return e.claim(e.want(2, by("t", call))).Grants[0] },
		"poll":  func(call string) []dispatch.Grant { return e.poll("c1", "s1", "t", call).Replay },
	}
	for _, how := range []string{"claim", "poll", "claim"} {
		is(e, "repeated by "+how, keys(repeat[how](how)), keys(grants))
		is(e, "given back by the repetition", e.giveBack("t", how), 0)
		is(e, "given back by it again", e.giveBack("t", how), 0)
	}
	is(e, "given back by an unknown call", e.giveBack("t", "unknown"), 0)
	is(e, "leased", e.info(queue).Leased, 2)
	for i := range grants {
		value, _ := e.LockValue(grants[i].Task.ID)
		is(e, "lock", value, grants[i].Token.String())
		is(e, "lost", e.renew(grants[i]).Lost, dispatch.LostNone)
		is(e, "report", e.apply(done(&grants[i].Task)).Code, dispatch.Applied)
	}
}

// giveBackByAll has every call that a grant answered give it back, in each order: with the
// last one it is as if it had never been granted.
func giveBackByAll(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 1)...)
	for _, order := range [][]string{{"1", "2", "3"}, {"3", "2", "1"}, {"2", "3", "1"}} {
		grant := e.takeOne(by("t", "1"))
		is(e, "attempt", grant.Task.Counters.Attempt, 1)
		is(e, "repeated by poll", len(e.poll("c1", "s1", "t", "2").Replay), 1)
		is(e, "repeated by claim", len(e.claim(e.want(1, by("t", "3"))).Grants[0]), 1)
		for _, call := range order[:2] {
			is(e, "given back by call "+call, e.giveBack("t", call), 0)
			is(e, "lost", e.renew(grant).Lost, dispatch.LostNone)
		}
		is(e, "given back by the last call", e.giveBack("t", order[2]), 1)
		is(e, "state", e.task(grant.Task.ID).State, dispatch.StateReady)
	}
}

// giveBackMany repeats a call more often than a store remembers calls: then it cannot
// tell whether one of them was answered.
func giveBackMany(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 2)...)
	for _, c := range []struct {
		token string
		calls int
		back  int
	}{{"t", bounds.MaxGrantCalls, 1}, {"u", bounds.MaxGrantCalls + 1, 0}} {
		e.takeOne(by(c.token, "0"))
		given := 0
		for n := range c.calls - 1 {
			is(e, "repeated", len(e.claim(e.want(1, by(c.token, strconv.Itoa(n+1)))).Grants[0]), 1)
		}
		for n := range c.calls {
			given += e.giveBack(c.token, strconv.Itoa(n))
		}
		is(e, "given back by "+strconv.Itoa(c.calls)+" calls", given, c.back)
	}
}

func giveBackHeld(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 3)...)
	grants := e.take(3, by("t", "1"))
	e.settle(done(&grants[1].Task))
	is(e, "given back", e.giveBack("t", "1"), 2)
	is(e, "state of the settled one", e.task(grants[1].Task.ID).State, dispatch.StateDone)
	is(e, "unknown token", e.giveBack("u", "1"), 0)
}

func giveBackCanceled(e *env) {
	e.open()
	g := source("a", func(g *dispatch.SourceGate) { g.Remember, g.MaxOutstanding = time.Hour, 3 })
	e.create(g, numbered(g, queue, 3)...)
	grants := e.take(3, by("t", "1"))
	e.requestCancel(dispatch.CancelTask, grants[0].Task.ID)
	is(e, "given back", e.giveBack("t", "1"), 3)

	task := e.task(grants[0].Task.ID)
	is(e, "state", task.State, dispatch.StateCanceled)
	is(e, "flag", task.CancelRequested, dispatch.CancelNone)
	is(e, "attempt", task.Counters.Attempt, 0)
	is(e, "settled", task.SettledAt, start)
	is(e, "counts", e.stats().Counts, dispatch.StateCounts{Ready: 2, Canceled: 1})
	is(e, "listed", len(e.list(dispatch.TaskFilter{SourceUID: g.UID, States: []dispatch.State{dispatch.StateCanceled}}, 10)), 1)
	is(e, "leased", e.info(queue).Leased, 0)
	// It no longer counts against the source's limit.
	e.submitOne(g, item(g, queue, "one more"), dispatch.SubmitCreated)
	is(e, "granted again", len(e.take(3)), 3)

	e.advance(time.Hour + time.Millisecond)
	tasks, _, err := e.Store.Tasks(e.ctx, []dispatch.TaskID{task.ID}, false)
	e.ok("read", err)
	if tasks[0] != nil {
		e.Fatalf("a canceled task is kept beyond its source's time: %+v", *tasks[0])
	}
}

func giveBackDeleted(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne(by("t", "1"))
	g.Version, g.Deleted = 2, true
	e.push(g)
	ended, leased, err := e.Store.DropTasks(e.ctx, e.shard(queue), g.UID, 10, nil)
	e.ok("drop tasks", err)
	is(e, "ended", ended, 0)
	e.requestCancel(dispatch.CancelSourceDeleted, leased...)
	is(e, "given back", e.giveBack("t", "1"), 1)
	is(e, "state", e.task(grant.Task.ID).State, dispatch.StateCanceled)
	ended, leased, err = e.Store.DropTasks(e.ctx, e.shard(queue), g.UID, 10, nil)
	e.ok("drop tasks again", err)
	is(e, "ended again", ended+len(leased), 0)
	is(e, "leased", e.stats().Counts.Leased, 0)
}
