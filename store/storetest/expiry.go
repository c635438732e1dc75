package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

func expiryCases() []testCase {
	return []testCase{
		{"Deadline_ExpiresThenNotBefore_P5", expiryDeadline},
		{"OldestFirst", expiryOrder},
		{"Requeued_IsFetchable_T20", expiryRequeue},
		{"Long_LeaseIsLeftAlone_T22", expiryLong},
		{"Outage_GivesGrace", expiryGrace},
		{"Outages_GiveAsMuchGraceAsTheLongest_P5", expiryOutages},
		{"Outage_WithoutLeases_GivesNone", expiryNoGrace},
		{"Outage_GraceEndsThoughTheClockSteppedBack_T59", expiryGraceClockBack},
		{"FirstSweep_IsNoOutage", expiryFirst},
		{"ClockBack_NoLeaseIsImmortal_T59", expiryClockBack},
		{"ClockForward_ExpiresOnce_T59", expiryClockForward},
		{"Holder_IsKnownAfterTheLockEnded", expiryHolder},
		{"Renewed_HasItsNewDeadline", expiryRenewed},
		{"ManyRenewed_AreBoundedPerSweep_P10", expiryManyRenewed},
		{"Renewals_CallForNoSweep", expiryCalm},
	}
}

// keepSwept advances the clock by d with a sweep at least every four seconds,
// so that no outage is seen, and changes nothing.
func (e *env) keepSwept(d time.Duration) {
	e.Helper()
	for d > 0 {
		e.sweep(1)
		step := min(d, 4*time.Second)
		e.advance(step)
		d -= step
	}
}

func expiryDeadline(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	s := e.sweep(10)
	is(e, "next without leases", s.Next, time.Time{})
	is(e, "now", s.Now, start)
	grant := e.takeOne()
	is(e, "next", e.sweep(10).Next, grant.Task.Lease.Deadline)
	e.keepSwept(dispatch.DefaultLeaseDuration - time.Millisecond)
	is(e, "expired before the deadline", len(e.sweep(10).Expired), 0)
	e.advance(time.Millisecond)
	s = e.sweep(10)
	is(e, "expired at the deadline", len(s.Expired), 1)
	is(e, "grace", s.Grace, false)
	task := s.Expired[0]
	is(e, "task", task.ID, grant.Task.ID)
	is(e, "state", task.State, dispatch.StateLeased)
	is(e, "lease", task.Lease.Digest, grant.Token.Digest())
	is(e, "revision", task.Revision, grant.Task.Revision)
	is(e, "expired again", len(e.sweep(10).Expired), 1)
	e.settle(expired(task))
	is(e, "expired when settled", len(e.sweep(10).Expired), 0)
}

func expiryOrder(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 3)...)
	e.sweep(1)
	var ids []dispatch.TaskID
	for _, c := range []struct{ lease, next time.Duration }{
		{30 * time.Second, 30 * time.Second}, {10 * time.Second, 10 * time.Second}, {20 * time.Second, 10 * time.Second},
	} {
		grant := e.takeOne(func(w *dispatch.Want) { w.Lease = c.lease })
		ids = append(ids, grant.Task.ID)
		is(e, fmt.Sprintf("next after a lease of %v", c.lease), e.sweep(1).Next, start.Add(c.next))
	}
	e.keepSwept(25 * time.Second)
	s := e.sweep(10)
	is(e, "expired", []dispatch.TaskID{s.Expired[0].ID, s.Expired[1].ID}, []dispatch.TaskID{ids[1], ids[2]})
	is(e, "next", s.Next, start.Add(30*time.Second))
}

func expiryRequeue(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.sweep(1)
	first := e.takeOne()
	e.keepSwept(dispatch.DefaultLeaseDuration)
	e.settle(expired(e.sweep(1).Expired[0]))
	task := e.task(first.Task.ID)
	is(e, "state", task.State, dispatch.StateReady)
	is(e, "expirations", task.Counters.Expirations, 1)
	is(e, "attempt", task.Counters.Attempt, 1)
	second := e.takeOne()
	is(e, "attempt", second.Task.Counters.Attempt, 2)
	if second.Token.Fence <= first.Token.Fence {
		e.Fatalf("fence %d after %d", second.Token.Fence, first.Token.Fence)
	}
}

