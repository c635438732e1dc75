package pump

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/holdbook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type quiet struct{}

func (quiet) Claimed(int, int, time.Duration, error)        {}
func (quiet) GaveBack(int)                                  {}
func (quiet) Granted(string, time.Time, [][]dispatch.Grant) {}

// moved counts the calls of fetches that were moved.
var moved atomic.Int64

func newPump(store Store, holds func() *holdbook.Book) *Pump {
	return New(Config{
		Store: store, Log: zap.NewNop(), Observer: quiet{}, Rand: func() float64 { return 0.5 }, Fallback: time.Second,
		Timeout: 5 * time.Second, MaxWaiters: 100, Holds: holds,
		CatchUp: func(context.Context) error { return nil }, NextCall: func() string { return fmt.Sprint("moved ", moved.Add(1)) },
	})
}

func nothingHeld() *holdbook.Book { return holdbook.New(nil, 0, time.Time{}) }

// inShard is a call in a shard.
type inShard struct {
	shard int
	call  string
}

// moodyStore answers claims with whatever comes to its mind, after a while. It notes what it
// granted, and what was given back of that.
type moodyStore struct {
	mu      sync.Mutex // guards what follows
	r       *rand.Rand
	granted map[inShard]int // grants, by call
	tried   map[string]bool

	holds atomic.Pointer[holdbook.Book]
}

func (*moodyStore) Shards() int { return 3 }

func (s *moodyStore) Claim(
	_ context.Context, shard int, pool string, version int64, wants []dispatch.Want, _ func(*dispatch.ClaimReply),
) (dispatch.ClaimReply, error) {
	return s.claim(shard, pool, version, wants, nil)
}

// claim calls decided, if it is given, before the time that the claim takes. After that it may fail.
func (s *moodyStore) claim(
	shard int, pool string, version int64, wants []dispatch.Want, decided func(*dispatch.ClaimReply),
) (dispatch.ClaimReply, error) {
	holds := s.holds.Load()
	if holds.Version > version {
		return dispatch.ClaimReply{}, dispatch.ErrStaleHolds
	}
	for _, w := range wants {
		if holds.StopsPool(pool) || holds.StopsCollector(w.Collector, nil) {
			panic(fmt.Sprintf("a claim of pool %s for collector %s by holds of version %d, which stop it", pool, w.Collector, version))
		}
	}
	reply, takes, err := s.think(shard, wants)
	if decided == nil || err != nil {
		time.Sleep(takes)
	}
	reply.Now = time.Now()
	if !reply.Next.IsZero() {
		reply.Next = reply.Now.Add(takes)
	}
	if !reply.Again.IsZero() {
		reply.Again = reply.Now.Add(2 * takes)
	}
	if decided == nil || err != nil {
		return reply, err
	}
	decided(&reply)
	time.Sleep(takes)
	return s.keep(shard, wants, reply)
}

// keep keeps what was decided, or fails.
func (s *moodyStore) keep(shard int, wants []dispatch.Want, reply dispatch.ClaimReply) (dispatch.ClaimReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.r.IntN(15) > 0 {
		return reply, nil
	}
	for i := range wants {
		s.granted[inShard{shard, wants[i].Call}] -= len(reply.Grants[i])
	}
	return dispatch.ClaimReply{}, dispatch.ErrStoreUnavailable
}

// earlyStore is a moodyStore that decides claims before it keeps them, several at a time.
type earlyStore struct{ *moodyStore }

func (s earlyStore) Claim(
	_ context.Context, shard int, pool string, version int64, wants []dispatch.Want, decided func(*dispatch.ClaimReply),
) (dispatch.ClaimReply, error) {
	return s.claim(shard, pool, version, wants, decided)
}

