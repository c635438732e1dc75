package collector_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// TestCollector_FetchStream holds that fetches go through one stream, and after a minute through another, so that a
// dispatcher that joins gets its share.
func TestCollector_FetchStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		r := start(t, d, collector.HandlerFunc(succeed), nil)
		pass(59 * time.Second)
		if streams, fetches := d.fetchStreamCalls(), len(d.fetchCalls()); streams != 1 || fetches < 5 {
			t.Errorf("%d fetches through %d streams within a minute, want 5 or more through 1", fetches, streams)
		}
		pass(2 * time.Minute)
		if streams := d.fetchStreamCalls(); streams < 2 || streams > 4 {
			t.Errorf("%d streams in three minutes, want one a minute", streams)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestCollector_FetchStreamDrained holds that it is no failure when a dispatcher that stops ends the stream between two
// fetches: the next goes through another stream at once, with its client token.
func TestCollector_FetchStreamDrained(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.onFetch = func(_ context.Context, n int, _ *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
			if n == 1 {
				return nil, failure(codes.Unavailable, "DRAINING", time.Second)
			}
			return nil, nil
		}
		r := start(t, d, collector.HandlerFunc(succeed), nil)
		pass(30 * time.Second)
		calls := d.fetchCalls()
		if len(calls) < 3 || calls[2].at != calls[1].at || calls[2].req.GetClientToken() != calls[1].req.GetClientToken() {
			t.Errorf("the fetches were %v, want the second made again at once", calls)
		}
		if err := r.collector.Stats().LastError; err != nil {
			t.Errorf("told as a failure: %v", err)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestCollector_FetchStreamDraining holds that a dispatcher that says so again and again is not asked without end.
func TestCollector_FetchStreamDraining(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.onFetch = func(context.Context, int, *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
			return nil, failure(codes.Unavailable, "DRAINING", time.Second)
		}
		r := start(t, d, collector.HandlerFunc(succeed), nil)
		pass(time.Minute)
		if n := len(d.fetchCalls()); n > 60 {
			t.Errorf("%d fetches in a minute though each was told to wait a second", n)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestCollector_FetchStreamStuck holds that a dispatcher that takes nothing any more, as a frozen one, does not keep a
// fetch with large reports for ever: it is made again through another stream.
func TestCollector_FetchStreamStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.put("1-a")
		fetched := 0 // through the first stream
		d.onFetchStream = func(ctx context.Context, n int) {
			if fetched++; n == 1 && fetched == 2 {
				<-ctx.Done()
			}
		}
		links := make([]collector.Discovered, 1000)
		for i := range links {
			links[i].URL = fmt.Sprintf("http://example.com/%d/%s", i, strings.Repeat("x", 1000))
		}
		crawl := func(context.Context, *collector.Task) (collector.Succeeded, error) {
			return collector.Succeeded{Discovered: links}, nil
		}
		r := start(t, d, collector.HandlerFunc(crawl), func(c *collector.Config) { c.Slots = 1 })
		pass(time.Minute)
		if n := len(d.reported()); n != 1 {
			t.Errorf("%d reports came, want the one that the stuck fetch carried", n)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}
