package dispatch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// TestPump_behindClosedQueues pauses many queues that stand open before one that is
// not paused: a claim puts some of them aside until its bounds end it, and the next
// must not wait.
func TestPump_behindClosedQueues(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.source("s", nil)
		for i := range 40 * bounds.MaxClaimTurns {
			w.submit("s", fmt.Sprintf("q%d.closed", i), 1, 0)
		}
		time.Sleep(10 * time.Millisecond)
		w.submit("s", "other", 1, 0)
		w.rule("*.closed", dispatch.QueueSettings{Paused: true, MaxInFlight: 1, MaxBlock: time.Hour})
		began := time.Now()
		res := w.mustFetch(ask("c", "", bounds.MaxWait))
		if took := time.Since(began); took > 100*time.Millisecond || res.Tasks[0].Task.Queue != "other" {
			t.Errorf("%s after %v", res.Tasks[0].Task.Queue, took)
		}
	})
}
