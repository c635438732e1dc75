package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
)

func TestPump_oneTaskOneClaim(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		const parked = 2000
		chans := w.Park(parked, bounds.MaxWait)
		claims := 0
		for range 20 {
			// Away from the fallback: right after it.
			w.afterClaim()
			before := w.Stores[0].Count("Claim")
			w.Submit("s", "", 1, 0)
			synctest.Wait()
			tasks, rest := dispatchtest.Granted(chans)
			if len(tasks) != 1 || len(rest) != len(chans)-1 {
				t.Fatalf("%d tasks and %d fetches that still wait, want 1 and %d", len(tasks), len(rest), len(chans)-1)
			}
			chans = rest
			claims += w.Stores[0].Count("Claim") - before
		}
		if claims != 20 {
			t.Errorf("%d claims for 20 tasks that came one by one, want 20", claims)
		}
	})
}

// afterClaim sleeps until a claim has just been made.
func (w *world) afterClaim() {
	w.T.Helper()
	before := w.Stores[0].Count("Claim")
	for range 2000 {
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if w.Stores[0].Count("Claim") > before {
			return
		}
	}
	w.T.Fatal("no claim within 2s")
}

func TestPump_manyTasksFewClaims(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Shards: 4}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		chans := w.Park(1000, bounds.MaxWait)
		w.afterClaim()
		var widest atomic.Int64
		w.Inject(dispatchtest.On(func(_ context.Context, c *dispatchtest.Call, ask func() error) error {
			widest.Store(max(widest.Load(), int64(len(c.Wants))))
			return ask()
		}, dispatchtest.Calls("Claim")))
		before := w.Stores[0].Count("Claim")
		w.Submit("s", "", 1000, 0)
		time.Sleep(20 * dispatchtest.Moment)
		synctest.Wait()
		tasks, rest := dispatchtest.Granted(chans)
		if len(tasks) != 1000 || len(rest) != 0 {
			t.Fatalf("%d of 1000 fetches got %d tasks", 1000-len(rest), len(tasks))
		}
		// Four shards double up from one want each, to as many as a claim has turns for.
		if n := w.Stores[0].Count("Claim") - before; n > 80 {
			t.Errorf("%d claims for 1000 tasks of 4 shards, want at most 80", n)
		}
		if n := widest.Load(); n > bounds.MaxClaimTurns {
			t.Errorf("a claim carried %d fetches, and has turns for %d", n, bounds.MaxClaimTurns)
		}
	})
}

func TestPump_hintDuringClaim(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		chans := w.Park(2, bounds.MaxWait)
		w.afterClaim()
		// A claim hangs after it has found nothing more; what comes meanwhile
		// must not wait for the fallback.
		w.Inject(dispatchtest.Late(20*time.Millisecond, dispatchtest.Calls("Claim")))
		began := time.Now()
		w.Submit("s", "", 1, 0)
		synctest.Wait()
		time.Sleep(5 * time.Millisecond)
		w.Submit("s", "", 1, 0)
		for _, ch := range chans {
			if a := <-ch; a.Err != nil || len(a.Res.Tasks) != 1 || a.At.Sub(began) > 100*time.Millisecond {
				t.Errorf("%+v, %v after %v", a.Res, a.Err, a.At.Sub(began))
			}
		}
	})
}

func TestPump_idle(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		w.Submit("s", "", 50, time.Hour) // waiting tasks cost nothing either
		chans := w.Park(1000, bounds.MaxWait)
		time.Sleep(time.Second)
		before, claims := w.Stores[0].Count(""), w.Stores[0].Count("Claim")
		const seconds = 20
		time.Sleep(seconds * time.Second)
		claims, all := w.Stores[0].Count("Claim")-claims, w.Stores[0].Count("")-before
		t.Logf("1000 parked fetches, one shard, idle: %.1f claims and %.1f calls of the store in all a second", float64(claims)/seconds, float64(all)/seconds)
		if claims > 1.5*seconds || all > 10*seconds { // a look for findings every 5 to 10 s makes 20 calls
			t.Errorf("%d claims and %d calls in %ds, want at most 1.5 and 10 a second", claims, all, seconds)
		}
		for _, ch := range chans {
			<-ch
		}
		if n := w.D[0].Parked(); n != 0 {
			t.Errorf("%d fetches are parked after their wait", n)
		}
		// With nobody waiting nothing is claimed.
		claims = w.Stores[0].Count("Claim")
		time.Sleep(time.Minute)
		if n := w.Stores[0].Count("Claim") - claims; n > 1 {
			t.Errorf("%d claims with nobody waiting", n)
		}
	})
}

