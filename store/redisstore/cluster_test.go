package redisstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestStore_Subscribe_Break cuts a subscription: it comes back and says that
// hints may have been lost.
func TestStore_Subscribe_Break(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	ctx, cancel := context.WithCancel(t.Context())
	hints := make(chan dispatch.Hint, 100)
	var err error
	var wait sync.WaitGroup
	wait.Go(func() { err = s.Subscribe(ctx, func(h dispatch.Hint) { hints <- h }) })
	next := func(kind dispatch.HintKind) dispatch.Hint {
		t.Helper()
		limit := time.After(20 * time.Second)
		for {
			select {
			case h := <-hints:
				if h.Kind == kind {
					return h
				}
				if h.Kind != dispatch.HintResync { // which may be repeated
					t.Errorf("hint %+v, want one of kind %d", h, kind)
				}
			case <-limit:
				t.Fatalf("no hint of kind %d within 20 s", kind)
			}
		}
	}
	next(dispatch.HintResync)
	gate := sourceGate("source")
	submit(t, s, gate, submissions(&gate, "host.example", 1)...)
	if h := next(dispatch.HintReady); h.Pool != pool || h.Shard != 0 || h.In != 0 {
		t.Errorf("hint %+v, want one of pool %s, now", h, pool)
	}
	if err := client.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err(); err != nil {
		t.Fatal(err)
	}
	next(dispatch.HintResync)
	if err := s.Publish(t.Context(), dispatch.Hint{Kind: dispatch.HintSession, ID: "c", Session: "s"}); err != nil {
		t.Errorf("Publish: %v", err)
	}
	if h := next(dispatch.HintSession); h.ID != "c" || h.Session != "s" {
		t.Errorf("hint %+v", h)
	}
	cancel()
	wait.Wait()
	if err != nil {
		t.Errorf("Subscribe: %v", err)
	}
}

func TestStore_Subscribe_Away(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redisstore.Config{URL: server.URL()})
	server.Kill()
	if err := s.Subscribe(t.Context(), func(dispatch.Hint) {}); !errors.Is(err, dispatch.ErrStoreUnavailable) {
		t.Errorf("Subscribe: %v, want ErrStoreUnavailable", err)
	}
}

func FuzzHints(f *testing.F) {
	f.Add("ready 0 default 250\nsource a.b\nrules\nsession c s")
	f.Fuzz(func(t *testing.T, message string) {
		for _, h := range redisstore.Hints(message) {
			if h.Kind < dispatch.HintReady || h.Kind > dispatch.HintResync {
				t.Errorf("hint %+v of %q", h, message)
			}
		}
	})
}
