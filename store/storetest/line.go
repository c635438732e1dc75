package storetest

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func lineCases() []testCase {
	return []testCase{
		{"Wants_ShareTheTurns", lineShares},
		{"Wants_ShareNoTurnWithADelay", lineDelayed},
		{"MaxBytes_EndsTheTurn", lineBytes},
		{"Replay_PartsTheLine_P7", lineReplay},
		{"Token_TwiceInAClaim_P7", lineTwice},
		{"Token_ThatGotNothing_PartsNoLine", lineAgain},
		{"GiveBack_OfOneOfATurn", lineGiveBack},
	}
}

// crowd submits tasks to queues that can all be picked.
func (e *env) crowd(queues []string, tasks int) {
	e.Helper()
	g := source("a")
	for _, name := range queues {
		e.create(g, numbered(g, name, tasks)...)
	}
	e.advance(time.Millisecond) // so that a turn that ended is not as old as those that wait
}

// wants are n of one task each.
func (e *env) wants(n int) []dispatch.Want {
	wants := make([]dispatch.Want, n)
	for i := range wants {
		wants[i] = e.want(1)
	}
	return wants
}

// runs counts the grants of wants of one task that follow each other in one queue.
func (e *env) runs(grants [][]dispatch.Grant) (runs []int) {
	e.Helper()
	last := ""
	for i := range grants {
		if len(grants[i]) != 1 {
			e.Fatalf("want %d got %v", i, keys(grants[i]))
		}
		if name := grants[i][0].Task.Queue; name != last {
			last, runs = name, append(runs, 0)
		}
		runs[len(runs)-1]++
	}
	return runs
}

// lineShares holds 40 wants of one task each against four queues and against twenty:
// they are given turns as one want of 40 is.
func lineShares(e *env) {
	e.open()
	names := e.queues(20)
	e.crowd(names[:4], 50)
	is(e, "grants of four queues, as they follow each other", e.runs(e.claim(e.wants(40)...).Grants), []int{10, 10, 10, 10})
	e.crowd(names[4:], 50)
	is(e, "grants of twenty queues", e.runs(e.claim(e.wants(40)...).Grants), []int{4, 4, 4, 4, 4, 4, 4, 4, 4, 4})
	is(e, "grants of few wants", e.runs(e.claim(e.wants(9)...).Grants), []int{1, 1, 1, 1, 1, 1, 1, 1, 1})
}

func lineDelayed(e *env) {
	e.rule("*", delayed(time.Second, 100))
	e.crowd(e.queues(5), 50)
	reply := e.claim(e.wants(7)...)
	is(e, "grants of queues with a delay", e.runs(reply.Grants[:5]), []int{1, 1, 1, 1, 1})
	is(e, "used by those behind", reply.Used[5:], []bool{false, false})
}

// lineBytes holds a want that has room for one task's bytes before wants that have
// for many: what does not fit is the next one's, in a turn of its own.
func lineBytes(e *env) {
	e.open()
	e.crowd(e.queues(2), 50)
	small := e.want(10, func(w *dispatch.Want) { w.MaxBytes = 1 })
	reply := e.claim(small, e.want(5), e.want(5))
	is(e, "grants of the small one", len(reply.Grants[0]), 1)
	first := reply.Grants[0][0].Task.Queue
	for i := range 2 {
		is(e, "grants of one behind", len(reply.Grants[1+i]), 5)
		for _, g := range reply.Grants[1+i] {
			if g.Task.Queue == first {
				e.Fatalf("want %d got %s of queue %s, whose turn had ended", 1+i, g.Task.Key, first)
			}
		}
	}
}

func lineReplay(e *env) {
	e.open()
	e.crowd(e.queues(20), 50)
	repeated := e.want(1)
	before := e.claim(repeated).Grants[0][0]
	e.advance(time.Millisecond)
	wants := append(append(e.wants(20), repeated), e.wants(10)...)
	reply := e.claim(wants...)
	is(e, "token of the repeated one", reply.Grants[20][0].Token, before.Token)
	is(e, "grants before it", e.runs(reply.Grants[:20]), []int{2, 2, 2, 2, 2, 2, 2, 2, 2, 2})
	is(e, "grants behind it", e.runs(reply.Grants[21:]), []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1})
}

func lineTwice(e *env) {
	e.open()
	e.crowd(e.queues(1), 10)
	want := e.want(2)
	reply := e.claim(e.want(1), want, want, e.want(1))
	is(e, "grants of the first", len(reply.Grants[1]), 2)
	for i := range reply.Grants[1] {
		is(e, "token of the second", reply.Grants[2][i].Token, reply.Grants[1][i].Token)
	}
	is(e, "leased", e.info(e.queues(1)[0]).Leased, 4)
}

// lineAgain holds a client token that got nothing of the queue that it named, and asks
// for anything in the same claim: it shares the turns of the one before it.
func lineAgain(e *env) {
	e.open()
	e.crowd(e.queues(2), 10)
	again := e.want(2)
	narrowed := again
	narrowed.Queues = []string{"elsewhere.example"}
	reply := e.claim(narrowed, e.want(2), again)
	is(e, "grants of what is elsewhere", len(reply.Grants[0]), 0)
	for i := range 2 {
		g := reply.Grants[1+i]
		is(e, "grants", len(g), 2)
		is(e, "queue of the second grant", g[1].Task.Queue, g[0].Task.Queue)
	}
}

func lineGiveBack(e *env) {
	e.open()
	e.crowd(e.queues(1), 10)
	wants := e.wants(3)
	reply := e.claim(wants...)
	n, err := e.Store.GiveBack(e.ctx, e.shard(queue), wants[1].Collector, wants[1].ClientToken, wants[1].Call)
	e.ok("give back", err)
	is(e, "given back", n, 1)
	is(e, "leased", e.info(e.queues(1)[0]).Leased, 2)
	is(e, "state of what was given back", e.task(reply.Grants[1][0].Task.ID).State, dispatch.StateReady)
	for _, i := range []int{0, 2} {
		again := e.claim(wants[i]).Grants[0]
		is(e, "held of the others", len(again), 1)
		is(e, "token of the others", again[0].Token, reply.Grants[i][0].Token)
	}
}
