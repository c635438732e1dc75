package redis_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/backendtest"
	"github.com/waggle-crawl/waggle/store/backend/redis"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// makeBackend makes one that ends with the test.
func makeBackend(t testing.TB, config redis.Config) *redis.Backend {
	t.Helper()
	config.Prefix = prefix
	config.SetTerm(term)
	b, err := redis.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Kill() })
	return b
}

// TestBackend holds a server to the contract.
func TestBackend(t *testing.T) {
	t.Parallel()
	backendtest.Run(t, func(t *testing.T) backendtest.Place {
		t.Helper()
		server := redistest.Start(t)
		c := client(t, server.Addr())
		return backendtest.Place{
			Backend: func() backend.Backend { return makeBackend(t, redis.Config{URL: server.URL()}) },
			Kill:    func(b backend.Backend) error { return b.(*redis.Backend).Kill() },
			// Another process acquires shard 0, and then dies.
			Lose: func() error {
				record, err := c.Get(t.Context(), redis.RecordKey(prefix, 0)).Result()
				if err != nil {
					return err
				}
				other := fmt.Sprintf("99/%s", uuid.NewString()[:8])
				_, rest, _ := strings.Cut(record, `"epoch":"`)
				old, _, _ := strings.Cut(rest, `"`)
				return c.MSet(t.Context(), redis.EpochKey(prefix, 0), other, redis.RecordKey(prefix, 0), strings.Replace(record, old, other, 1)).Err()
			},
			Fill: func(full bool) {
				limit := "0"
				if full {
					if err := c.Set(t.Context(), "foreign", strings.Repeat("x", 32<<20), 0).Err(); err != nil {
						t.Error(err)
					}
					limit = fmt.Sprint(48 << 20)
				}
				if err := c.ConfigSet(t.Context(), "maxmemory", limit).Err(); err != nil {
					t.Error(err)
				}
			},
			Renew: func() error {
				record, err := c.Get(t.Context(), redis.RecordKey(prefix, 0)).Result()
				if err != nil {
					return err
				}
				return c.Set(t.Context(), redis.RecordKey(prefix, 0), strings.Replace(record, `"format":1`, `"format":2`, 1), 0).Err()
			},
		}
	})
}
