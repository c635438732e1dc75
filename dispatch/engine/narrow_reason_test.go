package engine_test

import (
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// A fetch that is narrowed to sources or queues is told why it got nothing of these, whatever
// goes on in the others of its pool.
func TestDispatcher_Fetch_narrowedReason(t *testing.T) {
	t.Parallel()
	in := func(d time.Duration) time.Time { return time.Now().Add(d) }
	for name, c := range map[string]struct {
		source, queue string
		do            func(w *world)
		want          engine.EmptyReason
	}{
		"a source without tasks":           {source: "idle", want: engine.EmptyNoTasks},
		"a queue without tasks":            {queue: "idle.example", want: engine.EmptyNoTasks},
		"a source whose queue rests":       {source: "s", want: engine.EmptyThrottled},
		"a queue that rests":               {queue: "a.example", want: engine.EmptyThrottled},
		"a held source":                    {source: "s", do: func(w *world) { w.SetHold(dispatch.HoldTarget{Source: "s"}, time.Time{}) }, want: engine.EmptyHeld},
		"a source held for an hour":        {source: "s", do: func(w *world) { w.SetHold(dispatch.HoldTarget{Source: "s"}, in(time.Hour)) }, want: engine.EmptyHeld},
		"a held queue":                     {queue: "a.example", do: func(w *world) { w.SetHold(dispatch.HoldTarget{Queue: "*.example"}, time.Time{}) }, want: engine.EmptyHeld},
		"a queue held for an hour":         {queue: "a.example", do: func(w *world) { w.SetHold(dispatch.HoldTarget{Queue: "a.example"}, in(time.Hour)) }, want: engine.EmptyHeld},
		"a source whose queue is held":     {source: "s", do: func(w *world) { w.SetHold(dispatch.HoldTarget{Queue: "a.example"}, in(time.Hour)) }, want: engine.EmptyHeld},
		"everything is held":               {source: "s", do: func(w *world) { w.SetHold(dispatch.HoldTarget{Everything: true}, in(time.Hour)) }, want: engine.EmptyHeld},
		"another source of the pool, held": {source: "idle", do: func(w *world) { w.SetHold(dispatch.HoldTarget{Source: "s"}, time.Time{}) }, want: engine.EmptyNoTasks},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{MinDelay: time.Minute, InFlight: 9}, func(t *testing.T, w *world) {
				w.AddSource("s", nil)
				w.AddSource("idle", nil)
				w.Submit("s", "a.example", 2, 0)
				w.MustFetch(dispatchtest.Ask("c", "", 0)) // the queue rests for a minute
				if c.do != nil {
					c.do(w)
				}
				req := dispatchtest.Ask("c", "", 0)
				if c.source != "" {
					req.Sources = []string{c.source}
				}
				if c.queue != "" {
					req.Queues = []string{c.queue}
				}
				for _, wait := range []time.Duration{0, 2 * time.Second} {
					req.Wait, req.ClientToken = wait, ""
					res, err := w.D[0].Fetch(t.Context(), req)
					if err != nil || len(res.Tasks) != 0 || res.Empty != c.want {
						t.Errorf("wait %v: %+v, %v; want reason %d", wait, res, err, c.want)
					}
				}
			})
		})
	}
}
