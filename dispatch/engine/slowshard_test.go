package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// lateClaims has a shard keep each claim late.
func lateClaims(by time.Duration, shard int) *dispatchtest.Fault {
	return dispatchtest.Late(by, dispatchtest.Calls("Claim"), dispatchtest.InShard(shard), forFetches)
}

// forFetches selects claims that are no mere tries.
func forFetches(c *dispatchtest.Call) bool { return len(c.Wants) > 0 }

// TestDispatcher_Fetch_keptLate: a claim of a shard that keeps it late holds its fetch for a moment only, if another shard works. What
// it has granted is given back, and nobody else waits for the shard meanwhile.
func TestDispatcher_Fetch_keptLate(t *testing.T) {
	t.Parallel()
	const late = 8 * time.Second // longer than a call of the store may take
	for _, c := range []struct {
		name  string
		fault func(...dispatchtest.Match) *dispatchtest.Fault
	}{
		{"answers late", func(when ...dispatchtest.Match) *dispatchtest.Fault { return dispatchtest.Late(4*time.Second, when...) }},
		{"fails late", func(when ...dispatchtest.Match) *dispatchtest.Fault {
			return dispatchtest.On(func(ctx context.Context, _ *dispatchtest.Call, ask func() error) error {
				_ = ask()
				<-ctx.Done()
				return ctx.Err()
			}, when...)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			inTwoShards(t, func(t *testing.T, w *world) {
				w.AddSource("s", nil)
				collector, queues := homed()[0], homed()
				tasks := w.Submit("s", queues[1], 1, 0)
				w.Inject(c.fault(dispatchtest.Calls("Claim"), dispatchtest.InShard(1)))
				fetches := make(chan error, 10)
				for n := range cap(fetches) {
					go func() {
						res, err := w.D[0].Fetch(t.Context(), dispatchtest.Ask(collector, fmt.Sprint(n), late))
						if err == nil && (len(res.Tasks) != 1 || res.Tasks[0].Task.Queue != queues[0]) {
							err = fmt.Errorf("it got %+v", res)
						}
						fetches <- err
					}()
				}
				time.Sleep(100 * time.Millisecond)
				began := time.Now()
				w.Submit("s", queues[0], cap(fetches), 0)
				for range cap(fetches) {
					if err := <-fetches; err != nil {
						t.Errorf("a fetch while its shard keeps nothing: %v", err)
					}
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("the tasks of the other shard were fetched after %v", took)
				}
				time.Sleep(late)
				w.Heal()
				time.Sleep(2 * time.Second)
				if gaveBack, _ := w.Seen[0].Read(); gaveBack != 1 {
					t.Errorf("%d tasks were given back, want 1", gaveBack)
				}
				if got := w.HoldTasks(collector, 1, queues[1]); got[0].Task.ID != tasks[0] {
					t.Errorf("got %v, want the task that was given back", got)
				}
			})
		})
	}
}

// TestDispatcher_Fetch_slowShard: the tasks of a shard that keeps each claim late are handed out to whoever has nothing else.
func TestDispatcher_Fetch_slowShard(t *testing.T) {
	t.Parallel()
	inTwoShards(t, func(t *testing.T, w *world) {
		const tasks = 5
		w.AddSource("s", nil)
		collector, queues := homed()[0], homed()
		w.Submit("s", queues[1], tasks, 0)
		w.Inject(lateClaims(600*time.Millisecond, 1))
		for n := range tasks {
			began := time.Now()
			res, err := w.D[0].Fetch(t.Context(), dispatchtest.Ask(collector, fmt.Sprint(n), 8*time.Second))
			if err != nil || len(res.Tasks) != 1 || time.Since(began) > 2*time.Second {
				t.Errorf("%+v, %v after %v; want a task", res, err, time.Since(began))
			}
		}
		if res, err := w.D[0].Fetch(t.Context(), dispatchtest.Ask(collector, "none", 3*time.Second)); err != nil || res.Empty != engine.EmptyNoTasks {
			t.Errorf("%+v, %v; want nothing", res, err)
		}
		if gaveBack, _ := w.Seen[0].Read(); gaveBack != 0 {
			t.Errorf("%d tasks were given back", gaveBack)
		}
	})
}

