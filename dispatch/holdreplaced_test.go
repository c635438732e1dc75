package dispatch_test

import (
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Whoever sets what somebody has set already is told whose it was, and until when:
// nothing else tells of it any more.
func TestDispatcher_replaced(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.create("s", nil)
		for what, set := range map[string]func(dispatch.Gate) (*dispatch.Gate, error){
			"block": func(g dispatch.Gate) (*dispatch.Gate, error) {
				q, err := w.HoldQueue(ctx, "a.example", dispatch.HoldBlock, g)
				return q.Replaced, err
			},
			"pause of a queue": func(g dispatch.Gate) (*dispatch.Gate, error) {
				q, err := w.HoldQueue(ctx, "a.example", dispatch.HoldPause, g)
				return q.Replaced, err
			},
			"pause of a pool": func(g dispatch.Gate) (*dispatch.Gate, error) {
				p, err := w.PausePool(ctx, dispatch.DefaultPool, g)
				return p.Replaced, err
			},
			"pause of a source": func(g dispatch.Gate) (*dispatch.Gate, error) {
				replaced, _, err := w.PauseSource(ctx, "s", g)
				return replaced, err
			},
			"drain": func(g dispatch.Gate) (*dispatch.Gate, error) {
				_, replaced, err := w.DrainCollectors(ctx, dispatch.HoldTarget{Collector: "c"}, g, false)
				return replaced, err
			},
			"drain by labels": func(g dispatch.Gate) (*dispatch.Gate, error) {
				_, replaced, err := w.DrainCollectors(ctx, dispatch.HoldTarget{Labels: map[string]string{"region": "eu"}}, g, false)
				return replaced, err
			},
		} {
			first := dispatch.Gate{By: "ada", Reason: "they asked", Until: time.Now().Add(2 * time.Hour)}
			second := dispatch.Gate{By: "bob", Until: time.Now().Add(time.Minute)}
			third := dispatch.Gate{By: "cleo", Until: time.Now().Add(time.Hour)}
			wants := func(when string, g, want dispatch.Gate) {
				t.Helper()
				got, err := set(g)
				switch {
				case err != nil:
					t.Fatalf("%s: %v", what, err)
				case got == nil && want.By == "":
				case got == nil || got.By != want.By || got.Reason != want.Reason || !got.Until.Equal(want.Until):
					t.Errorf("%s, %s: replaced %+v, want %+v", what, when, got, want)
				}
			}
			wants("for the first time", first, dispatch.Gate{})
			wants("for the second", second, first)
			time.Sleep(time.Minute + time.Second)
			wants("after its end", third, dispatch.Gate{})
		}
	})
}
