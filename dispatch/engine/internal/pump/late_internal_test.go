package pump

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// lateStore decides at once; shard 0 has tasks and keeps each claim after a while, shard 1 has nothing.
type lateStore struct {
	mu     sync.Mutex
	shards int
	keeps  time.Duration
	claims int
	gave   int
}

func (s *lateStore) Shards() int { return s.shards }

func (s *lateStore) Claim(
	_ context.Context, shard int, _ string, _ int64, wants []dispatch.Want, decided func(*dispatch.ClaimReply),
) (dispatch.ClaimReply, error) {
	reply := dispatch.ClaimReply{Grants: make([][]dispatch.Grant, len(wants)), Used: make([]bool, len(wants)), Now: time.Now(), Wait: dispatch.WaitNoTasks}
	if shard == 0 {
		for i := range wants {
			reply.Grants[i] = make([]dispatch.Grant, 1)
		}
		reply.Next = reply.Now
	}
	s.mu.Lock()
	s.claims++
	s.mu.Unlock()
	decided(&reply)
	if shard == 0 && len(wants) > 0 {
		time.Sleep(s.keeps)
	}
	return reply, nil
}

func (s *lateStore) GiveBack(context.Context, int, string, string, string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gave++
	return 1, nil
}

// runPump runs a test of a pump in virtual time.
func runPump(t *testing.T, store Store, test func(t *testing.T, p *Pump)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPump(store, nothingHeld)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { p.Run(ctx) })
		synctest.Wait()
		test(t, p)
		cancel()
		running.Wait()
	})
}

// ask fetches a task.
func ask(ctx context.Context, p *Pump, n int, wait time.Duration, once bool) Outcome {
	want := dispatch.Want{Poll: dispatch.Poll{Collector: "c", ClientToken: fmt.Sprint(n), Call: fmt.Sprint("own ", n)}, Max: 1}
	return p.Wait(ctx, &Request{Want: want, Pools: []string{"p"}, Until: time.Now().Add(wait), Once: once})
}

// TestPump_shortWaits: fetches whose waits are shorter than a claim takes are answered by that claim.
func TestPump_shortWaits(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond} {
		s := &lateStore{shards: 2, keeps: 600 * time.Millisecond}
		runPump(t, s, func(t *testing.T, p *Pump) {
			got := 0
			for n := range 20 {
				if out := ask(t.Context(), p, n, wait, false); out.End == Granted {
					got++
				}
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(5 * time.Second)
			if got == 0 {
				t.Errorf("wait %v: nobody gets anything", wait)
			}
		})
	}
}

// TestPump_noWaitLate: fetches that do not wait are answered by a claim that takes long.
func TestPump_noWaitLate(t *testing.T) {
	t.Parallel()
	s := &lateStore{shards: 2, keeps: 600 * time.Millisecond}
	runPump(t, s, func(t *testing.T, p *Pump) {
		got := 0
		for n := range 20 {
			out := ask(t.Context(), p, n, 5*time.Second, true)
			if out.End == Granted {
				got++
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		if got == 0 {
			t.Errorf("nobody gets anything")
		}
	})
}

// TestPump_overlap: claims of a slow store overlap, since no other shard could take their fetches.
func TestPump_overlap(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1} {
		s := &lateStore{shards: shards, keeps: 400 * time.Millisecond}
		runPump(t, s, func(t *testing.T, p *Pump) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			var all sync.WaitGroup
			var mu sync.Mutex
			got := 0
			for k := range 40 {
				all.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						want := dispatch.Want{Poll: dispatch.Poll{Collector: "c", ClientToken: fmt.Sprint(k, " ", n)}, Max: bounds.MaxClaimTasks}
						if out := p.Wait(ctx, &Request{Want: want, Pools: []string{"p"}, Until: time.Now().Add(time.Minute)}); out.End == Granted {
							mu.Lock()
							got++
							mu.Unlock()
						}
					}
				})
			}
			all.Wait()
			cancel()
			if got < 80 {
				t.Errorf("%d grants in 10 s; 4 claims under way would be 100", got)
			}
		})
	}
}

// TestPump_leftEnds: a fetch that has left a claim ends in each way, before and behind that: what it was granted is handed out or given back.
func TestPump_leftEnds(t *testing.T) {
	t.Parallel()
	for _, do := range map[string]func(p *Pump, cancel func()){
		"caller goes": func(_ *Pump, cancel func()) { cancel() },
		"drain":       func(p *Pump, _ func()) { p.Drain() },
		"session":     func(p *Pump, _ func()) { p.EndSessions("c", "other") },
		"superseded":  func(p *Pump, _ func()) { go ask(context.WithoutCancel(t.Context()), p, 1, 10*time.Millisecond, false) },
	} {
		for _, after := range []time.Duration{299 * time.Millisecond, 300 * time.Millisecond, 350 * time.Millisecond, 599 * time.Millisecond, 600 * time.Millisecond} {
			s := &lateStore{shards: 2, keeps: 600 * time.Millisecond}
			runPump(t, s, func(t *testing.T, p *Pump) {
				ctx, cancel := context.WithCancel(t.Context())
				out := make(chan Outcome, 1)
				go func() { out <- ask(ctx, p, 1, time.Minute, false) }()
				time.Sleep(after)
				do(p, cancel)
				<-out
				time.Sleep(30 * time.Second)
				p.mu.Lock()
				if len(p.waiting)+len(p.sessions) > 0 {
					t.Errorf("left: %v", p.waiting)
				}
				p.mu.Unlock()
				cancel()
			})
		}
	}
}

// emptyHanded is a lateStore whose shard 1 takes a while to say that it has nothing, and opens again at once.
type emptyHanded struct{ lateStore }

func (s *emptyHanded) Claim(
	ctx context.Context, shard int, pool string, holds int64, wants []dispatch.Want, decided func(*dispatch.ClaimReply),
) (dispatch.ClaimReply, error) {
	reply, err := s.lateStore.Claim(ctx, shard, pool, holds, wants, func(r *dispatch.ClaimReply) {
		if shard == 1 {
			time.Sleep(250 * time.Millisecond)
			r.Now = time.Now()
			r.Next = r.Now.Add(10 * time.Millisecond)
		}
		decided(r)
	})
	return reply, err
}

// TestPump_lateBesideOthers: what a slow shard grants is handed out, also while another one is asked again and again in vain.
func TestPump_lateBesideOthers(t *testing.T) {
	t.Parallel()
	s := &emptyHanded{lateStore{shards: 2, keeps: 600 * time.Millisecond}}
	runPump(t, s, func(t *testing.T, p *Pump) {
		for n := range 5 {
			began := time.Now()
			out := ask(t.Context(), p, n, 30*time.Second, false)
			if out.End != Granted || time.Since(began) > 2*time.Second {
				t.Errorf("a fetch beside a task of a shard that keeps after 600 ms: end %v after %v", out.End, time.Since(began))
			}
		}
	})
}
