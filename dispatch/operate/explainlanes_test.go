package operate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// Tasks that were submitted are looked at beside the seeds.
func TestDispatcher_ExplainSource_tasks(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		want := func(note string, kinds ...dispatch.GateKind) {
			t.Helper()
			e, err := w.ExplainSource(ctx, "s")
			if got := holds(t, e, err); !slices.Equal(got, kinds) {
				t.Errorf("held by %v, want %v", got, kinds)
			}
			if got := strings.Join(e.Notes, "\n"); got != note {
				t.Errorf("noted %q, want %q", got, note)
			}
		}
		w.beats("c", dispatch.DefaultPool, false)
		w.Create("s", nil)
		want("", dispatch.GateNoSeeds)
		w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/later", Due: time.Now().Add(time.Hour)})
		want("", dispatch.GateNotDue)
		w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/1"}, engine.NewTask{SourceID: "s", URL: "http://a.example/2"})
		want("queue a.example: 2 tasks due, not held")
		w.SetHold(dispatch.HoldTarget{Queue: "a.example"}, time.Time{})
		want("queue a.example: 2 tasks due, held by QUEUE_HELD", dispatch.GateQueueHeld)

		spec := dispatch.SourceSpec{Seeds: dispatchtest.Seeds("http://b.example/"), Schedule: dispatch.Schedule{Every: time.Hour}}
		if _, _, err := w.UpdateSource(ctx, "s", 0, func(s *dispatch.SourceSpec) error {
			s.Seeds, s.Schedule = spec.Seeds, spec.Schedule
			return nil
		}, false); err != nil {
			t.Fatal(err)
		}
		g := w.TakeOne()
		want("queue a.example: 2 tasks due, held by QUEUE_HELD", dispatch.GateQueueHeld, dispatch.GateLeased)
		w.Succeed(g)
		time.Sleep(time.Minute)
		w.beats("c", dispatch.DefaultPool, false)
		want("queue a.example: 2 tasks due, held by QUEUE_HELD", dispatch.GateQueueHeld, dispatch.GateNotDue)

		for n := range 8 {
			w.MustSubmit(engine.NewTask{SourceID: "s", URL: fmt.Sprintf("http://more%d.example/", n)})
		}
		e, err := w.ExplainSource(ctx, "s")
		if err != nil || len(e.Notes) != 6 || e.Notes[5] != "4 more queues with due tasks" {
			t.Errorf("noted %q, %v", e.Notes, err)
		}
	})
}

// What holds the sources of a queue's tasks is told of the queue.
func TestDispatcher_ExplainQueue_sources(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.beats("c", dispatch.DefaultPool, false)
		w.Create("s", nil)
		w.Create("gone", nil)
		w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/1"}, engine.NewTask{SourceID: "gone", URL: "http://a.example/2"})
		e, err := w.ExplainQueue(ctx, "a.example")
		if got := holds(t, e, err); len(got) != 0 || len(e.Notes) != 0 {
			t.Errorf("held by %v, %q", got, e.Notes)
		}
		w.SetHold(dispatch.HoldTarget{Source: "s"}, time.Time{})
		e, err = w.ExplainQueue(ctx, "a.example")
		if got := holds(t, e, err); !slices.Equal(got, []dispatch.GateKind{dispatch.GateSourceHeld}) || e.Holds[0].Name != "s" {
			t.Errorf("held by %+v", e.Holds)
		}
		if want := []string{"source s: 1 task due, held by SOURCE_HELD", "source gone: 1 task due, not held"}; !slices.Equal(e.Notes, want) {
			t.Errorf("noted %q", e.Notes)
		}
		w.narrowed("c", []string{"s"}, nil)
		e, err = w.ExplainQueue(ctx, "a.example")
		if got := holds(t, e, err); !slices.Equal(got, []dispatch.GateKind{dispatch.GateSourceHeld, dispatch.GateNoCollector}) || e.Holds[1].Name != "gone" {
			t.Errorf("held by %+v", e.Holds)
		}
		w.narrowed("c", nil, []string{"b.example"})
		e, err = w.ExplainQueue(ctx, "a.example")
		if got := holds(t, e, err); !slices.Equal(got, []dispatch.GateKind{dispatch.GateNoCollector, dispatch.GateSourceHeld}) || e.Holds[0].Of != operate.HeldQueue {
			t.Errorf("held by %+v", e.Holds)
		}
	})
}

// What holds the tasks of one pool is told of no others.
func TestDispatcher_ExplainQueue_pools(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.beats("c", dispatch.DefaultPool, false)
		w.Create("br", func(s *dispatch.SourceSpec) { s.Pool = "browser" })
		w.Create("sub", nil)
		w.MustSubmit(engine.NewTask{SourceID: "br", URL: "http://a.example/1"},
			engine.NewTask{SourceID: "sub", URL: "http://a.example/2"}, engine.NewTask{SourceID: "sub", URL: "http://a.example/3"})
		want := func(of string, kinds ...dispatch.GateKind) {
			t.Helper()
			e, err := w.ExplainQueue(ctx, "a.example")
			if got := holds(t, e, err); !slices.Equal(got, kinds) || e.Holds[0].Of != operate.HeldPool || e.Holds[0].Name != "browser" {
				t.Errorf("held by %+v", e.Holds)
			}
			if len(e.Notes) != 2 || !slices.Contains(e.Notes, "source br of pool browser: 1 task due, held by NO_COLLECTOR") || !slices.Contains(e.Notes, of) {
				t.Errorf("noted %q, want %q", e.Notes, of)
			}
		}
		want("source sub of pool default: 2 tasks due, not held", dispatch.GateNoCollector)
		w.SetHold(dispatch.HoldTarget{Source: "sub"}, time.Time{})
		want("source sub of pool default: 2 tasks due, held by SOURCE_HELD", dispatch.GateNoCollector, dispatch.GateSourceHeld)
	})
}

// What is not looked into is told, whether those that were are held or not.
func TestDispatcher_ExplainQueue_manySources(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.beats("c", dispatch.DefaultPool, false)
		add := func(from, to int) {
			t.Helper()
			for i := from; i < to; i++ {
				id := fmt.Sprintf("s%03d", i)
				w.Create(id, nil)
				w.MustSubmit(engine.NewTask{SourceID: id, URL: fmt.Sprintf("http://a.example/%d", i)})
			}
		}
		notes := func() string {
			t.Helper()
			e, err := w.ExplainQueue(ctx, "a.example")
			if got := holds(t, e, err); len(got) != 0 {
				t.Errorf("held by %v", got)
			}
			return strings.Join(e.Notes, "\n")
		}
		add(0, 5)
		if got := notes(); got != "" {
			t.Errorf("of five that are not held, noted %q", got)
		}
		add(5, 7)
		first := notes()
		for i := range 7 {
			id := fmt.Sprintf("s%03d", i)
			if strings.Contains(first, id) {
				continue
			}
			w.SetHold(dispatch.HoldTarget{Source: id}, time.Time{})
		}
		if got := notes(); strings.Count(got, ": 1 task due, not held\n") != 5 || !strings.HasSuffix(got, "\n2 more sources with due tasks") {
			t.Errorf("noted %q", got)
		}
		add(7, bounds.MaxLaneLooks+3)
		if got := notes(); !strings.HasSuffix(got, "\n3 more sources not searched for due tasks") {
			t.Errorf("noted %q", got)
		}
	})
}
