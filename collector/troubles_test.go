package collector_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// TestCollector_Outage holds that dispatchers, or a store, that go for a minute make two lines in the log, whatever fails.
func TestCollector_Outage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		var away atomic.Bool
		answer := func() error {
			if away.Load() {
				return unavailable()
			}
			return nil
		}
		d.onFetch = func(context.Context, int, *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
			return nil, answer()
		}
		d.onStream = func(int) error { return answer() }
		d.onCall = func(int, *wagglev1.ReportTaskRequest) error { return answer() }
		d.onBeat = func(_ int, b beat) (*wagglev1.HeartbeatResponse, error) { return d.renewal(b), answer() }
		core, logs := observer.New(zap.InfoLevel)
		b := newBlocked()
		r := start(t, d, b, func(c *collector.Config) { c.Logger, c.Wait = zap.New(core), time.Second })
		d.put("1-a")
		<-b.tasks
		pass(4 * time.Second)
		away.Store(true)
		pass(2 * time.Second)
		b.let <- struct{}{} // a report fails, too
		pass(time.Minute)
		away.Store(false)
		pass(time.Minute)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		var said []string
		for _, line := range logs.All() {
			said = append(said, line.Message)
		}
		if len(said) != 2 || said[0] != "no answer from a dispatcher, or from its store; calls are repeated until there is one" || said[1] != "dispatchers answer again" {
			t.Errorf("said %q", said)
		}
	})
}

// TestCollector_Trouble holds that a call that fails for a reason of its own is told of once a minute.
func TestCollector_Trouble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.onFetch = func(context.Context, int, *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
			return nil, status.Error(codes.ResourceExhausted, "too many")
		}
		core, logs := observer.New(zap.InfoLevel)
		r := start(t, d, newBlocked(), func(c *collector.Config) { c.Logger = zap.New(core) })
		pass(10*time.Minute + 30*time.Second)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if n := logs.FilterMessage("fetch failed, will be repeated").Len(); n < 10 || n > 11 {
			t.Errorf("%d lines in ten minutes", n)
		}
	})
}
