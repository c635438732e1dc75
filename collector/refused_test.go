package collector_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// TestCollector_Unauthenticated holds that a collector whose credentials are not accepted goes on trying, at a slow pace and
// with a line a minute, and works once they are.
func TestCollector_Unauthenticated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const outage = 10 * time.Minute
		d := newDispatcher()
		d.put("1-a", "1-b")
		var refuses atomic.Bool
		refusal := func() error {
			if refuses.Load() {
				return failure(codes.Unauthenticated, "UNAUTHENTICATED", 0)
			}
			return nil
		}
		core, logs := observer.New(zap.InfoLevel)
		refuses.Store(true)
		r := start(t, failing(d, refusal, refusal), collector.HandlerFunc(succeed), func(c *collector.Config) { c.Logger = zap.New(core) })
		pass(outage)
		if calls := len(d.fetchCalls()); calls < 100 || calls > 300 {
			t.Errorf("%d fetches in %s", calls, outage)
		}
		if beats := len(d.beatCalls()); beats > 300 {
			t.Errorf("%d heartbeats in %s", beats, outage)
		}
		if lines := logs.FilterLevelExact(zap.WarnLevel).FilterMessageSnippet("do not accept the credentials").Len(); lines < 9 || lines > 11 || logs.Len() != lines {
			t.Errorf("%d of %d lines warn in %s", lines, logs.Len(), outage)
		}
		refuses.Store(false)
		pass(time.Minute)
		if stats := r.collector.Stats(); stats.Succeeded != 2 || stats.LastError != nil {
			t.Errorf("stats %+v once the credentials are accepted", stats)
		}
		if err := r.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// TestCollector_Denied holds that a collector that may not fetch ends with an error, also one that could before, and that it
// finishes what runs.
func TestCollector_Denied(t *testing.T) {
	t.Parallel()
	for reason, code := range map[string]codes.Code{
		"PERMISSION_DENIED": codes.PermissionDenied, "COLLECTOR_BOUND": codes.PermissionDenied, "A_REASON_OF_LATER": codes.PermissionDenied,
		"CLIENT_TOO_OLD": codes.FailedPrecondition,
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDispatcher()
				d.onFetch = func(_ context.Context, n int, req *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
					if n == 0 {
						return &wagglev1.FetchTaskResponse{LeasedTasks: []*wagglev1.LeasedTask{d.grant(req, &wagglev1.Task{Id: "1-a"})}}, nil
					}
					return nil, failure(code, reason, 0)
				}
				r := start(t, d, collector.HandlerFunc(func(ctx context.Context, _ *collector.Task) (collector.Succeeded, error) {
					select {
					case <-time.After(time.Second):
					case <-ctx.Done():
					}
					return collector.Succeeded{}, nil
				}), func(c *collector.Config) { c.Slots = 2 })
				if err := r.wait(); !errors.Is(err, collector.ErrRefused) || errors.Is(err, collector.ErrUnclean) {
					t.Errorf("Run: %v, want %v", err, collector.ErrRefused)
				}
				if calls := len(d.fetchCalls()); calls != 2 {
					t.Errorf("%d fetches, want 2", calls)
				}
				if stats := r.collector.Stats(); stats.Succeeded != 1 {
					t.Errorf("stats %+v", stats)
				}
			})
		})
	}
}