func (s *moodyStore) think(shard int, wants []dispatch.Want) (reply dispatch.ClaimReply, takes time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	takes = time.Duration(s.r.IntN(30)) * time.Millisecond
	if s.r.IntN(20) == 0 {
		takes += keptWithin
	}
	if s.r.IntN(15) == 0 {
		return reply, takes, dispatch.ErrStoreUnavailable
	}
	reply = dispatch.ClaimReply{Grants: make([][]dispatch.Grant, len(wants)), Used: make([]bool, len(wants)), More: s.r.IntN(6) == 0}
	generous := s.r.IntN(3) == 0
	for i := range wants {
		if reply.Used[i] = s.r.IntN(20) == 0; generous && s.r.IntN(8) > 0 {
			reply.Grants[i] = []dispatch.Grant{{Token: dispatch.LeaseToken{Fence: uint64(shard)}}}
			s.granted[inShard{shard, wants[i].Call}]++
		}
	}
	if s.r.IntN(2) == 0 {
		reply.Next = time.Now()
	}
	if s.r.IntN(3) == 0 {
		reply.Again = time.Now()
	}
	return reply, takes, nil
}

func (s *moodyStore) GiveBack(_ context.Context, shard int, _, _, call string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.tried[call] && s.r.IntN(5) == 0 {
		s.tried[call] = true
		return 0, dispatch.ErrStoreUnavailable // the next try comes through
	}
	s.granted[inShard{shard, call}] = 0
	return 1, nil
}

// TestPump_random does whatever can be done with a pump, in a random order. After each step no
// outlet that could be asked is left alone, and in the end whatever was granted was either
// handed to a caller or given back.
func TestPump_random(t *testing.T) {
	t.Parallel()
	for seed := range uint64(16) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { pumpAtRandom(t, rand.New(rand.NewPCG(seed, 1)), seed%2 == 1) })
		})
	}
}

