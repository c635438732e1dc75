package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

func renewCases() []testCase {
	return []testCase{
		{"Extends_RecordAndLock", renewExtends},
		{"NeverShortens_T15_T59", renewNeverShortens},
		{"AfterTheLockRanOut_T14", renewAfterEnd},
		{"AfterARegrant_IsLost_T10_P3", renewTaken},
		{"AfterTheEnd_SaysHow", renewEnded},
		{"UnknownAndWaiting", renewUnknown},
		{"MaxHold_CutsThenEnds", renewMaxHold},
		{"HoursByHeartbeats_T23", renewHours},
		{"LockDeletedByHand_EndsTheLease", renewLockDeleted},
		{"Cursor_GoesToTheNextAttempt", renewCursor},
		{"SubSecond_T60", renewSubSecond},
		{"DoesNotRaiseRevision", renewRevision},
		{"ManyOfSeveralHolders_AreAnsweredInOrder", renewMany},
	}
}

func renewExtends(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	e.advance(20 * time.Second)
	is(e, "renewal", e.renew(grant), dispatch.RenewResult{
		Remaining: dispatch.DefaultLeaseDuration, Duration: dispatch.DefaultLeaseDuration,
	})
	is(e, "deadline", e.task(grant.Task.ID).Lease.Deadline, e.now().Add(dispatch.DefaultLeaseDuration))
	value, ttl := e.LockValue(grant.Task.ID)
	is(e, "lock", value, grant.Token.String())
	is(e, "time left of the lock", ttl, dispatch.DefaultLeaseDuration)
	e.advance(dispatch.DefaultLeaseDuration - time.Millisecond)
	is(e, "expired", len(e.sweep(10).Expired), 0)
}

func renewNeverShortens(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	e.advance(-5 * time.Second)
	is(e, "remaining", e.renew(grant).Remaining, dispatch.DefaultLeaseDuration+5*time.Second)
	is(e, "deadline", e.task(grant.Task.ID).Lease.Deadline, grant.Task.Lease.Deadline)
}

func renewAfterEnd(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.sweep(10)
	grant := e.takeOne()
	e.keepSwept(dispatch.DefaultLeaseDuration + time.Second)
	task := e.sweep(10).Expired[0]
	value, _ := e.LockValue(grant.Task.ID)
	is(e, "lock", value, "")
	is(e, "lost", e.renew(grant).Lost, dispatch.LostNone)
	value, ttl := e.LockValue(grant.Task.ID)
	is(e, "lock", value, grant.Token.String())
	is(e, "time left of the lock", ttl, dispatch.DefaultLeaseDuration)
	// The sweep that saw it expired comes too late (T11).
	is(e, "expiry", e.apply(expired(task)).Code, dispatch.ApplyLost)
	is(e, "state", e.task(grant.Task.ID).State, dispatch.StateLeased)
}

func renewTaken(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.sweep(10)
	old := e.takeOne()
	e.keepSwept(dispatch.DefaultLeaseDuration + time.Second)
	e.settle(expired(e.sweep(10).Expired[0]))
	is(e, "renewal before the next grant", e.renew(old).Lost, dispatch.LostExpired)
	fresh := e.takeOne()
	is(e, "renewal by the old holder", e.renew(old).Lost, dispatch.LostExpired)
	r := e.apply(done(&old.Task))
	is(e, "report by the old holder", r.Code, dispatch.ApplyAlready)
	is(e, "what became of its lease", r.Prior, dispatch.ResultExpired)
	is(e, "task", *e.task(fresh.Task.ID), fresh.Task)
	is(e, "renewal by the new holder", e.renew(fresh).Lost, dispatch.LostNone)
	is(e, "report by the new holder", e.apply(done(&fresh.Task)).Code, dispatch.Applied)
}

func renewEnded(e *env) {
	e.open()
	g := source("a")
	results := []dispatch.Result{
		dispatch.ResultSucceeded, dispatch.ResultFailed, dispatch.ResultReleased, dispatch.ResultExpired,
		dispatch.ResultRevoked, dispatch.ResultMaxHold, dispatch.ResultReplaced,
	}
	e.create(g, numbered(g, queue, len(results))...)
	for _, result := range results {
		grant := e.takeOne()
		e.settle(ending(&grant.Task, result, dispatch.StateDead))
		is(e, "renewal of one that "+result.String(), e.renew(grant).Lost, dispatch.LostBy(result))
	}
}

func renewUnknown(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	token := dispatch.LeaseToken{Collector: "c1", ClientToken: "t", Fence: 1}
	lost := func(key string) dispatch.LostReason {
		return e.renewWith(dispatch.Renewal{ID: item(g, queue, key).ID, Token: token}).Lost
	}
	is(e, "unknown", lost("unknown"), dispatch.LostUnknownTask)
	is(e, "waiting", lost("k"), dispatch.LostNotLeased)
	grant := e.takeOne()
	is(e, "another token", lost("k"), dispatch.LostTaken)
	// The right fence in wrong hands is as good as none.
	stolen := grant
	stolen.Token.Collector = "c2"
	is(e, "another collector", e.renew(stolen).Lost, dispatch.LostTaken)
}

func renewMaxHold(e *env) {
	g := source("a", func(g *dispatch.SourceGate) { g.MaxHold = 50 * time.Second })
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	e.advance(25 * time.Second)
	r := e.renew(grant)
	is(e, "remaining", r.Remaining, 25*time.Second)
	is(e, "duration", r.Duration, dispatch.DefaultLeaseDuration)
	e.advance(24 * time.Second)
	is(e, "remaining", e.renew(grant).Remaining, time.Second)
	e.advance(time.Second)
	is(e, "lost", e.renew(grant).Lost, dispatch.LostMaxHold)
}

