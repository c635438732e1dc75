package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// askFor is a fetch of that many tasks.
func askFor(n int, token string, wait time.Duration) engine.FetchRequest {
	req := dispatchtest.Ask("c1", token, wait)
	req.MaxTasks = n
	return req
}

// idsOf are the tasks of grants.
func idsOf(grants []dispatch.Grant) map[dispatch.TaskID]bool {
	ids := make(map[dispatch.TaskID]bool, len(grants))
	for i := range grants {
		ids[grants[i].Task.ID] = true
	}
	return ids
}

// TestDispatcher_Fetch_fills: a fetch gets as many tasks as it asks for if all shards together have them, one that waits as well as one that
// does not; and a repeat gets the same (P7).
func TestDispatcher_Fetch_fills(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{0, 10 * time.Second} {
		inWorld(t, dispatchtest.Setup{Shards: 4}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			w.Submit("s", "", 40, 0)
			time.Sleep(time.Second)
			all := make(map[dispatch.TaskID]bool)
			for n, want := range []int{25, 15} {
				token := string(rune('a' + n))
				first := w.MustFetch(askFor(25, token, wait))
				again := w.MustFetch(askFor(25, token, wait))
				if got := idsOf(first.Tasks); len(got) != want || len(again.Tasks) != want {
					t.Errorf("wait %v: fetch %d got %d tasks, the repeat %d, want %d", wait, n, len(got), len(again.Tasks), want)
				}
				for _, g := range again.Tasks {
					if !idsOf(first.Tasks)[g.Task.ID] {
						t.Errorf("wait %v: the repeat got %s, which the first did not", wait, g.Task.ID)
					}
				}
				for id := range idsOf(first.Tasks) {
					if all[id] {
						t.Errorf("%s was granted twice", id)
					}
					all[id] = true
				}
			}
		})
	}
}

// TestDispatcher_Fetch_fillsBytes: the limit on bytes is for the tasks of all shards together.
func TestDispatcher_Fetch_fillsBytes(t *testing.T) {
	t.Parallel()
	inTwoShards(t, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		for _, queue := range homed() {
			for n := range 4 {
				w.MustSubmit(engine.NewTask{SourceID: "s", Key: string(rune('a' + n)), Queue: queue, Payload: make([]byte, 10_000)})
			}
		}
		time.Sleep(time.Second)
		for _, c := range []struct{ bytes, want int }{{5_000, 1}, {15_000, 1}, {65_000, 6}} {
			req := askFor(100, "", 0)
			req.MaxBytes = c.bytes
			if got := len(w.MustFetch(req).Tasks); got != c.want {
				t.Errorf("%d of at most %d bytes; want %d", got, c.bytes, c.want)
			}
		}
	})
}

// TestDispatcher_Fetch_fillsNoLonger: a shard that is slow, or fails, takes nothing from what another one has granted, and delays it for a
// moment only. What it grants nobody gets is free again.
func TestDispatcher_Fetch_fillsNoLonger(t *testing.T) {
	t.Parallel()
	late := lateClaims(2*time.Second, 1)
	failing := dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("Claim"), dispatchtest.InShard(1), forFetches)
	for name, fault := range map[string]*dispatchtest.Fault{"late": late, "fails": failing} {
		inTwoShards(t, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			queues := homed()
			w.Inject(dispatchtest.Delay(50*time.Millisecond, dispatchtest.Calls("Claim"), dispatchtest.InShard(0)))
			fetched := w.GoFetch(t.Context(), 0, askFor(10, "", 10*time.Second)) // it waits, so that it is the first shard that grants
			synctest.Wait()
			w.Inject(fault)
			w.Submit("s", queues[0], 3, 0)
			other := w.Submit("s", queues[1], 3, 0)
			began := time.Now()
			a := <-fetched
			if a.Err != nil || len(a.Res.Tasks) < 3 || time.Since(began) > time.Second {
				t.Fatalf("%s: %+v, %v after %v; want the tasks of the first shard", name, a.Res, a.Err, time.Since(began))
			}
			time.Sleep(10 * time.Second)
			w.Heal()
			time.Sleep(2 * time.Second)
			if got := idsOf(w.MustFetch(askFor(10, "", 10*time.Second)).Tasks); len(got) != 3 || !got[other[0]] {
				t.Errorf("%s: then %v; want those of the second shard", name, got)
			}
		})
	}
}

// TestDispatcher_Fetch_fillsGone: the caller goes while a second shard is asked. Tasks of both are free again, and no attempt is spent.
func TestDispatcher_Fetch_fillsGone(t *testing.T) {
	t.Parallel()
	for _, gone := range []time.Duration{50 * time.Millisecond, 150 * time.Millisecond, 250 * time.Millisecond} {
		inTwoShards(t, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			for _, queue := range homed() {
				w.Submit("s", queue, 1, 0)
			}
			time.Sleep(time.Second)
			w.Inject(dispatchtest.Delay(100*time.Millisecond, dispatchtest.Calls("Claim"), forFetches))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			fetched := w.GoFetch(ctx, 0, askFor(10, "", 10*time.Second))
			time.Sleep(gone)
			cancel()
			if a := <-fetched; a.Err == nil && len(a.Res.Tasks) == 2 {
				return // it was there in time
			} else if !errors.Is(a.Err, context.Canceled) {
				t.Errorf("gone after %v: %+v, %v; want context.Canceled", gone, a.Res, a.Err)
			}
			w.Heal()
			time.Sleep(2 * time.Second)
			got := w.MustFetch(askFor(10, "", 10*time.Second)).Tasks
			if len(got) != 2 || got[0].Task.Counters.Attempt != 1 || got[1].Task.Counters.Attempt != 1 {
				t.Errorf("gone after %v: then %+v; want both tasks, for the first time", gone, got)
			}
		})
	}
}

