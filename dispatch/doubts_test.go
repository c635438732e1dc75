package dispatch_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// A schedule that nothing follows is doubted; a source for tasks that are submitted
// has none.
func TestDispatcher_Doubts_noSeeds(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{standard: true}, func(t *testing.T, w *world) {
		hourly := dispatch.Schedule{Every: time.Hour}
		passes := dispatch.Schedule{Revisit: true}
		doubts, err := w.Doubts(t.Context(), []*dispatch.SourceSpec{
			{Schedule: hourly}, {}, {Schedule: hourly, Seeds: seeds("http://a.example/")}, {Schedule: passes}, {Schedule: passes, Seeds: seeds("http://a.example/")},
		})
		if err != nil || len(doubts[0]) != 1 || !strings.Contains(doubts[0][0], "a schedule and no seeds") || doubts[1] != nil || doubts[2] != nil ||
			len(doubts[3]) != 1 || !strings.Contains(doubts[3][0], "revisit and no seeds") || doubts[4] != nil {
			t.Errorf("%q, %v", doubts, err)
		}
	})
}

// Pools that no collector takes from are doubted, however many there are.
func TestDispatcher_Doubts_pools(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{standard: true}, func(t *testing.T, w *world) {
		for n := range 30 {
			info := dispatch.CollectorInfo{ID: fmt.Sprintf("c%d", n), Session: "s", Pools: []string{fmt.Sprintf("p%d", n)}}
			if _, err := w.Beat(t.Context(), info, nil); err != nil {
				t.Fatal(err)
			}
		}
		specs := []*dispatch.SourceSpec{{}, {Pool: dispatch.DefaultPool}}
		for n := range 60 {
			specs = append(specs, &dispatch.SourceSpec{Pool: fmt.Sprintf("p%d", n)})
		}
		doubts, err := w.Doubts(t.Context(), specs)
		if err != nil {
			t.Fatal(err)
		}
		for i, told := range doubts {
			if doubted := i-2 >= 30; (len(told) == 1) != doubted {
				t.Errorf("%q: %q", specs[i].Pool, told)
			}
		}
	})
}
