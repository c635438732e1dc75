package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// TestDispatcher_OpenStream holds that cancels, holds and ends of sessions come to the stream of a collector at once, without a beat.
func TestDispatcher_OpenStream(t *testing.T) {
	t.Parallel()
	info := dispatch.CollectorInfo{ID: "c", Session: "s1", Labels: dispatchtest.European}
	for name, test := range map[string]struct {
		do   func(t *testing.T, w *world, held []dispatch.Grant)
		want func(p engine.Push, held []dispatch.Grant) bool
	}{
		"a cancel": {
			do: func(t *testing.T, w *world, held []dispatch.Grant) {
				if _, err := w.O[0].CancelTasks(t.Context(), operate.TaskEdit{IDs: []dispatch.TaskID{held[0].Task.ID, held[1].Task.ID}, Note: dispatch.Note{By: "ada"}}); err != nil {
					t.Error(err)
				}
			},
			want: func(p engine.Push, held []dispatch.Grant) bool {
				return len(p.Cancel) == 2 && p.Cancel[0] == engine.CancelNotice{ID: held[0].Task.ID, Reason: dispatch.CancelTask} && !p.Held && !p.Replaced
			},
		},
		"a deleted source": {
			do: func(t *testing.T, w *world, _ []dispatch.Grant) {
				if err := w.O[0].DeleteSource(t.Context(), "s", dispatch.Note{}); err != nil {
					t.Error(err)
				}
			},
			want: func(p engine.Push, _ []dispatch.Grant) bool {
				return len(p.Cancel) == 2 && p.Cancel[0].Reason == dispatch.CancelSourceDeleted
			},
		},
		"a hold by id": {do: func(_ *testing.T, w *world, _ []dispatch.Grant) {
			w.SetHold(dispatch.HoldTarget{Collector: "c", Labels: nil}, time.Time{})
		}, want: isHeld},
		"a hold by labels": {do: func(_ *testing.T, w *world, _ []dispatch.Grant) {
			w.SetHold(dispatch.HoldTarget{Collector: "", Labels: dispatchtest.European}, time.Time{})
		}, want: isHeld},
		"a newer session": {
			do: func(t *testing.T, w *world, _ []dispatch.Grant) {
				newer := info
				newer.Session = "s2"
				if _, err := w.D[0].Beat(t.Context(), newer, nil); err != nil {
					t.Error(err)
				}
			},
			want: func(p engine.Push, _ []dispatch.Grant) bool { return p.Replaced },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{Shards: 2}, func(t *testing.T, w *world) {
				w.AddSource("s", nil)
				w.Submit("s", "", 2, 0)
				held := w.HoldTasks("c", 2)
				mine, other := w.D[0].OpenStream(info), w.D[0].OpenStream(dispatch.CollectorInfo{ID: "other", Session: "s1"})
				defer mine.Close()
				defer other.Close()
				test.do(t, w, held)
				synctest.Wait()
				select {
				case <-mine.Ready():
					if p := mine.Take(); !test.want(p, held) {
						t.Errorf("pushed %+v", p)
					}
				default:
					t.Error("nothing is pushed")
				}
				select {
				case <-other.Ready():
					t.Errorf("pushed to another collector: %+v", other.Take())
				default:
				}
			})
		})
	}
}

func isHeld(p engine.Push, _ []dispatch.Grant) bool { return p.Held }

// A hold that is lifted is pushed, too.
func TestDispatcher_OpenStream_lifted(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		stream := w.D[0].OpenStream(dispatch.CollectorInfo{ID: "c", Session: "s1"})
		w.SetHold(dispatch.HoldTarget{Collector: "c", Labels: nil}, time.Time{})
		synctest.Wait()
		<-stream.Ready()
		if p := stream.Take(); !p.Held {
			t.Errorf("pushed %+v, want that it is held", p)
		}
		w.LiftHold(dispatch.HoldTarget{Collector: "c", Labels: nil})
		synctest.Wait()
		<-stream.Ready()
		if p := stream.Take(); p.Held {
			t.Errorf("pushed %+v, want that it is no longer held", p)
		}
		stream.Close()
		w.SetHold(dispatch.HoldTarget{Collector: "c", Labels: nil}, time.Time{})
		synctest.Wait()
		select {
		case <-stream.Ready():
			t.Error("a closed stream is told")
		default:
		}
	})
}
