package engine

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Rates are what ended in the last minute and hour, and give a time to go; when nothing ends any more they fade.
func TestRates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRates()
		for i := range 600 { // ten minutes, a second each; each tenth fails
			end := End{Pool: "p", Source: "s", Result: dispatch.ResultSucceeded, Settled: true}
			if i%10 == 9 {
				end.Result, end.Reason, end.Settled = dispatch.ResultFailed, 2, false
			}
			r.note([]End{end}, time.Now())
			time.Sleep(time.Second) // virtual
		}
		got := r.find(&r.sources, "s")
		if got.SettledMinute != 54 || got.SettledHour != 540 || got.FailedMinute != 6 || got.FailedHour != 60 {
			t.Errorf("the rates are %+v", got)
		}
		if left := got.ToGo(2160).Round(time.Minute); left != 40*time.Minute {
			t.Errorf("2,160 tasks take %v at 54 a minute", left)
		}
		if got := r.find(&r.sources, "other"); got.SettledHour != 0 || got.ToGo(5) != 0 {
			t.Errorf("a source of which nothing ended has %+v", got)
		}
		time.Sleep(2 * time.Minute) // virtual
		if got := r.find(&r.pools, "p"); got.SettledMinute != 0 || got.SettledHour != 540 {
			t.Errorf("two minutes later: %+v", got)
		}
		time.Sleep(2 * time.Hour) // virtual
		if got := r.find(&r.pools, "p"); got.SettledHour != 0 {
			t.Errorf("two hours later: %+v", got)
		}
	})
}

// No more than a number of sources have rates; those that are idle make room.
func TestRates_bounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRates()
		note := func(n, from int) {
			for i := range n {
				r.note([]End{{Source: fmt.Sprintf("s%d", from+i), Pool: "p", Result: dispatch.ResultSucceeded, Settled: true}}, time.Now())
			}
		}
		note(maxRatedSources+5, 0)
		if n := len(r.sources.of); n != maxRatedSources {
			t.Errorf("%d sources have rates", n)
		}
		time.Sleep(3 * time.Hour) // virtual
		note(1, maxRatedSources+5)
		if n := len(r.sources.of); n != 1 {
			t.Errorf("%d sources have rates after they were idle", n)
		}
	})
}
