package pump

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// lateStore decides at once; shard 0 has tasks and keeps each claim after a while, shard 1 has nothing.
type lateStore struct {
	shards int
	keeps  time.Duration

	granted, gaveBack atomic.Int64 // tasks
}

func (s *lateStore) Shards() int { return s.shards }

func (s *lateStore) Claim(
	_ context.Context, shard int, _ string, _ int64, wants []dispatch.Want, decided func(*dispatch.ClaimReply),
) (dispatch.ClaimReply, error) {
	reply := dispatch.ClaimReply{Grants: make([][]dispatch.Grant, len(wants)), Used: make([]bool, len(wants)), Now: time.Now(), Wait: dispatch.WaitNoTasks}
	if shard == 0 {
		for i := range wants {
			reply.Grants[i] = make([]dispatch.Grant, 1)
			s.granted.Add(1)
		}
		reply.Next = reply.Now
	}
	decided(&reply)
	if shard == 0 && len(wants) > 0 {
		time.Sleep(s.keeps)
	}
	return reply, nil
}

func (s *lateStore) GiveBack(context.Context, int, string, string, string) (int, error) {
	s.gaveBack.Add(1)
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

// TestPump_shortWaits: fetches whose waits are shorter than a claim takes, or that do not wait, are answered by that claim.
func TestPump_shortWaits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		wait time.Duration
		once bool
	}{{100 * time.Millisecond, false}, {500 * time.Millisecond, false}, {5 * time.Second, true}} {
		s := &lateStore{shards: 2, keeps: 600 * time.Millisecond}
		runPump(t, s, func(t *testing.T, p *Pump) {
			const fetches = 20
			granted, unknown := 0, 0
			for n := range fetches {
				out := ask(t.Context(), p, n, c.wait, c.once)
				switch {
				case out.End == Granted:
					granted++
				case c.once && out.Err != nil: // it came while the shard was slow
					unknown++
				}
				time.Sleep(10 * time.Millisecond)
			}
			if granted == 0 || granted+unknown < fetches || s.gaveBack.Load() > 0 {
				t.Errorf("%+v: %d of %d fetches got a task, %d an error, %d were given back", c, granted, fetches, unknown, s.gaveBack.Load())
			}
		})
	}
}

// TestPump_overlap: claims of a slow store overlap, since no other shard could take their fetches.
func TestPump_overlap(t *testing.T) {
	t.Parallel()
	s := &lateStore{shards: 1, keeps: 400 * time.Millisecond}
	runPump(t, s, func(t *testing.T, p *Pump) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var all sync.WaitGroup
		var granted atomic.Int64
		for k := range 40 {
			all.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					want := dispatch.Want{Poll: dispatch.Poll{Collector: "c", ClientToken: fmt.Sprint(k, " ", n)}, Max: bounds.MaxClaimTasks}
					if out := p.Wait(ctx, &Request{Want: want, Pools: []string{"p"}, Until: time.Now().Add(time.Minute)}); out.End == Granted {
						granted.Add(1)
					}
				}
			})
		}
		all.Wait()
		if n := granted.Load(); n < 80 {
			t.Errorf("%d grants in 10 s; claims under way four at a time would be 100", n)
		}
	})
}

// TestPump_leftEnds: a fetch ends in each way, before and behind the instant at which it leaves a claim: what it was granted is handed out
// once, or given back.
func TestPump_leftEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(ctx context.Context, p *Pump, cancel func()) (granted int){
		"caller goes": func(_ context.Context, _ *Pump, cancel func()) int { cancel(); return 0 },
		"drain":       func(_ context.Context, p *Pump, _ func()) int { p.Drain(); return 0 },
		"session":     func(_ context.Context, p *Pump, _ func()) int { p.EndSessions("c", "other"); return 0 },
		"superseded": func(ctx context.Context, p *Pump, _ func()) int {
			return len(ask(ctx, p, 1, 10*time.Millisecond, false).Grants)
		},
	} {
		for _, after := range []time.Duration{299 * time.Millisecond, 300 * time.Millisecond, 350 * time.Millisecond, 599 * time.Millisecond, 600 * time.Millisecond} {
			s := &lateStore{shards: 2, keeps: 600 * time.Millisecond}
			runPump(t, s, func(t *testing.T, p *Pump) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				out := make(chan Outcome, 1)
				go func() { out <- ask(ctx, p, 1, time.Minute, false) }()
				time.Sleep(after)
				handed := end(t.Context(), p, cancel)
				handed += len((<-out).Grants)
				time.Sleep(30 * time.Second)
				p.mu.Lock()
				left := len(p.waiting) + len(p.sessions)
				p.mu.Unlock()
				if granted, gaveBack := int(s.granted.Load()), int(s.gaveBack.Load()); left > 0 || granted == 0 || granted != handed+gaveBack {
					t.Errorf("%s after %v: %d tasks granted, %d handed out, %d given back; %d notes are left", name, after, granted, handed, gaveBack, left)
				}
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