func pumpAtRandom(t *testing.T, r *rand.Rand, early bool) {
	t.Helper()
	store := &moodyStore{r: rand.New(rand.NewPCG(r.Uint64(), 2)), granted: make(map[inShard]int), tried: make(map[string]bool)}
	store.holds.Store(holdbook.New(nil, 0, time.Now()))
	var mu sync.Mutex // guards answered
	answered := make(map[inShard]int)
	var of Store = store
	if early {
		of = earlyStore{store}
	}
	p := newPump(of, store.holds.Load)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.Run(ctx) })
	for step := range 600 {
		switch n := r.IntN(20); {
		case n < 12:
			req := randomRequest(r, step)
			patience := time.Duration(r.IntN(6000)) * time.Millisecond
			running.Go(func() {
				caller, gone := context.WithTimeout(t.Context(), patience)
				defer gone()
				out := p.Wait(caller, &req)
				mu.Lock()
				defer mu.Unlock()
				if (len(out.Grants) > 0) != (out.End == Granted) || out.End == Granted && out.Call != req.Want.Call && !strings.HasPrefix(out.Call, "moved ") {
					t.Errorf("%d grants of call %q to call %q, end %v", len(out.Grants), out.Call, req.Want.Call, out.End)
				}
				if len(out.Grants) > req.Want.Max {
					t.Errorf("%d grants to a fetch of %d", len(out.Grants), req.Want.Max)
				}
				for _, g := range out.Grants {
					answered[inShard{int(g.Token.Fence), out.Call}]++
				}
			})
		case n < 17:
			p.Hint(fmt.Sprintf("p%d", r.IntN(3)), r.IntN(3), time.Duration(r.IntN(3)*r.IntN(500))*time.Millisecond)
		case n < 18:
			p.EndSessions(fmt.Sprintf("c%d", r.IntN(10)), "s0")
		case n < 19:
			p.HintAll()
		default:
			targets := []dispatch.HoldTarget{{Collector: fmt.Sprintf("c%d", r.IntN(40))}}
			if r.IntN(3) == 0 {
				targets = append(targets, dispatch.HoldTarget{Pool: fmt.Sprintf("p%d", r.IntN(3))})
			}
			var holds []dispatch.Hold
			for _, target := range targets {
				holds = append(holds, dispatch.Hold{Target: target, Name: dispatch.HoldDefault})
			}
			store.holds.Store(holdbook.New(holds, int64(step), time.Now()))
			p.HoldsChanged()
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
	if n := p.Waiting() + len(p.sessions); n != 0 {
		t.Errorf("%d notes of waiters are left once all are answered", n)
	}
	for call, n := range store.granted {
		if answered[call] != n {
			t.Errorf("call %v was granted %d tasks and handed %d, and the rest was not given back", call, n, answered[call])
		}
	}
}

// randomRequest is a fetch of one of few collectors, by one of few client tokens.
func randomRequest(r *rand.Rand, call int) Request {
	req := Request{Once: r.IntN(4) == 0, Cached: r.IntN(2) == 0, Until: time.Now().Add(time.Duration(r.IntN(3000)) * time.Millisecond)}
	req.Want = dispatch.Want{Max: 1 + r.IntN(3), Poll: dispatch.Poll{
		Collector: fmt.Sprintf("c%d", r.IntN(10)), Session: fmt.Sprintf("s%d", r.IntN(2)),
		ClientToken: fmt.Sprintf("t%d", r.IntN(20)), Call: fmt.Sprint(call),
	}}
	for i := range 3 {
		if r.IntN(2) == 0 || i == 2 && req.Pools == nil {
			req.Pools = append(req.Pools, fmt.Sprintf("p%d", i))
		}
	}
	if r.IntN(3) == 0 {
		req.Want.Queues = []string{"q"}
	}
	return req
}

// mustHold checks what holds whenever the lock is free, and nothing can run.
func (p *Pump) mustHold(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	listed := 0
	for _, of := range p.sessions {
		listed += len(of)
	}
	if listed != len(p.waiting) {
		t.Errorf("%d waiters by session, and %d by token", listed, len(p.waiting))
	}
	for key, w := range p.waiting {
		if w.finished || key != (token{w.Want.Collector, w.Want.ClientToken}) || len(w.places) != len(w.Pools) {
			t.Errorf("under %v: waiter of %v, finished %v, in %d lines of %d pools", key, w.Want.Poll, w.finished, len(w.places), len(w.Pools))
		}
	}
	for _, l := range p.lines {
		for e := l.waiters.Front(); e != nil; e = e.Next() {
			w := e.Value.(*waiter)
			if w.finished || !slices.Contains(w.Pools, l.pool) || l.narrow != (len(w.Want.Queues) > 0) {
				t.Errorf("in line %q stands the waiter of %v and %v, finished %v", l.key, w.Pools, w.Want.Queues, w.finished)
			}
		}
		for i := range l.outlets {
			o, now := &l.outlets[i], time.Now()
			if open := !o.until.After(now); open && !o.busy() && !o.retryAt.After(now) && !p.cfg.Holds().StopsPool(l.pool) && len(o.pick(nil, 1)) > 0 {
				t.Errorf("shard %d has something for line %q, and nobody asks", i, l.key)
			}
		}
	}
}

// emptyStore has nothing in any of its pools.
type emptyStore struct{ claims int }

func (*emptyStore) Shards() int { return 1 }

func (s *emptyStore) Claim(
	_ context.Context, _ int, _ string, _ int64, wants []dispatch.Want, _ func(*dispatch.ClaimReply),
) (dispatch.ClaimReply, error) {
	s.claims++
	return dispatch.ClaimReply{Grants: make([][]dispatch.Grant, len(wants)), Used: make([]bool, len(wants)), Now: time.Now(), Wait: dispatch.WaitNoTasks}, nil
}

func (*emptyStore) GiveBack(context.Context, int, string, string, string) (int, error) { return 0, nil }

// Of the lines that nobody waits in some are kept, for a while: those who fetch can name any
// pool.
func TestPump_idleLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &emptyStore{}
		p := newPump(store, nothingHeld)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { p.Run(ctx) })
		synctest.Wait()
		wait := func(n int) {
			want := dispatch.Want{Poll: dispatch.Poll{Collector: "c", ClientToken: "t"}, Max: 1}
			p.Wait(t.Context(), &Request{Want: want, Pools: []string{fmt.Sprintf("pool-%d", n)}, Until: time.Now().Add(time.Millisecond)})
		}
		for n := range 3 * maxIdle {
			wait(n)
			if kept := len(p.lines); kept > maxIdle {
				t.Fatalf("%d lines are kept", kept)
			}
		}
		claims := store.claims
		wait(3*maxIdle - 1)
		if store.claims != claims {
			t.Error("what was known of a pool a moment ago is asked for again")
		}
		time.Sleep(2 * idleLine)
		synctest.Wait()
		if kept := len(p.lines); kept != 0 {
			t.Errorf("%d lines are kept that nobody waited in for %v", kept, 2*idleLine)
		}
		cancel()
		running.Wait()
	})
}

