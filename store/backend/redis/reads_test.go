package redis_test

import (
	"errors"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend/redis"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestReads_AfterTerm has a term end while a hold is on its way. In the next term reads are answered though nothing more is written.
func TestReads_AfterTerm(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config := redis.Config{URL: server.URL(), Prefix: prefix}
	config.SetTerm(term)
	b := makeBackend(t, config)
	s, err := store.Open(t.Context(), store.Config{Shards: 3, Backend: b})
	if err != nil {
		t.Fatal(err)
	}
	_, version, _, err := s.Holds(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	server.Pause()
	hold := dispatch.Hold{Target: dispatch.HoldTarget{Pool: "p"}}
	if _, err := s.PutHolds(t.Context(), dispatch.HoldChange{Set: []dispatch.Hold{hold}}, version); !errors.Is(err, dispatch.ErrStoreUnavailable) {
		t.Fatalf("a hold is set in a store that is away: %v", err)
	}
	server.Resume()
	for name, read := range map[string]func() error{
		"holds":  func() error { _, _, _, err := s.Holds(t.Context(), 0); return err },
		"counts": func() error { _, err := s.Stats(t.Context()); return err },
	} {
		until(t, name+" are read", func() bool { return read() == nil })
	}
}
