package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func sessionCases() []testCase {
	return []testCase{
		{"NewSession_ReplacesTheOlder", sessionNew},
		{"Beats_FollowTheSameRules", sessionBeats},
		{"EndSession_ReturnsWhatTheyHold", sessionEnd},
		{"EndSession_WantsOfTheReplacedGetNothing_T3", sessionZombie},
		{"EndSession_Pages", sessionPages},
		{"EndSession_AmongManyOfTheKeptSession", sessionAmongMany},
		{"EndSession_TokenRepeatedBeforeASweep", sessionTokenAgain},
		{"EndSession_IsNewUntilNothingIsLeft", sessionNewUntilDone},
		{"SameSession_IsLeftAlone", sessionSame},
		{"NewSession_HomeShardGivesTheOlderNothing_T3", sessionAtHome},
		{"EndSession_LateForASessionThatWasReplaced", sessionLate},
	}
}

func sessionNew(e *env) {
	is(e, "first", e.poll("c1", "s1", "t1", "1"), dispatch.PollState{})
	is(e, "second", e.poll("c1", "s2", "t2", "2"), dispatch.PollState{NewSession: true})
	is(e, "first again", e.poll("c1", "s1", "t3", "3").Replaced, true)
	is(e, "another collector", e.poll("c2", "s1", "t4", "4"), dispatch.PollState{})
	is(e, "second still new", e.poll("c1", "s2", "t5", "5"), dispatch.PollState{NewSession: true})
	for shard := range e.Store.Shards() {
		_, err := e.Store.EndSession(e.ctx, shard, "c1", "s2", 10)
		e.ok("end session", err)
	}
	is(e, "second, told everywhere", e.poll("c1", "s2", "t6", "6"), dispatch.PollState{})
	is(e, "first after all", e.poll("c1", "s1", "t7", "7").Replaced, true)
}

func sessionBeats(e *env) {
	beat := func(session string) dispatch.PollState {
		state, err := e.Store.Beat(e.ctx, dispatch.CollectorInfo{ID: "c1", Session: session})
		e.ok("beat", err)
		return state
	}
	is(e, "first", beat("s1"), dispatch.PollState{})
	is(e, "second", beat("s2").NewSession, true)
	is(e, "first again", beat("s1").Replaced, true)
	is(e, "first by poll", e.poll("c1", "s1", "t", "1").Replaced, true)
	is(e, "third by poll", e.poll("c1", "s3", "t", "1").NewSession, true)
	is(e, "second again", beat("s2").Replaced, true)
}

func (e *env) endSession(keep string) []*dispatch.Task {
	e.Helper()
	tasks, err := e.Store.EndSession(e.ctx, e.shard(queue), "c1", keep, 10)
	e.ok("end session", err)
	return tasks
}

// in makes a want one of the given collector and session.
func in(collector, session string) func(*dispatch.Want) {
	return func(w *dispatch.Want) { w.Collector, w.Session = collector, session }
}

func sessionEnd(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 6)...)
	held := map[dispatch.TaskID]bool{}
	for _, grant := range e.take(2, in("c1", "s1")) {
		held[grant.Task.ID] = true
	}
	mine := e.takeOne(in("c1", "s2"))
	other := e.takeOne(in("c2", "s1"))
	tasks := e.endSession("s2")
	is(e, "tasks of the replaced session", len(tasks), 2)
	for _, task := range tasks {
		if !held[task.ID] {
			e.Fatalf("task %s was not held by the replaced session", task.Key)
		}
		is(e, "state", task.State, dispatch.StateLeased)
		e.settle(replaced(task))
	}
	is(e, "tasks then", len(e.endSession("s2")), 0)
	is(e, "renewal by the new session", e.renew(mine).Lost, dispatch.LostNone)
	is(e, "renewal by another collector", e.renew(other).Lost, dispatch.LostNone)
	is(e, "granted again", len(e.take(4, in("c2", "s1"))), 4)
}

func sessionZombie(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 3)...)
	e.endSession("s2")
	reply := e.claim(e.want(1, in("c1", "s1")), e.want(1, in("c1", "s2")), e.want(1, in("c2", "s1")))
	is(e, "grants of the replaced session", len(reply.Grants[0]), 0)
	is(e, "grants of the new session", len(reply.Grants[1]), 1)
	is(e, "grants of another collector", len(reply.Grants[2]), 1)
}

// sessionTokenAgain has nobody sweep for long: the leases of a grant still stand when its
// client token is repeated, and are found.
func sessionTokenAgain(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 4)...)
	end := func(grants []dispatch.Grant) {
		for i := range grants {
			e.settle(replaced(&grants[i].Task))
		}
	}
	for i, size := range []int{1, 2} {
		keep, token := fmt.Sprint("s", i+2), func(w *dispatch.Want) { w.ClientToken = fmt.Sprint("again", i) }
		mine := in("c1", fmt.Sprint("s", i+1))
		first := e.take(size, mine, token)
		e.advance(time.Hour)
		again := e.take(size, mine, token)
		is(e, "granted again", keys(again), keys(first))
		is(e, "held", len(e.endSession(keep)), size)
		end(again)
		is(e, "held in the end", len(e.endSession(keep)), 0)
	}
}