// TestStanding_fillsGone: a fetch that waits without a goroutine is left while a second shard is asked.
func TestStanding_fillsGone(t *testing.T) {
	t.Parallel()
	inTwoShards(t, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		if _, err := w.D[0].Fetch(t.Context(), askFor(1, "first", 0)); err != nil { // the session is known
			t.Fatal(err)
		}
		for _, queue := range homed() {
			w.Submit("s", queue, 1, 0)
		}
		time.Sleep(time.Second)
		w.Inject(dispatchtest.Delay(100*time.Millisecond, dispatchtest.Calls("Claim"), forFetches))
		standing, err := w.D[0].Prepare(t.Context(), askFor(10, "second", 0))
		if standing == nil {
			t.Fatal("it cannot stand: ", err)
		}
		answered, gone := make(chan struct{}), errors.New("the caller is gone")
		standing.Stand(func() { close(answered) })
		time.Sleep(150 * time.Millisecond)
		standing.Leave(gone)
		<-answered
		if !standing.Answered() {
			t.Error("it was left before the first shard had granted something")
		}
		if res, err := standing.Result(t.Context()); !errors.Is(err, gone) {
			t.Errorf("%+v, %v; want why it was left", res, err)
		}
		w.Heal()
		time.Sleep(2 * time.Second)
		got := w.MustFetch(askFor(10, "third", 10*time.Second)).Tasks
		if len(got) != 2 || got[0].Task.Counters.Attempt != 1 || got[1].Task.Counters.Attempt != 1 {
			t.Errorf("then %+v; want both tasks, for the first time", got)
		}
	})
}

// aFill selects claims of a shard for fetches of fewer tasks than ten: those that have something already.
func aFill(shard int) dispatchtest.Match {
	return func(c *dispatchtest.Call) bool {
		return len(c.Wants) > 0 && c.Wants[0].Max < 10 && c.Shards[0] == shard
	}
}

// fillFrom has a fetch of ten wait for the second shard when the first has granted it three, of three in each.
func fillFrom(t *testing.T, w *world, second *dispatchtest.Fault) <-chan dispatchtest.Answer {
	t.Helper()
	w.AddSource("s", nil)
	w.Inject(dispatchtest.Delay(20*time.Millisecond, dispatchtest.Calls("Claim"), dispatchtest.InShard(0)))
	fetched := w.GoFetch(t.Context(), 0, askFor(10, "first", 10*time.Second))
	synctest.Wait()
	w.Inject(second)
	for _, queue := range homed() {
		w.Submit("s", queue, 3, 0)
	}
	return fetched
}

// TestDispatcher_Fetch_fillsLost: the answer of the second shard is lost. What it has granted is free again, since the fetch was answered and
// is not repeated.
func TestDispatcher_Fetch_fillsLost(t *testing.T) {
	t.Parallel()
	inTwoShards(t, func(t *testing.T, w *world) {
		a := <-fillFrom(t, w, dispatchtest.Spoil(dispatch.ErrStoreUnavailable, dispatchtest.Calls("Claim"), aFill(1)))
		w.Heal()
		time.Sleep(2 * time.Second)
		rest := w.MustFetch(askFor(10, "second", 10*time.Second))
		if a.Err != nil || len(a.Res.Tasks) != 3 || len(rest.Tasks) != 3 {
			t.Errorf("%+v, %v, then %d tasks; want three each", a.Res, a.Err, len(rest.Tasks))
		}
	})
}

// TestDispatcher_Fetch_fillsRepeated: a repeat comes while the second shard is asked. It gets what the first call gets, and the rest is free.
func TestDispatcher_Fetch_fillsRepeated(t *testing.T) {
	t.Parallel()
	inTwoShards(t, func(t *testing.T, w *world) {
		fetched := fillFrom(t, w, dispatchtest.Delay(200*time.Millisecond, dispatchtest.Calls("Claim"), aFill(1)))
		time.Sleep(100 * time.Millisecond)
		again := w.MustFetch(askFor(10, "first", 10*time.Second))
		a := <-fetched
		w.Heal()
		time.Sleep(2 * time.Second)
		rest := w.MustFetch(askFor(10, "second", 0))
		if a.Err != nil || len(a.Res.Tasks) != 3 || len(again.Tasks) != 3 || len(rest.Tasks) != 3 {
			t.Errorf("%+v, %v, the repeat %d tasks, then %d; want three each", a.Res, a.Err, len(again.Tasks), len(rest.Tasks))
		}
	})
}
