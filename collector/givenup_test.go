package collector_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	givenUp = "lease not renewed in time, its handler was stopped; the task is given back"
	dropped = "lease lost, outcome dropped: no dispatcher took the task back"
)

// TestCollector_GivenUp holds that a lease that was given up is reported once its handler has returned, which may be at
// the host still before, and that the store may refuse that.
func TestCollector_GivenUp(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		code           wagglev1.ReportCode
		released, lost uint64
	}{
		"taken":     {wagglev1.ReportCode_REPORT_CODE_OK, 1, 0},
		"passed on": {wagglev1.ReportCode_REPORT_CODE_LEASE_LOST, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDispatcher()
				d.lease = 5 * time.Second
				d.put("1-a")
				d.onBeat = func(int, beat) (*wagglev1.HeartbeatResponse, error) { return nil, unavailable() }
				d.onReport = func(_ int, r *wagglev1.TaskReport) *wagglev1.ReportResult {
					return &wagglev1.ReportResult{TaskId: r.GetTaskId(), Code: test.code}
				}
				r := start(t, d, collector.HandlerFunc(func(ctx context.Context, _ *collector.Task) (collector.Succeeded, error) {
					<-ctx.Done()
					time.Sleep(3 * time.Second) // at the host
					return collector.Succeeded{}, nil
				}), nil)
				pass(7 * time.Second)
				if reports := d.reported(); len(reports) != 0 {
					t.Errorf("reported %v while the handler worked", reports)
				}
				pass(time.Second)
				if reports := d.reported(); len(reports) != 1 || reports[0].GetOutcome().GetReleased() == nil {
					t.Errorf("reported %v, want one release", reports)
				}
				if stats := r.collector.Stats(); stats.Released != test.released || stats.Lost != test.lost || stats.Reports != 0 {
					t.Errorf("stats %+v", stats)
				}
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestCollector_GivenUpInVain holds that a lease that was given up is not reported without end, that a shutdown does not
// wait for it, and what is said of it.
func TestCollector_GivenUpInVain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		outage time.Duration // until the collector stops
		lost   uint64        // before that
	}{
		"stopped soon": {10 * time.Second, 0},
		"stopped late": {50 * time.Second, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDispatcher()
				d.lease = 5 * time.Second
				d.put("1-a", "1-b", "1-c")
				var away atomic.Bool
				answer := func() error {
					if away.Load() {
						return unavailable()
					}
					return nil
				}
				core, logs := observer.New(zap.InfoLevel)
				r := start(t, failing(d, answer, answer), newBlocked(), func(c *collector.Config) { c.Logger, c.Slots = zap.New(core), 3 })
				pass(time.Second)
				away.Store(true)
				pass(test.outage)
				stats := r.collector.Stats()
				if stats.Lost != test.lost || stats.Reports != 3-int(test.lost) || stats.Running != 0 {
					t.Errorf("stats %+v", stats)
				}
				begin := time.Now()
				if err := r.stop(); err != nil {
					t.Error(err)
				}
				if took := time.Since(begin); took > 2*time.Second { // of which fetches take some
					t.Errorf("stopped after %s", took)
				}
				if stats := r.collector.Stats(); stats.Lost != 3 || stats.Reports != 0 {
					t.Errorf("stats %+v in the end", stats)
				}
				want := []string{outageBegins, givenUp, givenUp, givenUp, dropped, dropped, dropped}
				if got := said(logs); !slices.Equal(got, want) {
					t.Errorf("said %q, want %q", got, want)
				}
			})
		})
	}
}
