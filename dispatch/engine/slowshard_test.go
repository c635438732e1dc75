package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
)

// TestDispatcher_Fetch_repeatOfLeft: a repeat of a fetch that has left a slow shard gets the leases that it was answered with (P7), and what the
// slow shard has granted it is given back.
func TestDispatcher_Fetch_repeatOfLeft(t *testing.T) {
	t.Parallel()
	for slow := range 2 {
		inTwoShards(t, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			collector, queues := homed()[0], homed()
			ids := w.Submit("s", queues[slow], 1, 0)
			claims := func(c *dispatchtest.Call) bool { return len(c.Wants) > 0 }
			w.Inject(dispatchtest.Late(900*time.Millisecond, dispatchtest.Calls("Claim"), dispatchtest.InShard(slow), claims))
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

// TestDispatcher_Fetch_noWaitSlowShard: fetches that do not wait get the tasks of a shard that keeps each claim late, or an error, and none is told
// that there are none.
func TestDispatcher_Fetch_noWaitSlowShard(t *testing.T) {
	t.Parallel()
	inTwoShards(t, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		collector, queues := homed()[0], homed()
		w.Submit("s", queues[1], 5, 0)
		claims := func(c *dispatchtest.Call) bool { return len(c.Wants) > 0 }
		w.Inject(dispatchtest.Late(400*time.Millisecond, dispatchtest.Calls("Claim"), dispatchtest.InShard(1), claims))
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

// TestDispatcher_Fetch_leftClaimFails: a claim that a fetch has left fails while the shard has the grant in memory. When the shard comes back, the
// fetch gets it, and the give-back of before takes nothing from it.
func TestDispatcher_Fetch_leftClaimFails(t *testing.T) {
	t.Parallel()
	inTwoShards(t, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		collector, queues := homed()[0], homed()
		ids := w.Submit("s", queues[1], 1, 0)
		claims := func(c *dispatchtest.Call) bool { return len(c.Wants) > 0 }
		spoil := dispatchtest.On(func(_ context.Context, _ *dispatchtest.Call, ask func() error) error {
			_ = ask()
			time.Sleep(2 * time.Second)
			return dispatch.ErrStoreUnavailable
		}, dispatchtest.Calls("Claim"), dispatchtest.InShard(1), claims)
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