func sessionPages(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 25)...)
	e.take(25, in("c1", "s1"))
	ended := 0
	for {
		tasks := e.endSession("s2")
		if len(tasks) == 0 {
			break
		}
		if len(tasks) > 10 || ended > 25 {
			e.Fatalf("a page of %d tasks after %d", len(tasks), ended)
		}
		for _, task := range tasks {
			e.settle(replaced(task))
			ended++
		}
	}
	is(e, "ended", ended, 25)
}

func sessionSame(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne(in("c1", "s1"))
	is(e, "tasks", len(e.endSession("s1")), 0)
	e.advance(time.Second)
	is(e, "renewal", e.renew(grant).Lost, dispatch.LostNone)
}

// sessionAmongMany has more leases than one script may look at, most of them the
// new session's.
func sessionAmongMany(e *env) {
	const older, newer = 60, 640
	e.rule("*", delayed(0, 1000))
	g := source("a")
	e.create(g, numbered(g, queue, older+newer)...)
	e.takeMany(older, in("c1", "s1"))
	e.takeMany(newer, in("c1", "s2"))
	ended := 0
	for {
		tasks := e.endSession("s2")
		if len(tasks) == 0 {
			break
		}
		for _, task := range tasks {
			e.settle(done(task))
			ended++
		}
		if ended > older {
			e.Fatalf("%d leases of the older session, it held %d", ended, older)
		}
	}
	is(e, "ended", ended, older)
	is(e, "leased", e.info(queue).Leased, newer)
}

func sessionNewUntilDone(e *env) {
	e.open()
	g := source("a")
	home := e.queueIn(e.shard("c1"))
	e.create(g, item(g, home, "k"))
	e.poll("c1", "s1", "t1", "1")
	want := e.want(1, in("c1", "s1"))
	reply, err := e.Store.Claim(e.ctx, e.shard("c1"), pool, e.held.version, []dispatch.Want{want}, nil)
	e.ok("claim", err)
	is(e, "second", e.poll("c1", "s2", "t2", "2").NewSession, true)
	end := func() []*dispatch.Task {
		tasks, err := e.Store.EndSession(e.ctx, e.shard("c1"), "c1", "s2", 10)
		e.ok("end session", err)
		return tasks
	}
	is(e, "held", len(end()), 1)
	is(e, "still new", e.poll("c1", "s2", "t3", "3").NewSession, true)
	e.settle(done(&reply.Grants[0][0].Task))
	is(e, "held then", len(end()), 0)
	is(e, "new no more", e.poll("c1", "s2", "t4", "4").NewSession, false)
}

// sessionAtHome claims between the first sign of a new session and the end of the
// older one's leases: a dispatcher that has not heard of the new one claims for the
// older without asking.
func sessionAtHome(e *env) {
	e.open()
	g := source("a")
	shard := e.shard("c1")
	e.create(g, numbered(g, e.queueIn(shard), 8)...)
	claim := func(session, token string) (int, bool) {
		want := e.want(1, in("c1", session), by(token, "call"))
		reply, err := e.Store.Claim(e.ctx, shard, pool, e.held.version, []dispatch.Want{want}, nil)
		e.ok("claim", err)
		return len(reply.Grants[0]), reply.Used[0]
	}
	older := "s1"
	e.poll("c1", older, "t", "1")
	for i, begin := range []func(session string){
		func(session string) { e.poll("c1", session, "u", "2") },
		func(session string) {
			_, err := e.Store.Beat(e.ctx, dispatch.CollectorInfo{ID: "c1", Session: session})
			e.ok("beat", err)
		},
	} {
		token := fmt.Sprint("token", i)
		n, used := claim(older, token)
		is(e, "grants before", n, 1)
		is(e, "used before", used, true)
		n, _ = claim(older, token)
		is(e, "grants of the repeated token before", n, 1)

		newer := fmt.Sprint("newer", i)
		begin(newer)
		n, used = claim(older, token)
		is(e, "grants of the repeated token", n, 0)
		is(e, "used by the repeated token", used, false)
		n, _ = claim(older, token+" more")
		is(e, "grants of another token", n, 0)
		n, _ = claim(newer, token+" newer")
		is(e, "grants of the new session", n, 1)
		older = newer
	}
}

// sessionLate ends the sessions before one that has been replaced by then, as a
// dispatcher does that tries again what failed: in the collector's home shard, and in
// one that knows of no session but those that it was told to keep.
func sessionLate(e *env) {
	e.open()
	g := source("a")
	for i, session := range []string{"s1", "s2", "s3"} {
		e.poll("c1", session, fmt.Sprint("t", i), fmt.Sprint(i))
	}
	for n := range min(e.Store.Shards(), 2) {
		shard := (e.shard("c1") + n) % e.Store.Shards()
		e.create(g, numbered(g, e.queueIn(shard), 3)...)
		end := func(keep string) []*dispatch.Task {
			tasks, err := e.Store.EndSession(e.ctx, shard, "c1", keep, 10)
			e.ok("end session", err)
			return tasks
		}
		claim := func(token string) int {
			want := e.want(1, in("c1", "s3"), by(fmt.Sprint(token, shard), "call"))
			reply, err := e.Store.Claim(e.ctx, shard, pool, e.held.version, []dispatch.Want{want}, nil)
			e.ok("claim", err)
			return len(reply.Grants[0])
		}
		end("s3")
		is(e, "grants of the current session", claim("a"), 1)
		is(e, "tasks ended late for the second session", len(end("s2")), 0)
		is(e, "grants of the current session then", claim("b"), 1)
	}
	is(e, "third session", e.poll("c1", "s3", "t9", "9"), dispatch.PollState{})
}
