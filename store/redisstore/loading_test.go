package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestStore_Loading works with a server that reads its data, as after a restart,
// by connections that are made meanwhile: whatever is asked of it is unavailable,
// and nothing is taken for missing.
func TestStore_Loading(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL(), Shards: 4})
	gate := sourceGate("source")
	submit(t, s, gate, submissions(&gate, "host.example", 3)...)
	ids := []string{"a", "b", "c"}
	for _, id := range ids {
		if err := s.PutSource(t.Context(), &dispatch.Source{ID: id, UID: id, Version: 1}, 0); err != nil {
			t.Fatal(err)
		}
	}
	loaded := load(t, server, client)

	var wg sync.WaitGroup
	for what, call := range map[string]func() error{
		"SourcesByID": func() error { _, err := s.SourcesByID(t.Context(), ids); return err },
		"ListSources": func() error { _, _, err := s.ListSources(t.Context(), dispatch.SourceFilter{}, "", 10); return err },
		"Now":         func() error { _, err := s.Now(t.Context()); return err },
		"Stats":       func() error { _, err := s.Stats(t.Context()); return err },
		"Claim": func() error {
			_, err := s.Claim(t.Context(), 0, pool, 0, []dispatch.Want{want(1)})
			return err
		},
		"Submit": func() error {
			_, err := s.Submit(t.Context(), 0, []dispatch.SourceGate{gate}, submissions(&gate, "other.example", 3))
			return err
		},
	} {
		wg.Go(func() {
			if err := call(); !errors.Is(err, dispatch.ErrStoreUnavailable) {
				t.Errorf("%s while the server loads: %v, want ErrStoreUnavailable", what, err)
			}
		})
	}
	wg.Wait()

	loaded()
	for _, id := range ids {
		if found, err := s.SourcesByID(t.Context(), []string{id}); err != nil || found[0].UID != id {
			t.Errorf("source %s of the loaded server: %+v, %v", id, found, err)
		}
	}
	if stats, err := s.Stats(t.Context()); err != nil || stats.Counts.Ready != 3 {
		t.Errorf("Stats of the loaded server: %+v, %v, want 3 ready", stats.Counts, err)
	}
}

// load has the server read all its data anew, and no connection but the client's
// stand. It reads until loaded is called, or for the better part of a minute.
func load(t *testing.T, server *redistest.Server, client *redis.Client) (loaded func()) {
	t.Helper()
	pipe := client.Pipeline()
	for i := range 5000 {
		pipe.Set(t.Context(), fmt.Sprint("filler:", i), strings.Repeat("x", 2048), 0)
	}
	set := func(name, value string) { pipe.ConfigSet(t.Context(), name, value) }
	set("rdbcompression", "no")
	set("loading-process-events-interval-bytes", "1024") // after which clients are answered
	set("key-load-delay", "10000")                       // in µs
	pipe.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes")
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	reloaded := make(chan error, 1)
	go func() {
		patient := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: -1, MaxRetries: -1})
		err := patient.Do(t.Context(), "DEBUG", "RELOAD").Err()
		reloaded <- errors.Join(err, patient.Close())
	}()
	await(t, "a server that reads its data", func() bool {
		info, err := client.Info(t.Context(), "persistence").Result()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(info, "loading:1")
	})
	return func() {
		t.Helper()
		if err := client.ConfigSet(t.Context(), "key-load-delay", "0").Err(); err != nil {
			t.Fatal(err)
		}
		if err := <-reloaded; err != nil {
			t.Fatal(err)
		}
	}
}
