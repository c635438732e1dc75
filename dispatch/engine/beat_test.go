package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

func TestDispatcher_Beat(t *testing.T) {
	t.Parallel()
	info := dispatch.CollectorInfo{ID: "c", Session: "s1", Hostname: "h"}

	t.Run("without leases it records the collector", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			res, err := w.D[0].Beat(t.Context(), info, nil)
			if err != nil || res.Next != dispatch.IdleBeat || res.LeaseDuration != 0 || res.Held {
				t.Fatalf("Beat: %+v, %v", res, err)
			}
			list, err := w.Store.ListCollectors(t.Context(), dispatch.CollectorFilter{}, "", 10)
			if err != nil || len(list) != 1 || list[0].Info.Hostname != "h" {
				t.Errorf("collectors: %+v, %v", list, err)
			}
		})
	})

	t.Run("renewals carry leases beyond their deadline", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{Shards: 4}, func(t *testing.T, w *world) {
			w.AddSource("short", func(s *dispatch.SourceSpec) { s.LeaseDuration = 6 * time.Second })
			w.AddSource("long", func(s *dispatch.SourceSpec) { s.LeaseDuration = time.Minute })
			w.Submit("short", "", 5, 0)
			w.Submit("long", "", 5, 0)
			held := w.HoldTasks("c", 10)
			for range 20 {
				res, err := w.D[0].Beat(t.Context(), info, dispatchtest.LeaseBeats(held))
				if err != nil || len(res.Lost) != 0 || len(res.Limited) != 0 {
					t.Fatalf("Beat: %+v, %v", res, err)
				}
				if res.LeaseDuration != 6*time.Second || res.Next != 2*time.Second {
					t.Errorf("lease duration %v, next %v; want 6s, 2s", res.LeaseDuration, res.Next)
				}
				time.Sleep(res.Next)
			}
			for _, g := range held {
				w.Settle(dispatchtest.Success(g))
			}
		})
	})

	t.Run("says which leases are lost and why", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.AddSource("s", func(s *dispatch.SourceSpec) { s.LeaseDuration = 2 * time.Second })
			w.Submit("s", "", 2, 0)
			req := dispatchtest.Ask("c", "", 0)
			req.MaxTasks = 2
			held := w.MustFetch(req).Tasks
			w.Settle(dispatchtest.Success(held[0]))
			time.Sleep(10 * time.Second)
			beats := dispatchtest.LeaseBeats(held)
			other := held[1].Token
			other.Collector = "else"
			unknown := dispatch.NewTaskID(dispatch.Identity{Scope: "no", Queue: "no", Key: "no"})
			beats = append(beats,
				engine.LeaseBeat{ID: held[1].Task.ID, Token: ""},
				engine.LeaseBeat{ID: held[1].Task.ID, Token: other.String()},
				engine.LeaseBeat{ID: held[1].Task.ID, Token: held[1].Token.String()[:5]},
				engine.LeaseBeat{ID: "nonsense", Token: held[1].Token.String()},
				engine.LeaseBeat{ID: unknown, Token: held[1].Token.String()},
			)
			res, err := w.D[0].Beat(t.Context(), info, beats)
			if err != nil {
				t.Fatal(err)
			}
			got := make(map[string]dispatch.LostReason)
			for _, l := range res.Lost {
				got[string(l.ID)+" "+l.Token] = l.Reason
			}
			want := []dispatch.LostReason{
				dispatch.LostReported, dispatch.LostExpired, dispatch.LostMalformed, dispatch.LostMalformed,
				dispatch.LostMalformed, dispatch.LostMalformed, dispatch.LostUnknownTask,
			}
			for i, b := range beats {
				if got[string(b.ID)+" "+b.Token] != want[i] {
					t.Errorf("lease %d: lost by %v, want %v", i, got[string(b.ID)+" "+b.Token], want[i])
				}
			}
			if res.Next != dispatch.IdleBeat {
				t.Errorf("next beat in %v, want %v", res.Next, dispatch.IdleBeat)
			}
		})
	})

	t.Run("a lease that its longest hold or a hold cuts does not shorten the others, and beats follow it", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.AddSource("cut", func(s *dispatch.SourceSpec) { s.LeaseDuration, s.MaxHold = 10*time.Second, 12*time.Second })
			w.AddSource("free", func(s *dispatch.SourceSpec) { s.LeaseDuration = 9 * time.Second })
			cut := w.Submit("cut", "", 1, 0)[0]
			w.Submit("free", "", 1, 0)
			req := dispatchtest.Ask("c", "", 0)
			req.MaxTasks = 2
			held := w.MustFetch(req).Tasks
			time.Sleep(5 * time.Second)
			res, err := w.D[0].Beat(t.Context(), info, dispatchtest.LeaseBeats(held))
			if err != nil || res.LeaseDuration != 9*time.Second || res.Next != 2333*time.Millisecond {
				t.Fatalf("Beat: %+v, %v", res, err)
			}
			if len(res.Limited) != 1 || res.Limited[0] != (engine.LimitedLease{ID: cut, Remaining: 7 * time.Second}) {
				t.Errorf("limited: %+v, want %s to 7s", res.Limited, cut)
			}
			if _, err := w.SetHolds(t.Context(), []dispatch.HoldTarget{{Source: "free"}}, operate.HoldOrder{Effect: dispatch.EndLeases}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second)
			res, err = w.D[0].Beat(t.Context(), info, dispatchtest.LeaseBeats(held))
			if err != nil || res.LeaseDuration != 0 || len(res.Limited) != 2 || res.Next != 1333*time.Millisecond { // 4 s and 6 s are left
				t.Errorf("Beat under a hold: %+v, %v", res, err)
			}
		})
	})

	t.Run("a shard that does not answer costs only its own leases", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{Shards: 2}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			w.Submit("s", "", 20, 0)
			held, in := w.HoldTasks("c", 20), make([]int, 2)
			for _, g := range held {
				in[dispatch.ShardOf(g.Task.ID.Slot(), 2)]++
			}
			w.Inject(dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("Renew"), dispatchtest.InShard(1)))
			time.Sleep(20 * time.Second)
			res, err := w.D[0].Beat(t.Context(), info, dispatchtest.LeaseBeats(held))
			if err != nil || res.LeaseDuration != 30*time.Second || len(res.Limited) != in[1] || res.Next > time.Second {
				t.Fatalf("Beat: %+v, %v; want %d limited", res, err, in[1])
			}
			time.Sleep(15 * time.Second)
			leased, _, err := w.Store.ListLeases(t.Context(), "", 100)
			if err != nil || len(leased) != in[0] {
				t.Errorf("%d leases stand, %v; want %d", len(leased), err, in[0])
			}
			w.Inject(dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("Renew")))
			if _, err := w.D[0].Beat(t.Context(), info, dispatchtest.LeaseBeats(held)); !errors.Is(err, dispatch.ErrStoreUnavailable) {
				t.Errorf("Beat with no shard there: %v, want ErrStoreUnavailable", err)
			}
		})
	})

	t.Run("leases go on when only the presence could not be recorded", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			w.Submit("s", "", 1, 0)
			held := w.MustFetch(dispatchtest.Ask("c", "", 0)).Tasks
			w.Inject(dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("Beat")))
			if res, err := w.D[0].Beat(t.Context(), info, dispatchtest.LeaseBeats(held)); err != nil || res.LeaseDuration != 30*time.Second {
				t.Errorf("Beat: %+v, %v", res, err)
			}
			if _, err := w.D[0].Beat(t.Context(), info, nil); !errors.Is(err, dispatch.ErrStoreUnavailable) {
				t.Errorf("Beat without leases: %v, want ErrStoreUnavailable", err)
			}
		})
	})

	t.Run("a newer session replaces the older one and its leases", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{Shards: 2}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			w.Submit("s", "", 4, 0)
			held := w.HoldTasks("c", 4)
			newer := info
			newer.Session = "s2"
			if _, err := w.D[0].Beat(t.Context(), newer, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := w.D[0].Beat(t.Context(), info, dispatchtest.LeaseBeats(held)); !errors.Is(err, dispatch.ErrCollectorReplaced) {
				t.Errorf("Beat of the older session: %v, want ErrCollectorReplaced", err)
			}
			for range 4 {
				if g := w.MustFetch(dispatchtest.Ask("d", "", 0)).Tasks[0]; g.Task.Counters.Expirations != 1 {
					t.Errorf("expirations %d, want 1", g.Task.Counters.Expirations)
				}
			}
		})
	})

	for name, c := range map[string]struct {
		takes    time.Duration // to record the beat
		replaced bool          // is what the older session is told
		extended bool          // is its lease
	}{
		"a replaced session extends no lease":                          {100 * time.Millisecond, true, false},
		"a session is replaced while it renews":                        {time.Second, true, true},
		"leases go on when the presence hangs":                         {time.Minute, false, true},
		"a replaced session whose presence comes too late is not told": {4500 * time.Millisecond, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
				w.AddSource("s", nil)
				w.Submit("s", "", 1, 0)
				held := w.HoldTasks("c", 1)
				// The newer session comes by another way than a beat, which would end the
				// older one's leases at once.
				newer := info
				newer.Session = "s2"
				if _, err := w.Store.Beat(t.Context(), newer); err != nil {
					t.Fatal(err)
				}
				w.Inject(dispatchtest.Delay(c.takes, dispatchtest.Calls("Beat")))
				began := time.Now()
				res, err := w.D[0].Beat(t.Context(), info, dispatchtest.LeaseBeats(held))
				if c.replaced != errors.Is(err, dispatch.ErrCollectorReplaced) || !c.replaced && (err != nil || res.LeaseDuration != 30*time.Second) {
					t.Errorf("Beat of the older session: %+v, %v; replaced should be %v", res, err, c.replaced)
				}
				if task := w.MustTask(held[0].Task.ID); task.Lease == nil || task.Lease.Deadline.After(held[0].Task.Lease.Deadline) != c.extended {
					t.Errorf("the lease %+v was extended to %+v; should it be? %v", held[0].Task.Lease, task.Lease, c.extended)
				}
				if took := time.Since(began); took > 4*time.Second {
					t.Errorf("Beat took %v, longer than the collector waits", took)
				}
				time.Sleep(time.Minute) // what hangs ends
			})
		})
	}

	t.Run("tells of a cancel", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			ids := w.Submit("s", "", 1, 0)
			held := w.MustFetch(dispatchtest.Ask("c", "", 0)).Tasks
			if err := w.Store.RequestCancel(t.Context(), ids, dispatch.CancelTask, nil); err != nil {
				t.Fatal(err)
			}
			res, err := w.D[0].Beat(t.Context(), info, dispatchtest.LeaseBeats(held))
			if err != nil || len(res.Cancel) != 1 || res.Cancel[0].Reason != dispatch.CancelTask || len(res.Lost) != 0 {
				t.Errorf("Beat: %+v, %v", res, err)
			}
		})
	})
}