// A fetch that does not wait is claimed for from all shards, or from those only that may have something as far as is known.
func TestPump_once(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &emptyStore{}
		p := newPump(store, nothingHeld)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { p.Run(ctx) })
		synctest.Wait()
		for n, step := range []struct {
			cached, hint bool
			claims       int
		}{
			{cached: true, claims: 1}, // nothing is known yet
			{cached: true, claims: 0},
			{cached: false, claims: 1},
			{cached: true, hint: true, claims: 1},
			{cached: true, claims: 0},
		} {
			if step.hint {
				p.Hint("p", 0, 0)
			}
			before := store.claims
			want := dispatch.Want{Poll: dispatch.Poll{Collector: "c", ClientToken: fmt.Sprint(n)}, Max: 1}
			began := time.Now()
			out := p.Wait(t.Context(), &Request{Want: want, Pools: []string{"p"}, Once: true, Cached: step.cached, Until: began.Add(time.Minute)})
			if claims := store.claims - before; out.End != Nothing || claims != step.claims || time.Since(began) > 0 {
				t.Errorf("step %d: end %v, after %v and %d claims, want %d", n, out.End, time.Since(began), claims, step.claims)
			}
		}
		cancel()
		running.Wait()
	})
}

// generousStore has a task for whoever asks, and does not say when there is more.
type generousStore struct{ emptyStore }

func (*generousStore) Claim(
	_ context.Context, _ int, _ string, _ int64, wants []dispatch.Want, _ func(*dispatch.ClaimReply),
) (dispatch.ClaimReply, error) {
	reply := dispatch.ClaimReply{Grants: make([][]dispatch.Grant, len(wants)), Used: make([]bool, len(wants)), Now: time.Now()}
	for i := range wants {
		reply.Grants[i] = make([]dispatch.Grant, wants[i].Max)
	}
	return reply, nil
}

// A fetch that is narrowed to a queue is claimed for at once, though the last claim for such did
// not say whether that has more (P9).
func TestPump_narrowedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPump(&generousStore{}, nothingHeld)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { p.Run(ctx) })
		synctest.Wait()
		began := time.Now()
		for n := range 10 {
			want := dispatch.Want{Poll: dispatch.Poll{Collector: "c", ClientToken: fmt.Sprint(n)}, Max: 1, Queues: []string{"q"}}
			if out := p.Wait(t.Context(), &Request{Want: want, Pools: []string{"p"}, Until: began.Add(time.Minute)}); out.End != Granted {
				t.Errorf("fetch %d: end %v", n, out.End)
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("10 fetches took %v", took)
		}
		cancel()
		running.Wait()
	})
}

// slowStore decides each claim at once, and keeps it after a second.
type slowStore struct{ generousStore }

func (s *slowStore) Claim(
	ctx context.Context, shard int, pool string, holds int64, wants []dispatch.Want, decided func(*dispatch.ClaimReply),
) (dispatch.ClaimReply, error) {
	reply, err := s.generousStore.Claim(ctx, shard, pool, holds, wants, nil)
	reply.Next = reply.Now
	decided(&reply)
	time.Sleep(time.Second)
	return reply, err
}

