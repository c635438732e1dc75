package history_test

import (
	"testing"

	"github.com/waggle-crawl/waggle/dispatch/history"
)

// TestLately counts pages day by day: those of a day decide once there are 10, and until then with those before.
func TestLately(t *testing.T) {
	t.Parallel()
	var l history.Lately
	for _, step := range []struct {
		day        int32
		ok, failed int
		want       history.Pages
		fail       bool
	}{
		{day: 1, failed: 9, want: history.Pages{Ended: 9, Failed: 9}},
		{day: 2, ok: 1, want: history.Pages{Ended: 10, Failed: 9}, fail: true}, // few a day count together
		{day: 2, ok: 2, want: history.Pages{Ended: 12, Failed: 9}, fail: true},
		{day: 2, ok: 1, want: history.Pages{Ended: 13, Failed: 9}},
		{day: 2, failed: 99, want: history.Pages{Ended: 112, Failed: 108}, fail: true},
		{day: 3, ok: 9, want: history.Pages{Ended: 121, Failed: 108}, fail: true},
		{day: 3, ok: 1, want: history.Pages{Ended: 10}},                // enough of the new day
		{day: 2, failed: 1, want: history.Pages{Ended: 11, Failed: 1}}, // the clock was set back
		{day: 4, failed: 9, want: history.Pages{Ended: 20, Failed: 10}},
		{day: 4, failed: 1, want: history.Pages{Ended: 10, Failed: 10}, fail: true},
		{day: 10, want: history.Pages{Ended: 10, Failed: 10}, fail: true},
		{day: 11}, // long ago
	} {
		for range step.failed {
			l.Count(step.day, true)
		}
		for range step.ok {
			l.Count(step.day, false)
		}
		if got := l.Pages(step.day); got != step.want || got.Fail() != step.fail {
			t.Errorf("after %+v the last pages are %+v, fail: %t", step, got, got.Fail())
		}
	}
}
