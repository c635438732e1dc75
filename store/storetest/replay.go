package storetest

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func replayCases() []testCase {
	return []testCase{
		{"SameToken_SameTasks_T1", replaySame},
		{"SameToken_AfterSomeSettled", replaySettled},
		{"SameToken_OtherCollector_IsItsOwn", replayOther},
		{"SameToken_GrantsNothingNew_P7", replayNothingNew},
		{"BeginPoll_FindsTheGrant_T6", replayPoll},
		{"Memory_TenMinutesAfterTheLastLease", replayMemory},
		{"Memory_OfARenewedGrant", replayRenewed},
		{"Memory_WhileSomeIsHeld", replayHeld},
		{"Memory_WhileNothingSweeps", replayUnswept},
		{"Memory_OverAStepBack_P7", replayClockBack},
		{"GiveBack_AsIfNeverGranted_T2", giveBack},
		{"GiveBack_RestoresTheDelay_T2", giveBackDelay},
		{"GiveBack_KeepsALaterDelay", giveBackLater},
		{"GiveBack_AnotherCallAnswered_DoesNothing", giveBackAnswered},
		{"GiveBack_OfARepetition_TakesNothing_P7", giveBackRepeated},
		{"GiveBack_OfEachCall_GivesBack", giveBackByAll},
		{"GiveBack_AfterTooManyCalls_DoesNothing_P10", giveBackMany},
		{"GiveBack_OnlyWhatIsHeld", giveBackHeld},
		{"GiveBack_OfACanceled_EndsCanceled", giveBackCanceled},
		{"GiveBack_OfADeletedSources_EndsCanceled", giveBackDeleted},
	}
}

// by makes a want one of the given client token and call.
func by(clientToken, call string) func(*dispatch.Want) {
	return func(w *dispatch.Want) { w.ClientToken, w.Call = clientToken, call }
}

func replaySame(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 5)...)
	first := e.take(2, by("t", "1"))
	e.advance(10 * time.Second)
	reply := e.claim(e.want(2, by("t", "2")))
	is(e, "used", reply.Used[0], true)
	second := reply.Grants[0]
	is(e, "tasks", keys(second), keys(first))
	for i := range second {
		is(e, "token", second[i].Token, first[i].Token)
		is(e, "attempt", second[i].Task.Counters.Attempt, 1)
		is(e, "remaining", second[i].Remaining, dispatch.DefaultLeaseDuration-10*time.Second)
	}
	is(e, "leased", e.info(queue).Leased, 2)
}

func replaySettled(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 3)...)
	first := e.take(2, by("t", "1"))
	e.settle(done(&first[0].Task))
	reply := e.claim(e.want(2, by("t", "2")))
	is(e, "still held", keys(reply.Grants[0]), keys(first[1:]))
	e.settle(done(&first[1].Task))
	reply = e.claim(e.want(2, by("t", "3")))
	is(e, "still held", len(reply.Grants[0]), 0)
	is(e, "used", reply.Used[0], true)
}

func replayOther(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 2)...)
	first := e.takeOne(by("t", "1"))
	second := e.takeOne(by("t", "2"), func(w *dispatch.Want) { w.Collector = "c2" })
	if first.Task.ID == second.Task.ID {
		e.Fatal("another collector's token answered the first one's grant")
	}
}

func replayNothingNew(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 5)...)
	e.take(1, by("t", "1"))
	reply := e.claim(e.want(4, by("t", "2")), e.want(1))
	is(e, "grants of the replay", len(reply.Grants[0]), 1)
	is(e, "grants of the other want", len(reply.Grants[1]), 1)
	is(e, "leased", e.info(queue).Leased, 2)
}

func (e *env) poll(collector, session, token, call string) dispatch.PollState {
	e.Helper()
	state, err := e.Store.BeginPoll(e.ctx, dispatch.Poll{Collector: collector, Session: session, ClientToken: token, Call: call})
	e.ok("begin a poll", err)
	return state
}

func replayPoll(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 3)...)
	state := e.poll("c1", "s1", "t", "1")
	is(e, "first poll", state, dispatch.PollState{})
	grants := e.take(2, by("t", "1"))
	e.advance(time.Second)
	state = e.poll("c1", "s1", "t", "2")
	is(e, "used", state.Used, true)
	is(e, "replay", keys(state.Replay), keys(grants))
	is(e, "token", state.Replay[1].Token, grants[1].Token)
	is(e, "remaining", state.Replay[1].Remaining, dispatch.DefaultLeaseDuration-time.Second)
	is(e, "other token", e.poll("c1", "s1", "u", "3"), dispatch.PollState{})
	for _, grant := range grants {
		e.settle(done(&grant.Task))
	}
	state = e.poll("c1", "s1", "t", "4")
	is(e, "used when settled", state.Used, true)
	is(e, "replay when settled", len(state.Replay), 0)
}