func expiryLong(e *env) {
	g := source("a", func(g *dispatch.SourceGate) { g.MaxHold = 2 * time.Hour })
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne(func(w *dispatch.Want) { w.Lease = time.Hour })
	e.keepSwept(59 * time.Minute)
	is(e, "expired", len(e.sweep(10).Expired), 0)
	is(e, "report", e.apply(done(&grant.Task)).Code, dispatch.Applied)
}

func expiryGrace(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 2)...)
	e.sweep(1)
	grants := e.take(2)
	e.advance(40 * time.Second)
	s := e.sweep(10)
	is(e, "grace", s.Grace, true)
	is(e, "grace that is left", e.stats().Grace, dispatch.OutageGrace)
	is(e, "expired", len(s.Expired), 0)
	e.advance(4 * time.Second)
	is(e, "grace that is left then", e.stats().Grace, dispatch.OutageGrace-4*time.Second)
	is(e, "grace then", e.sweep(10).Grace, true)
	is(e, "renewal in the grace", e.renew(grants[0]).Lost, dispatch.LostNone)
	e.keepSwept(25 * time.Second)
	s = e.sweep(10)
	is(e, "grace near its end", s.Grace, true)
	is(e, "expired near its end", len(s.Expired), 0)
	e.advance(1001 * time.Millisecond)
	s = e.sweep(10)
	is(e, "grace at its end", s.Grace, false)
	is(e, "grace that is left at its end", e.stats().Grace, 0)
	is(e, "expired at its end", len(s.Expired), 1)
	is(e, "task", s.Expired[0].ID, grants[1].Task.ID)
}

// expiryOutages are two outages, the second in the grace after the first: what grace is left is not added to.
func expiryOutages(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.sweep(1)
	e.takeOne(func(w *dispatch.Want) { w.Lease = 2 * time.Second })
	e.advance(9 * time.Second)
	is(e, "grace", e.sweep(10).Grace, true)
	is(e, "grace that is left", e.stats().Grace, 9*time.Second)
	e.advance(6 * time.Second)
	e.sweep(10)
	is(e, "grace that is left after a shorter outage", e.stats().Grace, 6*time.Second)
	e.keepSwept(6*time.Second - time.Millisecond)
	is(e, "grace near its end", e.sweep(10).Grace, true)
	e.advance(time.Millisecond)
	is(e, "expired at its end", len(e.sweep(10).Expired), 1)
}

// expiryGraceClockBack is a machine that began with a clock that was ahead, and had it put
// right in the grace that followed.
func expiryGraceClockBack(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.sweep(1)
	grant := e.takeOne()
	e.advance(40 * time.Minute)
	is(e, "grace", e.sweep(10).Grace, true)
	e.advance(-40 * time.Minute)
	is(e, "grace after the step back", e.sweep(10).Grace, true)
	e.keepSwept(dispatch.OutageGrace - time.Millisecond)
	is(e, "grace near its end", e.sweep(10).Grace, true)
	e.advance(time.Millisecond)
	s := e.sweep(10)
	is(e, "grace at its end", s.Grace, false)
	is(e, "grace that is left at its end", e.stats().Grace, 0)
	is(e, "expired at its end", len(s.Expired), 1)
	is(e, "task", s.Expired[0].ID, grant.Task.ID)
}

func expiryNoGrace(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.sweep(1)
	e.advance(time.Minute)
	is(e, "grace without leases", e.sweep(10).Grace, false)
	e.takeOne()
	e.advance(dispatch.OutageAfter)
	is(e, "grace after a short break", e.sweep(10).Grace, false)
}

func expiryFirst(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.takeOne()
	e.advance(time.Minute)
	s := e.sweep(10)
	is(e, "grace", s.Grace, false)
	is(e, "expired", len(s.Expired), 1)
}

func expiryClockBack(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.sweep(1)
	grant := e.takeOne()
	e.advance(-24 * time.Hour)
	e.sweep(1)
	e.keepSwept(bounds.MaxLeaseDuration + time.Second)
	s := e.sweep(10)
	is(e, "expired an hour after a step back of a day", len(s.Expired), 1)
	is(e, "state", s.Expired[0].State, dispatch.StateLeased)
	e.settle(expired(s.Expired[0]))
	fresh := e.takeOne()
	if fresh.Token.Fence <= grant.Token.Fence {
		e.Fatalf("fence %d after %d", fresh.Token.Fence, grant.Token.Fence)
	}
}