func TestPump_storeAway(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.InfoLevel)
	inWorld(t, dispatchtest.Setup{Logger: zap.New(core)}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		const parked = 200
		var chans []<-chan dispatchtest.Answer
		for i := range parked {
			chans = append(chans, w.GoFetch(t.Context(), 0, dispatchtest.Ask(fmt.Sprintf("c%d", i), "", 20*time.Second)))
		}
		time.Sleep(time.Second)
		logged := logs.Len()
		before := w.Stores[0].Count("Claim")
		w.Inject(dispatchtest.Fail(dispatch.ErrStoreUnavailable))
		if _, err := w.D[0].Fetch(t.Context(), dispatchtest.Ask("late", "", 10*time.Second)); !errors.Is(err, dispatch.ErrStoreUnavailable) {
			t.Errorf("Fetch while the store is away: %v, want ErrStoreUnavailable", err)
		}
		for i, ch := range chans {
			if a := <-ch; !errors.Is(a.Err, dispatch.ErrStoreUnavailable) {
				t.Fatalf("fetch %d: %+v, %v; want ErrStoreUnavailable", i, a.Res, a.Err)
			}
		}
		if n := w.Stores[0].Count("Claim") - before; n > 45 {
			t.Errorf("%d claims in 20s of a store that is away", n)
		}
		if n := logs.Len() - logged; n > 7 {
			t.Errorf("%d lines were logged, want at most one for each thing that fails", n)
			for _, entry := range logs.All()[logged:] {
				t.Log(entry.Message)
			}
		}
		w.Heal()
		w.Submit("s", "", 1, 0)
		began := time.Now()
		w.MustFetch(dispatchtest.Ask("c", "", 10*time.Second))
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("work went on %v after the store was back", took)
		}
	})
}

// Whatever comes and goes, no task that could be taken waits beside a fetch that
// could take it for more than 100 ms (P9).
func TestPump_noWaitingBesideWork(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			inWorld(t, dispatchtest.Setup{Shards: 1 + r.IntN(4)}, func(t *testing.T, w *world) {
				pools := []string{"default", "browser", "eu"}
				for _, pool := range pools {
					w.AddSource("in-"+pool, func(s *dispatch.SourceSpec) { s.Pool = pool })
				}
				for _, s := range w.Stores {
					s.Inject(dispatchtest.Delay(time.Duration(r.IntN(3))*time.Millisecond, dispatchtest.Calls("Claim")))
				}
				ctx, stop := context.WithCancel(t.Context())
				late := make(chan string, 1000)
				// More fetches than tasks at any time, for all pools.
				for i := range 30 {
					w.WG.Go(func() { w.forage(ctx, i, pools, rand.New(rand.NewPCG(seed, uint64(i)+2)), late) })
				}
				for range 300 {
					w.Submit("in-"+pools[r.IntN(3)], "", 1+r.IntN(2), time.Duration(r.IntN(2)*r.IntN(700))*time.Millisecond)
					time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
				}
				time.Sleep(2 * time.Second)
				stop()
				stats, err := w.Store.Stats(t.Context())
				if err != nil || stats.Counts.Ready+stats.Counts.Scheduled != 0 {
					t.Errorf("left behind: %+v, %v", stats.Counts, err)
				}
				close(late)
				for why := range late {
					t.Error(why)
				}
			})
		})
	}
}

// forage fetches and reports until ctx ends, and tells of tasks that it got late.
func (w *world) forage(ctx context.Context, i int, pools []string, r *rand.Rand, late chan<- string) {
	for ctx.Err() == nil {
		req := dispatchtest.Ask(fmt.Sprintf("c%d", i), "", time.Duration(1+r.IntN(5000))*time.Millisecond)
		req.Pools = pools[:1+r.IntN(3)]
		if i < 6 {
			req.Pools = pools
		}
		call, cancel := context.WithCancel(ctx)
		if r.IntN(4) == 0 {
			cancel()
			call, cancel = context.WithTimeout(ctx, time.Duration(1+r.IntN(2000))*time.Millisecond)
		}
		res, err := w.D[r.IntN(len(w.D))].Fetch(call, req)
		cancel()
		if err != nil {
			continue
		}
		for _, g := range res.Tasks {
			if lag := time.Since(g.Task.Due); lag > 100*time.Millisecond {
				late <- fmt.Sprintf("task %s of pool %s was handed out %v after it was due", g.Task.ID, g.Task.Pool, lag)
			}
			time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
			w.Settle(dispatchtest.Success(g)) //nolint:contextcheck // what is held is reported when ctx has ended, too
		}
	}
}