// remembered checks until when a client token is remembered whose last lease has just
// ended: for ten minutes at least, and no longer than to the end of the next step.
func (e *env) remembered(token string) {
	e.Helper()
	ended := e.now()
	for _, at := range []time.Duration{time.Millisecond, dispatch.TokenMemory / 2, dispatch.TokenMemory} {
		e.Clock.Set(ended.Add(at))
		reply := e.claim(e.want(1, by(token, "later")))
		is(e, "used", reply.Used[0], true)
		is(e, "granted when used", len(reply.Grants[0]), 0)
		is(e, "used by poll", e.poll("c1", "s1", token, "later still").Used, true)
		is(e, "given back when used", e.giveBack(token, "later still"), 0)
	}
	e.Clock.Set(ended.Truncate(dispatch.TokenMemory).Add(2 * dispatch.TokenMemory))
	is(e, "used when forgotten", e.poll("c1", "s1", token, "at last").Used, false)
	is(e, "granted when forgotten", len(e.claim(e.want(1, by(token, "at last"))).Grants[0]), 1)
}

func replayMemory(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 10)...)
	for _, into := range []time.Duration{0, time.Minute, dispatch.TokenMemory - 2*time.Millisecond} {
		e.Clock.Set(e.now().Truncate(dispatch.TokenMemory).Add(dispatch.TokenMemory + into))
		e.settle(done(e.takeTask(by(into.String(), "1"))))
		e.remembered(into.String())
	}
}

// replayRenewed renews a lease for longer than an ended one is remembered: as long as it
// is held, the call is repeated with it.
func replayRenewed(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 2)...)
	grant := e.takeOne(by("t", "1"))
	for range 80 {
		e.advance(dispatch.DefaultLeaseDuration / 3)
		is(e, "lost", e.renew(grant).Lost, dispatch.LostNone)
	}
	is(e, "replayed", keys(e.claim(e.want(1, by("t", "2"))).Grants[0]), keys([]dispatch.Grant{grant}))
	is(e, "replayed by poll", len(e.poll("c1", "s1", "t", "3").Replay), 1)
	e.settle(done(&grant.Task))
	e.remembered("t")
}

// replayHeld ends one lease of a grant long before the other, which has no end of its own.
func replayHeld(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 4)...)
	grants := e.take(2, by("t", "1"))
	e.settle(done(&grants[0].Task))
	for range 5 {
		for range 20 {
			e.advance(dispatch.DefaultLeaseDuration / 2)
			is(e, "lost", e.renew(grants[1]).Lost, dispatch.LostNone)
		}
		is(e, "still held", keys(e.claim(e.want(2, by("t", "2"))).Grants[0]), keys(grants[1:]))
	}
}

// replayUnswept lets a lease run out while nobody sweeps: it is held until its end is
// applied, and its client token remembered from then on.
func replayUnswept(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 3)...)
	grant := e.takeOne(by("t", "1"))
	e.advance(3 * time.Hour)
	reply := e.claim(e.want(1, by("t", "2")))
	is(e, "still held", keys(reply.Grants[0]), keys([]dispatch.Grant{grant}))
	is(e, "remaining", reply.Grants[0][0].Remaining, time.Duration(0))
	tr := done(&grant.Task)
	tr.Result, tr.State, tr.Expired, tr.Delay = dispatch.ResultExpired, dispatch.StateScheduled, true, 0
	e.settle(tr)
	e.remembered("t")
}

// replayClockBack steps the clock back over the beginning of the step of time in which
// client tokens were used.
func replayClockBack(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 5)...)
	for _, back := range []time.Duration{2 * time.Second, dispatch.TokenMemory} {
		e.Clock.Set(e.now().Truncate(dispatch.TokenMemory).Add(3*dispatch.TokenMemory + time.Second))
		e.sweep(1)
		token := back.String()
		e.settle(done(e.takeTask(by(token, "1"))))
		e.advance(-back)
		e.sweep(1)
		reply := e.claim(e.want(1, by(token, "2")))
		is(e, "used", reply.Used[0], true)
		is(e, "granted when used", len(reply.Grants[0]), 0)
		is(e, "used by poll", e.poll("c1", "s1", token, "3").Used, true)
	}
}