func expiryClockForward(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.sweep(1)
	grant := e.takeOne()
	e.advance(10 * time.Minute)
	is(e, "grace", e.sweep(1).Grace, true)
	is(e, "renewal in the grace", e.renew(grant).Lost, dispatch.LostNone)
	e.advance(-10 * time.Minute)
	is(e, "report", e.apply(done(&grant.Task)).Code, dispatch.Applied)
	is(e, "expirations", e.task(grant.Task.ID).Counters.Expirations, 0)
}

func expiryHolder(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.sweep(1)
	grant := e.takeOne()
	e.keepSwept(dispatch.DefaultLeaseDuration + time.Second)
	is(e, "token", e.sweep(1).Expired[0].Lease.Token, grant.Token)
}

func expiryRenewed(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 2)...)
	e.sweep(10)
	grants := e.take(2, func(w *dispatch.Want) { w.Lease = 10 * time.Second })
	e.keepSwept(9 * time.Second)
	is(e, "renewal", e.renew(grants[0]).Lost, dispatch.LostNone)
	deadline := e.now().Add(10 * time.Second)
	e.advance(time.Second)
	s := e.sweep(10)
	is(e, "expired", len(s.Expired), 1)
	is(e, "task", s.Expired[0].ID, grants[1].Task.ID)
	is(e, "next", s.Next, deadline)
	is(e, "deadline of the record", e.task(grants[0].Task.ID).Lease.Deadline, deadline)
	leases, _, err := e.Store.ListLeases(e.ctx, "", 10)
	e.ok("list leases", err)
	is(e, "leases", len(leases), 2)
	is(e, "deadline in the list", leases[1].Lease.Deadline, deadline)
	is(e, "overdue", e.stats().OldestOverdue, 0)
	e.keepSwept(9 * time.Second)
	is(e, "overdue", e.stats().OldestOverdue, 9*time.Second)
	s = e.sweep(10)
	is(e, "expired at the new deadline", len(s.Expired), 2)
}

// However many leases were renewed, a sweep looks at a bounded number, and
// overlooks none that has run out.
func expiryManyRenewed(e *env) {
	e.open()
	g := source("a")
	const n = 2*bounds.MaxSweepLooks + 100
	e.create(g, numbered(g, queue, n)...)
	e.sweep(1)
	var grants []dispatch.Grant
	for len(grants) < n {
		grants = append(grants, e.take(100, func(w *dispatch.Want) { w.Lease = 4 * time.Second })...)
	}
	e.advance(3 * time.Second)
	e.sweep(1)
	renewals := make([]dispatch.Renewal, 0, n)
	for i := range grants {
		if i != n/2 {
			renewals = append(renewals, dispatch.Renewal{ID: grants[i].Task.ID, Token: grants[i].Token})
		}
	}
	results, err := e.Store.Renew(e.ctx, renewals)
	e.ok("renew", err)
	for _, r := range results {
		is(e, "lost", r.Lost, dispatch.LostNone)
	}
	e.advance(time.Second)
	var expired []dispatch.TaskID
	for looks := 1; ; looks++ {
		s := e.sweep(100)
		for _, t := range s.Expired {
			expired = append(expired, t.ID)
		}
		if !s.Next.Equal(s.Now) {
			is(e, "sweeps", looks, 3)
			is(e, "next", s.Next, e.now().Add(3*time.Second))
			break
		}
		if looks == 10 {
			e.Fatalf("the sweep of %d leases does not end", n)
		}
	}
	is(e, "expired", expired[0], grants[n/2].Task.ID)
}

// Renewals have nobody sweep at each of the old deadlines.
func expiryCalm(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 200)...)
	e.sweep(1)
	var grants []dispatch.Grant
	for range 200 { // their deadlines are spread over two seconds
		grants = append(grants, e.takeOne(func(w *dispatch.Want) { w.Lease = 6 * time.Second }))
		e.advance(10 * time.Millisecond)
	}
	sweeps, next := 0, e.sweep(1).Next
	for i := range 1200 { // each is renewed each two seconds, for twelve
		is(e, "lost", e.renew(grants[i%200]).Lost, dispatch.LostNone)
		e.advance(10 * time.Millisecond)
		if !next.After(e.now()) || i%90 == 0 { // a sweep comes each 900 ms at least
			s := e.sweep(100)
			is(e, "expired", len(s.Expired), 0)
			sweeps, next = sweeps+1, s.Next
		}
	}
	if most := 12*2 + 1200/90 + 1; sweeps > most {
		e.Fatalf("renewals called for %d sweeps in 12 seconds, want at most %d", sweeps, most)
	}
}
