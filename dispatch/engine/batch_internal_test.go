package engine

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// A merger that has dropped what nobody waits for any more does not count it on: it
// would take each call from then on for one that fills a flight.
func TestMerger_forgets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context, _ []int) ([]int, error) {
			<-ctx.Done()
			return nil, dispatch.ErrStoreUnavailable
		}
		m := &merger[int, int]{call: storeCall[int, int]{"ask", hangs}, tower: &tower{limit: 10}, limit: 10}
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				if _, err := m.do(ctx, []int{1}); err == nil {
					t.Error("a store that hangs has answered")
				}
			})
		}
		callers.Wait()
		time.Sleep(time.Minute)
		m.tower.mu.Lock()
		defer m.tower.mu.Unlock()
		if len(m.waiting) > 0 || m.items != 0 || m.flights != 0 || m.tower.load != 0 {
			t.Errorf("%d calls of %d items wait, %d flights that count for %d are under way; want none", len(m.waiting), m.items, m.flights, m.tower.load)
		}
	})
}
