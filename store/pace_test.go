package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend/backendtest"
	"github.com/waggle-crawl/waggle/store/storetest"
)

// paced is a store with a queue of a long delay, and the store that is made of its backend.
type paced struct {
	*testing.T
	*store.Store
	clock *storetest.StillClock
	kept  *backendtest.Ledger
	gate  dispatch.SourceGate
}

const longDelay = time.Hour

func newPaced(t *testing.T) *paced {
	t.Helper()
	p := &paced{T: t, clock: storetest.NewStillClock(start), kept: new(backendtest.Ledger), gate: dispatch.SourceGate{
		UID: "u", ID: "s", Version: 1, Pool: "default", Priority: 5, Remember: time.Second,
	}}
	s, err := store.Open(t.Context(), store.Config{Now: p.clock.Now, Backend: p.kept.Backend()})
	if err != nil {
		t.Fatal(err)
	}
	p.Store = s
	settings := dispatch.DefaultQueueSettings()
	settings.MinDelay, settings.MaxInFlight = longDelay, 10
	if _, err := s.PutRule(t.Context(), "*", &dispatch.QueueRule{Pattern: "*", Settings: settings}, 0); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *paced) submit(key string) {
	p.Helper()
	id := dispatch.NewTaskID(dispatch.Identity{Scope: p.gate.UID, Queue: "q", Key: key})
	item := dispatch.Submission{ID: id, SourceUID: p.gate.UID, Queue: "q", Key: key, Priority: 5}
	if _, err := p.Submit(p.Context(), 1, []dispatch.SourceGate{p.gate}, []dispatch.Submission{item}); err != nil {
		p.Fatal(err)
	}
}

// claim is granted a task by a call of that name.
func (p *paced) claim(call string) dispatch.Grant {
	p.Helper()
	reply, err := p.Claim(p.Context(), 0, "default", 0, []dispatch.Want{{
		Poll: dispatch.Poll{Collector: "c", Session: "s", ClientToken: call, Call: call}, Max: 1,
	}}, nil)
	if err != nil || len(reply.Grants[0]) != 1 {
		p.Fatalf("a claim got %+v, %v", reply, err)
	}
	return reply.Grants[0][0]
}

// done reports a task, and that its host asks for a delay of its own.
func (p *paced) done(g dispatch.Grant, asked time.Duration) {
	p.Helper()
	_, err := p.Apply(p.Context(), []dispatch.Transition{{
		ID: g.Task.ID, Token: g.Token.Digest(), Revision: g.Task.Revision, Result: dispatch.ResultSucceeded, State: dispatch.StateDone,
		Settled: true, Remember: time.Second, Queue: dispatch.QueueEffect{Kind: dispatch.QueueSucceeded, QueueDelay: &asked},
	}})
	if err != nil {
		p.Fatal(err)
	}
}

// blocked reports that the host of a task blocks.
func (p *paced) blocked(g dispatch.Grant) {
	p.Helper()
	_, err := p.Apply(p.Context(), []dispatch.Transition{{
		ID: g.Task.ID, Token: g.Token.Digest(), Revision: g.Task.Revision, Result: dispatch.ResultFailed, State: dispatch.StateDead,
		Settled: true, Remember: time.Second, Queue: dispatch.QueueEffect{Kind: dispatch.QueueBlocked, RetryAfter: time.Second},
	}})
	if err != nil {
		p.Fatal(err)
	}
}

// check fails unless the queue can be granted at an instant, here and in the store that is made of the backend.
func (p *paced) check(when string, at time.Time) {
	p.Helper()
	fresh := p.made()
	var next [2]time.Time
	for i, s := range []*store.Store{p.Store, fresh} {
		queues, err := s.QueuesNamed(p.Context(), []string{"q"})
		if err != nil {
			p.Fatal(err)
		}
		if queues[0] != nil {
			next[i] = queues[0].NextGrant
		}
	}
	if !next[0].Equal(at) || !next[1].Equal(at) {
		p.Errorf("%s: it grants from %v on, and what is made of its backend from %v on; want %v", when, next[0], next[1], at)
	}
}

// made is the store that is made of the backend.
func (p *paced) made() *store.Store {
	p.Helper()
	loader := store.NewLoader(store.Config{Now: p.clock.Now})
	if err := loader.Begin(1); err != nil {
		p.Fatal(err)
	}
	for _, group := range p.kept.Groups() {
		if err := loader.Group(group); err != nil {
			p.Fatal(err)
		}
	}
	fresh, err := loader.Store()
	if err != nil {
		p.Fatal(err)
	}
	return fresh
}