func TestPump_delaysWakeInTime(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{MinDelay: 3 * time.Second}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		w.Submit("s", "q", 3, 0)
		began := time.Now()
		for i, want := range []time.Duration{0, 3 * time.Second, 6 * time.Second} {
			w.Settle(dispatchtest.Success(w.MustFetch(dispatchtest.Ask("c", "", bounds.MaxWait)).Tasks[0]))
			if at := time.Since(began); at < want || at > want+50*time.Millisecond {
				t.Errorf("task %d after %v, want %v", i, at, want)
			}
		}
	})
}

func TestPump_pauseAndResume(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Shards: 2}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		ch := w.GoFetch(t.Context(), 0, dispatchtest.Ask("c", "", bounds.MaxWait))
		synctest.Wait()
		w.SetHold(dispatch.HoldTarget{Source: "s"}, time.Time{})
		w.Submit("s", "", 1, 0)
		time.Sleep(10 * time.Second)
		if tasks, _ := dispatchtest.Granted([]<-chan dispatchtest.Answer{ch}); len(tasks) != 0 {
			t.Fatal("a task of a paused source was handed out")
		}
		began := time.Now()
		w.LiftHold(dispatch.HoldTarget{Source: "s"})
		if a := <-ch; a.Err != nil || len(a.Res.Tasks) != 1 || a.At.Sub(began) > 100*time.Millisecond {
			t.Errorf("after the resume: %+v, %v after %v", a.Res, a.Err, a.At.Sub(began))
		}
	})
}

func TestPump_tooManyWaiters(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{MaxWaiters: 5}, func(t *testing.T, w *world) {
		chans := w.Park(5, 3*time.Second)
		if _, err := w.D[0].Fetch(t.Context(), dispatchtest.Ask("c", "", time.Second)); !errors.Is(err, dispatch.ErrTooManyWaiters) {
			t.Errorf("sixth fetch: %v, want ErrTooManyWaiters", err)
		}
		for _, ch := range chans {
			<-ch
		}
		if _, err := w.D[0].Fetch(t.Context(), dispatchtest.Ask("c", "", time.Second)); err != nil {
			t.Errorf("once there is room: %v", err)
		}
	})
}

func TestPump_repeatedWhileParked(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Shards: 4}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		// The connection of the first breaks without its dispatcher noticing.
		dead := w.GoFetch(t.Context(), 0, dispatchtest.Ask("c", "token", bounds.MaxWait))
		synctest.Wait()
		behind := w.GoFetch(t.Context(), 0, dispatchtest.Ask("behind", "", bounds.MaxWait))
		synctest.Wait()
		ch := w.GoFetch(t.Context(), 0, dispatchtest.Ask("c", "token", bounds.MaxWait))
		synctest.Wait()
		if a := <-dead; a.Err != nil || len(a.Res.Tasks) != 0 {
			t.Errorf("the older call: %+v, %v; want nothing", a.Res, a.Err)
		}
		if n := w.D[0].Parked(); n != 2 {
			t.Errorf("%d fetches are parked, want 2", n)
		}
		w.Submit("s", "", 2, 0)
		for name, ch := range map[string]<-chan dispatchtest.Answer{"the newer call": ch, "the other one": behind} {
			if a := <-ch; a.Err != nil || len(a.Res.Tasks) != 1 {
				t.Errorf("%s: %+v, %v", name, a.Res, a.Err)
			}
		}
	})
}

func TestPump_pools(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Shards: 2}, func(t *testing.T, w *world) {
		w.AddSource("a", func(s *dispatch.SourceSpec) { s.Pool = "a" })
		w.AddSource("b", func(s *dispatch.SourceSpec) { s.Pool = "b" })
		req := dispatchtest.Ask("both", "", bounds.MaxWait)
		req.Pools = []string{"a", "b"}
		both := w.GoFetch(t.Context(), 0, req)
		synctest.Wait()
		req = dispatchtest.Ask("only-a", "", bounds.MaxWait)
		req.Pools = []string{"a"}
		onlyA := w.GoFetch(t.Context(), 0, req)
		synctest.Wait()
		w.Submit("b", "", 1, 0)
		if a := <-both; a.Err != nil || len(a.Res.Tasks) != 1 || a.Res.Tasks[0].Task.Pool != "b" {
			t.Errorf("fetch of both pools: %+v, %v", a.Res, a.Err)
		}
		w.Submit("b", "", 1, 0)
		time.Sleep(3 * time.Second)
		if tasks, _ := dispatchtest.Granted([]<-chan dispatchtest.Answer{onlyA}); len(tasks) != 0 {
			t.Error("a task of pool b went to a fetch of pool a")
		}
		w.Submit("a", "", 1, 0)
		if a := <-onlyA; a.Err != nil || len(a.Res.Tasks) != 1 || a.Res.Tasks[0].Task.Pool != "a" {
			t.Errorf("fetch of pool a: %+v, %v", a.Res, a.Err)
		}
	})
}
