package redisstore_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redistest"
)

var sentBytes = regexp.MustCompile(`total_net_output_bytes:(\d+)`)

// sentBy is how many bytes a server has sent so far.
func sentBy(t *testing.T, client *redis.Client) int {
	t.Helper()
	info, err := client.Info(t.Context(), "stats").Result()
	if err != nil {
		t.Fatal(err)
	}
	found := sentBytes.FindStringSubmatch(info)
	if found == nil {
		t.Fatalf("INFO stats does not name the bytes sent: %.500s", info)
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestStore_PageBytes measures what a page of large records reads of Redis: little more than
// the page.
func TestStore_PageBytes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	openRule(t, s)
	gate := sourceGate("s")
	const n = 60 // of 256 KiB each
	payload := make([]byte, bounds.MaxPayloadLength)
	for i := range n {
		item := submission(&gate, "q.example", fmt.Sprintf("https://q.example/%d", i))
		item.Payload = payload
		submit(t, s, gate, item)
		source := &dispatch.Source{ID: fmt.Sprintf("s%d", i), UID: fmt.Sprintf("uid-%d", i), Spec: *dispatch.DefaultSpec(), Version: 1}
		source.Spec.Payload = payload
		if err := s.PutSource(t.Context(), source, 0); err != nil {
			t.Fatal(err)
		}
	}
	listTasks := func(state dispatch.State) (int, error) {
		page, err := s.ListTasks(t.Context(), dispatch.TaskFilter{SourceUID: gate.UID, States: []dispatch.State{state}}, "", 1000)
		return len(page.Tasks), err
	}
	read := func(what string, list func() (int, error)) {
		t.Helper()
		before := sentBy(t, client)
		listed, err := list()
		if err != nil {
			t.Fatal(err)
		}
		if read, most := sentBy(t, client)-before, bounds.MaxPageBytes*3/2; read > most {
			t.Errorf("a page of %d %s read %d bytes of Redis, want at most %d", listed, what, read, most)
		}
	}
	read("tasks", func() (int, error) { return listTasks(dispatch.StateReady) })
	read("tasks in another state", func() (int, error) { return listTasks(dispatch.StateScheduled) })
	read("sources", func() (int, error) {
		sources, _, err := s.ListSources(t.Context(), dispatch.SourceFilter{}, "", 1000)
		return len(sources), err
	})
	for range n {
		claimOne(t, s)
	}
	read("leases", func() (int, error) {
		leases, _, err := s.ListLeases(t.Context(), "", 1000)
		return len(leases), err
	})
}