func renewHours(e *env) {
	g := source("a", func(g *dispatch.SourceGate) { g.MaxHold = bounds.MaxHold })
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	for range 600 {
		e.advance(25 * time.Second)
		if lost := e.renew(grant).Lost; lost != dispatch.LostNone {
			e.Fatalf("lost for %d after %v", lost, e.now().Sub(start))
		}
	}
	is(e, "report", e.apply(done(&grant.Task)).Code, dispatch.Applied)
}

func renewLockDeleted(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.sweep(10)
	grant := e.takeOne()
	e.advance(2 * time.Second)
	e.DeleteLock(grant.Task.ID)
	is(e, "lost", e.renew(grant).Lost, dispatch.LostLockDeleted)
	s := e.sweep(10)
	is(e, "expired", len(s.Expired), 1)
	e.settle(expired(s.Expired[0]))
	is(e, "granted again", e.takeOne().Task.ID, grant.Task.ID)
}

func renewCursor(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	beat := func(cursor []byte) string {
		is(e, "lost", e.renewWith(dispatch.Renewal{ID: grant.Task.ID, Token: grant.Token, Cursor: cursor}).Lost, dispatch.LostNone)
		return string(e.task(grant.Task.ID).Cursor)
	}
	is(e, "cursor", beat([]byte("page 2")), "page 2")
	is(e, "cursor after none", beat(nil), "page 2")
	is(e, "cursor after another", beat([]byte("page 3")), "page 3")
	e.settle(retry(&grant.Task, 0))
	grant = e.takeOne()
	is(e, "cursor of the next attempt", string(grant.Task.Cursor), "page 3")
	is(e, "cursor cleared", beat([]byte{}), "")
}

func renewSubSecond(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne(func(w *dispatch.Want) { w.Lease = 1001 * time.Millisecond })
	e.Clock.Advance(999_900 * time.Microsecond)
	is(e, "remaining", e.renew(grant).Remaining, 1001*time.Millisecond)
	is(e, "deadline", e.task(grant.Task.ID).Lease.Deadline, e.now().Add(1001*time.Millisecond))
}

func renewRevision(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	e.advance(time.Second)
	e.renew(grant)
	is(e, "revision", e.task(grant.Task.ID).Revision, grant.Task.Revision)
	is(e, "apply", e.apply(done(&grant.Task)).Code, dispatch.Applied)
}

// renewMany renews leases of several holders in one call, among them some that are
// lost, go on for less, or come with a cursor: each is answered at its place.
func renewMany(e *env) {
	e.open()
	long := source("a")
	short := source("b", func(g *dispatch.SourceGate) { g.MaxHold = 40 * time.Second })
	e.create(long, numbered(long, queue, 6)...)
	e.create(short, numbered(short, queue, 2)...)
	of := func(s dispatch.SourceGate, n int, collector, token string) []dispatch.Grant {
		return e.take(n, by(token, "1"), func(w *dispatch.Want) { w.Collector, w.SourceUIDs = collector, []string{s.UID} })
	}
	one, two, cut := of(long, 4, "c1", "t1"), of(long, 2, "c2", "t2"), of(short, 2, "c1", "t3")
	e.settle(done(&one[3].Task))
	e.advance(20 * time.Second)
	stolen := two[1].Token
	stolen.Fence = one[1].Token.Fence
	renewals := []dispatch.Renewal{
		{ID: two[0].Task.ID, Token: two[0].Token, Cursor: []byte("second")},
		{ID: one[0].Task.ID, Token: one[0].Token},
		{ID: cut[0].Task.ID, Token: cut[0].Token},
		{ID: one[1].Task.ID, Token: stolen},
		{ID: one[3].Task.ID, Token: one[3].Token},
		{ID: one[1].Task.ID, Token: one[1].Token, Cursor: []byte("first")},
		{ID: cut[1].Task.ID, Token: cut[1].Token},
		{ID: item(long, queue, "unknown").ID, Token: two[1].Token},
		{ID: two[1].Task.ID, Token: two[1].Token},
		{ID: one[0].Task.ID, Token: one[0].Token},
	}
	results, err := e.Store.Renew(e.ctx, renewals)
	e.ok("renew", err)
	goesOn := dispatch.RenewResult{Remaining: dispatch.DefaultLeaseDuration, Duration: dispatch.DefaultLeaseDuration}
	limited := dispatch.RenewResult{Remaining: 20 * time.Second, Duration: dispatch.DefaultLeaseDuration}
	for i, want := range []dispatch.RenewResult{
		goesOn, goesOn, limited,
		{Lost: dispatch.LostTaken},
		{Lost: dispatch.LostBy(dispatch.ResultSucceeded)},
		goesOn, limited,
		{Lost: dispatch.LostUnknownTask},
		goesOn, goesOn,
	} {
		is(e, fmt.Sprintf("renewal %d", i), results[i], want)
	}
	is(e, "cursor", string(e.task(two[0].Task.ID).Cursor), "second")
	is(e, "cursor", string(e.task(one[1].Task.ID).Cursor), "first")
	for _, g := range []dispatch.Grant{one[0], one[1], two[0], two[1], cut[0], cut[1]} {
		_, ttl := e.LockValue(g.Task.ID)
		is(e, "time left of the lock", ttl, e.task(g.Task.ID).Lease.Deadline.Sub(e.now()))
	}
}