// TestDispatcher_Fetch_repeatOfLeft: a repeat of a fetch that has left a slow shard gets the leases that it was answered with (P7), and
// what the slow shard has granted it is given back.
func TestDispatcher_Fetch_repeatOfLeft(t *testing.T) {
	t.Parallel()
	for slow := range 2 {
		inTwoShards(t, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			collector, queues := homed()[0], homed()
			ids := w.Submit("s", queues[slow], 1, 0)
			w.Inject(lateClaims(900*time.Millisecond, slow))
			go func() { time.Sleep(100 * time.Millisecond); w.Submit("s", queues[1-slow], 1, 0) }()
			first, err := w.D[0].Fetch(t.Context(), dispatchtest.Ask(collector, "t", 8*time.Second))
			if err != nil || len(first.Tasks) != 1 {
				t.Fatal(first, err)
			}
			again, err := w.D[0].Fetch(t.Context(), dispatchtest.Ask(collector, "t", 8*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			if first.Tasks[0].Task.ID != again.Tasks[0].Task.ID {
				t.Errorf("slow %d: the first call got %v, the repeat %v", slow, first.Tasks[0].Task.ID, again.Tasks[0].Task.ID)
			}
			if task := w.MustTask(ids[0]); task.Lease != nil {
				t.Errorf("slow %d: %v is leased, and nobody has it", slow, task.ID)
			}
		})
	}
}

// TestDispatcher_Fetch_noWaitSlowShard: fetches that do not wait get the tasks of a shard that keeps each claim late, or an error, and
// none is told that there are none.
func TestDispatcher_Fetch_noWaitSlowShard(t *testing.T) {
	t.Parallel()
	inTwoShards(t, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		collector, queues := homed()[0], homed()
		w.Submit("s", queues[1], 5, 0)
		w.Inject(lateClaims(400*time.Millisecond, 1))
		got := 0
		for n := range 20 {
			res, err := w.D[0].Fetch(t.Context(), dispatchtest.Ask(collector, fmt.Sprint(n), 0))
			switch {
			case errors.Is(err, dispatch.ErrStoreUnavailable):
			case err != nil:
				t.Fatal(err)
			case len(res.Tasks) == 0 && got < 5:
				t.Errorf("fetch %d gets nothing, because %v", n, res.Empty)
			default:
				got += len(res.Tasks)
			}
			time.Sleep(time.Second)
		}
		if got != 5 {
			t.Errorf("20 fetches got %d of 5 tasks", got)
		}
	})
}

// TestDispatcher_Fetch_leftClaimFails: a claim that a fetch has left fails while the shard has the grant in memory. When the shard comes
// back, the fetch gets it, and the give-back of before takes nothing from it.
func TestDispatcher_Fetch_leftClaimFails(t *testing.T) {
	t.Parallel()
	inTwoShards(t, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		collector, queues := homed()[0], homed()
		ids := w.Submit("s", queues[1], 1, 0)
		spoil := dispatchtest.On(func(_ context.Context, _ *dispatchtest.Call, ask func() error) error {
			_ = ask()
			time.Sleep(2 * time.Second)
			return dispatch.ErrStoreUnavailable
		}, dispatchtest.Calls("Claim"), dispatchtest.InShard(1), forFetches)
		back := dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("GiveBack"), dispatchtest.InShard(1))
		w.Inject(spoil, back)
		go func() { time.Sleep(2500 * time.Millisecond); w.Heal(spoil); time.Sleep(4 * time.Second); w.Heal(back) }()
		began := time.Now()
		res, err := w.D[0].Fetch(t.Context(), dispatchtest.Ask(collector, "t", 8*time.Second))
		if err != nil || len(res.Tasks) != 1 {
			t.Errorf("%+v, %v after %v", res, err, time.Since(began))
		}
		time.Sleep(20 * time.Second)
		if task := w.MustTask(ids[0]); task.Lease == nil {
			t.Errorf("it was taken back: %+v", task)
		}
	})
}