// TestStore_Pace keeps the delay of a queue over a restart (P6): it is in the task that was granted last, and in the queue when that task
// is forgotten.
func TestStore_Pace(t *testing.T) {
	t.Parallel()
	p := newPaced(t)
	p.submit("1")
	g := p.claim("1")
	p.check("after a grant", start.Add(longDelay))
	p.clock.Advance(time.Minute)
	p.done(g, 0)
	reported := start.Add(time.Minute + longDelay)
	p.check("after a report", reported)
	p.clock.Advance(time.Minute)
	if _, err := p.Expired(t.Context(), 0, 10); err != nil {
		t.Fatal(err)
	}
	if records, _, _, err := p.Kept(); records != 0 || err != nil {
		t.Fatalf("%d tasks are left, %v", records, err)
	}
	p.check("when the task is forgotten", reported)
}

// TestStore_Pace_givenBack lets a grant be given back: the delay of before is back, also over a restart, and also if the queue is
// kept for the delay that its host asks for.
func TestStore_Pace_givenBack(t *testing.T) {
	t.Parallel()
	for _, asked := range []time.Duration{0, longDelay / 2} {
		p := newPaced(t)
		p.submit("1")
		p.submit("2")
		p.submit("3")
		p.done(p.claim("1"), asked)
		p.clock.Advance(longDelay)
		p.claim("2")
		p.check("after a second grant", p.clock.Now().Add(longDelay))
		if n, err := p.GiveBack(t.Context(), 0, "c", "2", "2"); n != 1 || err != nil {
			t.Fatalf("gave back %d, %v", n, err)
		}
		p.check("after a give-back", time.Time{})
		p.claim("3")
		p.check("after a third grant", p.clock.Now().Add(longDelay))
	}
}

// TestStore_Pace_givenBackKept lets a grant be given back whose delay the backend has in the item of the queue, too.
func TestStore_Pace_givenBackKept(t *testing.T) {
	t.Parallel()
	p := newPaced(t)
	p.submit("1")
	p.submit("2")
	p.blocked(p.claim("1"))
	p.clock.Advance(longDelay)
	p.claim("2")
	if blocked, err := p.Unblock(t.Context(), "q"); !blocked || err != nil {
		t.Fatalf("unblocked: %t, %v", blocked, err)
	}
	p.check("after a second grant", p.clock.Now().Add(longDelay))
	if n, err := p.GiveBack(t.Context(), 0, "c", "2", "2"); n != 1 || err != nil {
		t.Fatalf("gave back %d, %v", n, err)
	}
	p.check("after a give-back", time.Time{})
}

// TestStore_Pace_orphan lets the lock of an orphan end: a store that is made of the backend knows that it waits for nothing more.
func TestStore_Pace_orphan(t *testing.T) {
	t.Parallel()
	p := newPaced(t)
	p.submit("1")
	id := dispatch.NewTaskID(dispatch.Identity{Scope: "u", Queue: "q", Key: "1"})
	p.Inspect().SetLock(id, "other/token/1", time.Second)
	reply, err := p.Claim(t.Context(), 0, "default", 0, []dispatch.Want{{Poll: dispatch.Poll{Collector: "c", Session: "s", ClientToken: "1", Call: "1"}, Max: 1}}, nil)
	if err != nil || len(reply.Grants[0]) != 0 {
		t.Fatalf("an orphan was granted: %+v, %v", reply, err)
	}
	p.clock.Advance(2 * time.Second)
	if _, err := p.Expired(t.Context(), 0, 10); err != nil {
		t.Fatal(err)
	}
	fresh := p.made()
	want, err := p.Items()
	got, err2 := fresh.Items()
	if err != nil || err2 != nil || !slices.Equal(got, want) {
		t.Errorf("what is made of the backend is %q, %v, %v; want %q", got, err, err2, want)
	}
}

// TestStore_Pace_stepBack steps the clock back: what corrects the delay of a queue in one pool does so in all.
func TestStore_Pace_stepBack(t *testing.T) {
	t.Parallel()
	p := newPaced(t)
	p.submit("1")
	p.submit("2")
	p.gate.UID, p.gate.ID, p.gate.Pool = "v", "other", "other"
	p.submit("3")
	p.claim("1")
	p.clock.Advance(-time.Minute)
	_, err := p.Claim(t.Context(), 0, "default", 0, []dispatch.Want{{
		Poll: dispatch.Poll{Collector: "c", Session: "s", ClientToken: "2", Call: "2"}, Max: 1, Queues: []string{"q"},
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	at := p.clock.Now().Add(longDelay)
	reply, err := p.Claim(t.Context(), 0, "other", 0, nil, nil)
	if err != nil || !reply.Next.Equal(at) {
		t.Errorf("the other pool is to ask again at %v, %v; want %v", reply.Next, err, at)
	}
}
