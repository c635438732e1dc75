package dispatch_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

func TestDispatcher_Fetch_sessions(t *testing.T) {
	t.Parallel()

	for _, heard := range []bool{true, false} {
		t.Run(fmt.Sprintf("a parked fetch of an older session wins nothing, hint heard: %t", heard), func(t *testing.T) {
			t.Parallel()
			inWorld(t, setup{dispatchers: 2, shards: 2}, func(t *testing.T, w *world) {
				w.source("s", nil)
				for _, s := range w.spies {
					s.set(func(s *spy) { s.dumb = !heard })
				}
				w.submit("s", "held", 1, 0)
				held := w.mustFetch(ask("c", "", 0)).Tasks[0]
				zombie := w.fetch(t.Context(), 1, ask("c", "old", bounds.MaxWait))
				synctest.Wait()
				req := ask("c", "new", bounds.MaxWait)
				req.Session = "s2"
				began := time.Now()
				// The lease of the old session is ended, and its task is handed
				// to the new one.
				res, err := w.d[0].Fetch(t.Context(), req)
				if err != nil || len(res.Tasks) != 1 || res.Tasks[0].Task.ID != held.Task.ID {
					t.Fatalf("Fetch of the new session: %+v, %v", res, err)
				}
				if took := time.Since(began); took > 1100*time.Millisecond {
					t.Errorf("the held task went to the new session after %v", took)
				}
				if e := res.Tasks[0].Task.Counters.Expirations; e != 1 {
					t.Errorf("expirations %d, want 1", e)
				}
				fresh := w.submit("s", "", 1, 0)[0]
				if a := <-zombie; !errors.Is(a.err, dispatch.ErrCollectorReplaced) {
					t.Errorf("fetch of the old session: %+v, %v; want ErrCollectorReplaced", a.res, a.err)
				}
				if got := w.mustFetch(ask("other", "", 0)).Tasks[0].Task.ID; got != fresh {
					t.Errorf("fetched %s, want %s", got, fresh)
				}
				if _, err := w.d[1].Fetch(t.Context(), ask("c", "", 0)); !errors.Is(err, dispatch.ErrCollectorReplaced) {
					t.Errorf("later fetch of the old session: %v, want ErrCollectorReplaced", err)
				}
			})
		})
	}

	t.Run("parked fetches of an older session end at once, at every dispatcher", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{dispatchers: 2}, func(t *testing.T, w *world) {
			w.source("s", nil)
			var zombies []<-chan answer
			for i := range w.d {
				zombies = append(zombies, w.fetch(t.Context(), i, ask("c", fmt.Sprintf("old%d", i), bounds.MaxWait)))
			}
			synctest.Wait()
			began := time.Now()
			// Nothing comes that they could take.
			if _, err := w.d[0].Beat(t.Context(), dispatch.CollectorInfo{ID: "c", Session: "s2"}, nil); err != nil {
				t.Fatal(err)
			}
			for i, zombie := range zombies {
				if a := <-zombie; !errors.Is(a.err, dispatch.ErrCollectorReplaced) || a.at.Sub(began) > 10*time.Millisecond {
					t.Errorf("fetch at dispatcher %d: %v after %v; want ErrCollectorReplaced at once", i, a.err, a.at.Sub(began))
				}
			}
		})
	})

	t.Run("the news of a session that was replaced meanwhile ends no fetch of the one that did it", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			w.source("s", nil)
			req := ask("c", "", bounds.MaxWait)
			req.Session = "s3"
			parked := w.fetch(t.Context(), 0, req)
			synctest.Wait()
			if err := w.store.Publish(t.Context(), dispatch.Hint{Kind: dispatch.HintSession, ID: "c", Session: "s2"}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			w.submit("s", "", 1, 0)
			if a := <-parked; a.err != nil || len(a.res.Tasks) != 1 {
				t.Errorf("%+v, %v; want the task", a.res, a.err)
			}
		})
	})

	t.Run("leases are ended in the background when shards were in trouble", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{shards: 4}, func(t *testing.T, w *world) {
			w.source("s", nil)
			w.submit("s", "", 20, 0)
			held := 0
			for held < 20 {
				req := ask("c", "", 0)
				req.MaxTasks = 20
				held += len(w.mustFetch(req).Tasks)
			}
			home := dispatch.ShardOf(dispatch.SlotOf("c"), 4)
			w.spies[0].set(func(s *spy) {
				s.failPart = func(shard int) error {
					if shard != home {
						return dispatch.ErrStoreUnavailable
					}
					return nil
				}
			})
			info := dispatch.CollectorInfo{ID: "c", Session: "s2"}
			if _, err := w.d[0].Beat(t.Context(), info, nil); err != nil {
				t.Fatal(err)
			}
			w.spies[0].set(func(s *spy) { s.failPart = nil })
			time.Sleep(5 * time.Second)
			leased, _, err := w.store.ListLeases(t.Context(), "", 100)
			if err != nil || len(leased) != 0 {
				t.Errorf("%d of %d leases of the old session stand, %v", len(leased), held, err)
			}
		})
	})

	t.Run("the end of older sessions that is tried again leaves a newer one alone", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{shards: 4}, func(t *testing.T, w *world) {
			w.source("s", nil)
			w.submit("s", "", 20, 0)
			w.knownAt(0, "c")
			w.spies[0].set(func(s *spy) { s.failPart = func(int) error { return dispatch.ErrStoreUnavailable } })
			if _, err := w.d[0].Beat(t.Context(), dispatch.CollectorInfo{ID: "c", Session: "s2"}, nil); err != nil {
				t.Fatal(err)
			}
			w.spies[0].set(func(s *spy) { s.failPart = nil })
			for held := 0; held < 19; { // knownAt has one, which ends
				req := ask("c", "", 0)
				req.Session, req.MaxTasks = "s3", 20
				held += len(w.mustFetch(req).Tasks)
			}
			time.Sleep(5 * time.Second)
			leased, _, err := w.store.ListLeases(t.Context(), "", 100)
			if err != nil || len(leased) < 19 {
				t.Errorf("%d leases of the newest session stand, %v; want 19 or more", len(leased), err)
			}
		})
	})
}
