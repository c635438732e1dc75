package pump

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/waggle-crawl/waggle/dispatch"
)

// grudgingStore takes nothing back.
type grudgingStore struct{ emptyStore }

func (*grudgingStore) GiveBack(context.Context, int, string, string, string) (int, error) {
	return 0, dispatch.ErrStoreUnavailable
}

// A give-back that fails is a warning. In an outage many fail: there is one line in half a minute, with their number.
func TestPump_giveBackFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		p := newPump(&grudgingStore{}, nothingHeld)
		p.cfg.Log = zap.New(core)
		fail := func(times int) {
			var all sync.WaitGroup
			for range times {
				all.Go(func() { p.GiveBack(t.Context(), 2, dispatch.Poll{Collector: "c1", ClientToken: "t", Call: "1"}) })
			}
			all.Wait()
		}
		fail(1)
		fail(40)
		time.Sleep(giveBackWarnings) // virtual
		fail(1)
		var counts []any
		for _, line := range logs.All() {
			counts = append(counts, line.ContextMap()["failed"])
			if fields := line.ContextMap(); fields["collector"] != "c1" || fields["shard"] != int64(2) || fields["error"] != dispatch.ErrStoreUnavailable.Error() {
				t.Errorf("the line has %v", fields)
			}
		}
		if len(counts) != 2 || counts[0] != int64(1) || counts[1] != int64(41) {
			t.Errorf("lines with %v give-backs, want 1 and 41", counts)
		}
	})
}