// Claims of a store that takes a while to keep them do not wait for each other, and are answered when they are kept.
func TestPump_early(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPump(&slowStore{}, nothingHeld)
		ctx, cancel := context.WithCancel(t.Context())
		var running, fetches sync.WaitGroup
		running.Go(func() { p.Run(ctx) })
		synctest.Wait()
		began := time.Now()
		for n := range mostKeeping {
			fetches.Go(func() {
				want := dispatch.Want{Poll: dispatch.Poll{Collector: "c", ClientToken: fmt.Sprint(n)}, Max: bounds.MaxClaimTasks}
				if out := p.Wait(t.Context(), &Request{Want: want, Pools: []string{"p"}, Until: began.Add(time.Minute)}); out.End != Granted {
					t.Errorf("fetch %d: end %v", n, out.End)
				}
				if took := time.Since(began); took != time.Second {
					t.Errorf("fetch %d took %v", n, took)
				}
			})
		}
		fetches.Wait()
		cancel()
		running.Wait()
	})
}

// halfStore has a task in its first shard each few milliseconds. Its second shard is away, which it finds out after a
// while.
type halfStore struct {
	emptyStore
	mu     sync.Mutex // guards what follows
	last   time.Time  // when the first shard granted last
	failed int        // fetches of claims of the second shard
	tried  int        // claims of it
	back   bool
}

const (
	halfTask = 10 * time.Millisecond
	halfAway = 300 * time.Millisecond
)

func (*halfStore) Shards() int { return 2 }

func (s *halfStore) Claim(
	_ context.Context, shard int, _ string, _ int64, wants []dispatch.Want, _ func(*dispatch.ClaimReply),
) (dispatch.ClaimReply, error) {
	if shard == 1 && !s.returned(wants) {
		time.Sleep(halfAway)
		return dispatch.ClaimReply{}, dispatch.ErrStoreUnavailable
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	reply := dispatch.ClaimReply{Grants: make([][]dispatch.Grant, len(wants)), Used: make([]bool, len(wants)), Now: time.Now()}
	if len(wants) > 0 && time.Since(s.last) >= halfTask {
		s.last = time.Now()
		reply.Grants[0] = make([]dispatch.Grant, 1)
	}
	reply.Next = s.last.Add(halfTask)
	return reply, nil
}

func (s *halfStore) returned(wants []dispatch.Want) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.back {
		s.tried++
		s.failed += len(wants)
	}
	return s.back
}

// A shard that is away delays no fetch but those of its first claim, is tried again, and serves once it is back.
func TestPump_shardAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &halfStore{}
		p := newPump(store, nothingHeld)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { p.Run(ctx) })
		synctest.Wait()
		fetch := func(n int) Outcome {
			want := dispatch.Want{Poll: dispatch.Poll{Collector: fmt.Sprint("c", n%4), ClientToken: fmt.Sprint(n)}, Max: 1}
			return p.Wait(t.Context(), &Request{Want: want, Pools: []string{"p"}, Until: time.Now().Add(time.Minute)})
		}
		errs := 0
		began := time.Now()
		var longest time.Duration
		for n := range 1000 {
			asked := time.Now()
			if out := fetch(n); out.End == Failed {
				errs++
			} else if out.End != Granted {
				t.Fatalf("fetch %d: end %v", n, out.End)
			}
			longest = max(longest, time.Since(asked))
		}
		if errs > 1 || store.failed > 1 {
			t.Errorf("%d fetches of 1000 failed, and %d were part of a claim that failed; want at most one", errs, store.failed)
		}
		if took := time.Since(began); longest > halfAway || took > 1000*halfTask+2*halfAway {
			t.Errorf("1000 fetches took %v, one of them %v", took, longest)
		}
		if store.tried < 5 {
			t.Errorf("the shard that is away was tried %d times in %v", store.tried, time.Since(began))
		}
		store.mu.Lock()
		store.back = true
		store.mu.Unlock()
		time.Sleep(2 * longestBackoff)
		fetch(1000)
		synctest.Wait()
		p.mu.Lock()
		if err := p.lines["p"].outlets[1].err; err != nil {
			t.Errorf("the shard is back, and not used: %v", err)
		}
		p.mu.Unlock()
		cancel()
		running.Wait()
	})
}
