package operate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// Sources made together, to be crawled now, are not due together.
func TestDispatcher_jitter_firstCrawl(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Unhurried()
		for i, schedule := range []dispatch.Schedule{
			{Every: time.Hour, Jitter: 30 * time.Minute},
			{Adaptive: dispatch.Adaptive{Min: time.Hour, Max: time.Hour}, Jitter: 30 * time.Minute},
		} {
			var batch []operate.NamedSpec // one call that creates several, beside calls for each
			for n := range 10 {
				made := dispatchtest.Wanted(fmt.Sprintf("s%d-%d", i, n), fmt.Sprintf("http://%d-%d.example/", i, n))
				made.Spec.Schedule = schedule
				if n%2 == 0 {
					batch = append(batch, made)
					continue
				}
				w.Create(made.ID, func(s *dispatch.SourceSpec) { s.Seeds, s.Schedule = made.Spec.Seeds, schedule })
			}
			for _, result := range w.MustApply(false, batch...) {
				if result.Code != operate.SpecCreated {
					t.Errorf("a source of a batch: %+v", result)
				}
			}
		}
		total := 0
		for minute := range 31 {
			count := 0
			for due := w.Take(30); len(due) > 0; due = w.Take(30) { // each is of one shard
				count += len(due)
				for _, g := range due {
					w.Succeed(g)
				}
			}
			if total += count; count > 8 {
				t.Errorf("%d of 20 seeds are due in minute %d", count, minute)
			}
			time.Sleep(time.Minute)
		}
		if total != 20 {
			t.Errorf("%d seeds due within the jitter, want 20", total)
		}
	})
}
