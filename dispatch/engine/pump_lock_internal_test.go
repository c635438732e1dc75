package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
)

// moodyStore answers claims with whatever comes to its mind, after a while.
type moodyStore struct {
	dispatch.Store
	mu sync.Mutex // guards r
	r  *rand.Rand
}

func (*moodyStore) Shards() int { return 3 }

func (s *moodyStore) Claim(_ context.Context, _ int, _ string, wants []dispatch.Want) (dispatch.ClaimReply, error) {
	reply, takes, err := s.think(wants)
	time.Sleep(takes)
	reply.Now = time.Now()
	if !reply.Next.IsZero() {
		reply.Next = reply.Now.Add(takes)
	}
	if !reply.Again.IsZero() {
		reply.Again = reply.Now.Add(2 * takes)
	}
	return reply, err
}

func (s *moodyStore) think(wants []dispatch.Want) (reply dispatch.ClaimReply, takes time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	takes = time.Duration(s.r.IntN(30)) * time.Millisecond
	if s.r.IntN(15) == 0 {
		return reply, takes, dispatch.ErrStoreUnavailable
	}
	reply = dispatch.ClaimReply{Grants: make([][]dispatch.Grant, len(wants)), Used: make([]bool, len(wants)), More: s.r.IntN(6) == 0}
	generous := s.r.IntN(3) == 0
	for i := range wants {
		if reply.Used[i] = s.r.IntN(20) == 0; generous && s.r.IntN(8) > 0 {
			reply.Grants[i] = make([]dispatch.Grant, 1)
		}
	}
	now := time.Now()
	if s.r.IntN(2) == 0 {
		reply.Next = now
	}
	if s.r.IntN(3) == 0 {
		reply.Again = now
	}
	return reply, takes, nil
}

func (s *moodyStore) GiveBack(context.Context, int, string, string, string) (int, error) {
	return 1, nil
}

// TestPump_lock holds what the comment at pump says that holds whenever its lock is free.
func TestPump_lock(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { pumpAtRandom(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func pumpAtRandom(t *testing.T, r *rand.Rand) {
	t.Helper()
	store := &moodyStore{r: rand.New(rand.NewPCG(r.Uint64(), 2))}
	p := newPump(Config{Store: store, Logger: zap.NewNop(), Observer: noObserver{}, Rand: func() float64 { return 0.5 }, Fallback: time.Second, MaxWaiters: 100})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = p.run(ctx) }) // it has no other end than that of ctx
	for step := range 600 {
		switch n := r.IntN(20); {
		case n < 12:
			w, limit, patience := randomWaiter(r, step), time.Duration(r.IntN(3000))*time.Millisecond, time.Duration(r.IntN(6000))*time.Millisecond
			running.Go(func() {
				caller, gone := context.WithTimeout(t.Context(), patience)
				defer gone()
				var out outcome
				p.wait(caller, w, limit, shortestLanding, &out)
			})
		case n < 17:
			p.hint(fmt.Sprintf("p%d", r.IntN(3)), r.IntN(3), time.Duration(r.IntN(3)*r.IntN(500))*time.Millisecond)
		case n < 18:
			p.endSessions(fmt.Sprintf("c%d", r.IntN(10)), "s0")
		case n < 19:
			p.hintAll()
		default:
			p.obey(NewDrainBook([]dispatch.Hold{{
				Target: dispatch.HoldTarget{Collector: fmt.Sprintf("c%d", r.IntN(40))}, Gate: dispatch.Gate{Kind: dispatch.GateDrained},
			}}))
		}
		time.Sleep(time.Duration(r.IntN(40)*r.IntN(3)) * time.Millisecond)
		synctest.Wait()
		p.mustHold(t)
		if t.Failed() {
			t.Fatalf("after step %d", step)
		}
	}
	stop()
	running.Wait()
	p.mustHold(t)
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.tokens) + len(p.sessions) + len(p.untold); n != 0 {
		t.Errorf("%d notes of waiters are left once all are answered", n)
	}
}

// randomWaiter is a fetch of one of few collectors, by one of few client tokens.
func randomWaiter(r *rand.Rand, call int) *waiter {
	w := &waiter{once: r.IntN(4) == 0, want: dispatch.Want{Max: 1 + r.IntN(3)}}
	w.want.Poll = dispatch.Poll{
		Collector: fmt.Sprintf("c%d", r.IntN(10)), Session: fmt.Sprintf("s%d", r.IntN(2)),
		ClientToken: fmt.Sprintf("t%d", r.IntN(20)), Call: fmt.Sprint(call),
	}
	for i := range 3 {
		if r.IntN(2) == 0 || i == 2 && w.pools == nil {
			w.pools = append(w.pools, fmt.Sprintf("p%d", i))
		}
	}
	if r.IntN(3) == 0 {
		w.want.Queues = []string{"q"}
	}
	if r.IntN(10) == 0 {
		w.hold = time.Duration(r.IntN(500)) * time.Millisecond
	}
	return w
}

func (p *pump) mustHold(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	listed := 0
	for _, of := range p.sessions {
		listed += len(of)
	}
	if listed != len(p.tokens) {
		t.Errorf("%d waiters by session, and %d by token", listed, len(p.tokens))
	}
	for token, w := range p.tokens {
		if w.finished || w.key() != token {
			t.Errorf("under %v stands the waiter of %v, finished %v", token, w.key(), w.finished)
		}
		if stands := len(w.places) == len(w.pools); stands != w.held.IsZero() {
			t.Errorf("a waiter of %d pools, held %v, stands in %d lines", len(w.pools), !w.held.IsZero(), len(w.places))
		}
		for _, o := range w.awaits {
			if _, ok := o.awaiting[w]; !ok {
				t.Error("a waiter awaits an outlet that does not know")
			}
		}
	}
	for name, ps := range p.pools {
		p.poolMustHold(t, name, ps)
	}
}

func (p *pump) poolMustHold(t *testing.T, name string, ps *pool) {
	t.Helper()
	busy, flights, now := 0, 0, time.Now()
	for e := ps.plain.Front(); e != nil; e = e.Next() {
		w := e.Value.(*waiter)
		if w.finished || w.narrow() {
			t.Errorf("in the plain line of %s is a waiter that is finished, %v, or narrow, %v", name, w.finished, w.narrow())
		}
		if w.busy {
			busy++
		}
	}
	if busy != ps.busy {
		t.Errorf("%d waiters of %s are counted as busy, and %d are", ps.busy, name, busy)
	}
	for _, o := range ps.outlets {
		flights += o.flights
		for w := range o.awaiting {
			if w.finished || !slices.Contains(w.awaits, o) {
				t.Errorf("an outlet of %s knows a waiter that does not await it", name)
			}
		}
		if p.spawn == nil || p.drained || o.flights > 0 || now.Before(o.retryAt) || o.crowd.gathers(ps.plain.Len()-ps.busy).After(now) {
			continue
		}
		if picked := o.pick(now, 1); len(picked) > 0 {
			t.Errorf("an outlet of %s could be asked for %d waiters, and nobody does", name, len(picked))
		}
	}
	if flights != ps.flights {
		t.Errorf("%d claims of %s are counted, and %d are under way", ps.flights, name, flights)
	}
}
