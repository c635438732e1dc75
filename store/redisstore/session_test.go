package redisstore_test

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestStore_EndSession_Bounded holds P10: however many leases an older session
// holds, one call reads about as many records as it returns.
func TestStore_EndSession_Bounded(t *testing.T) {
	t.Parallel()
	const held, limit, most = 1000, 50, 300
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	openRule(t, s)
	gate := sourceGate("a")
	submit(t, s, gate, submissions(&gate, "a.example", held)...)
	for range held / 100 {
		if grants := claim(t, s, want(100)); len(grants) != 100 {
			t.Fatalf("Claim granted %d tasks, not 100", len(grants))
		}
	}
	before := recordsRead(t, client)
	tasks, err := s.EndSession(t.Context(), 0, "collector", "another", limit)
	if err != nil || len(tasks) != limit {
		t.Fatalf("EndSession returned %d tasks and error %v, want %d", len(tasks), err, limit)
	}
	if n := recordsRead(t, client) - before; n > most {
		t.Errorf("EndSession of %d leases read %d records to return %d, want at most %d", held, n, limit, most)
	}
}

// recordsRead is how often Redis was asked for a string.
func recordsRead(t *testing.T, client redis.Cmdable) int {
	t.Helper()
	text, err := client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatalf("INFO commandstats: %v", err)
	}
	found := regexp.MustCompile(`cmdstat_get:calls=(\d+)`).FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
