package redisstore_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redistest"
)

const (
	memoryURL     = 90  // bytes of each URL
	memoryPayload = 200 // bytes of each payload
	memoryLimit   = 350 // bytes beyond those
)

// TestMemoryPerTask measures what a queued task costs with default Redis
// settings, beyond its URL and payload. WAGGLE_MEMORY_TASKS=1000000 measures a
// million.
func TestMemoryPerTask(t *testing.T) {
	tasks := 100_000
	if text := os.Getenv("WAGGLE_MEMORY_TASKS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1000 {
			t.Fatalf("WAGGLE_MEMORY_TASKS=%q is not a number of at least 1000", text)
		}
		tasks = n
	}
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	before := usedMemory(t, client)
	gate := sourceGate("source")
	for done := 0; done < tasks; done += 1000 {
		items := make([]dispatch.Submission, min(1000, tasks-done))
		for i := range items {
			items[i] = memoryItem(&gate, done+i)
		}
		submit(t, s, gate, items...)
	}
	each := float64(usedMemory(t, client)-before)/float64(tasks) - memoryURL - memoryPayload
	t.Logf("%d queued tasks: %.0f bytes each beyond a URL of %d and a payload of %d bytes", tasks, each, memoryURL, memoryPayload)
	if each > memoryLimit {
		t.Errorf("a queued task costs %.0f bytes beyond URL and payload, the limit is %d", each, memoryLimit)
	}
}

// memoryItem is a task in one of a thousand queues.
func memoryItem(gate *dispatch.SourceGate, n int) dispatch.Submission {
	queue := fmt.Sprintf("host-%04d.example", n%1000)
	url := fmt.Sprintf("https://%s/%d/", queue, n)
	url += strings.Repeat("x", memoryURL-len(url))
	item := submission(gate, queue, url)
	item.Payload = []byte(strings.Repeat("p", memoryPayload))
	return item
}

// usedMemory is what Redis has allocated.
func usedMemory(t *testing.T, client *redis.Client) int64 {
	t.Helper()
	text, err := client.Info(t.Context(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(text, "used_memory:")
	number, _, _ := strings.Cut(rest, "\r\n")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		t.Fatalf("used_memory: %v", err)
	}
	return n
}

const usedLimit = 72 // bytes

// TestMemoryPerUsedToken measures what is kept of a client token whose task is no longer
// held: tasks are claimed one by one and released, which leaves them as they were.
func TestMemoryPerUsedToken(t *testing.T) {
	const tasks, rounds = bounds.MaxClaimTasks, 500
	server := redistest.Start(t, redistest.WithClock())
	server.Clock().Freeze() // so that all are noted in one step of time
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	openRule(t, s)
	gate := sourceGate("source")
	submit(t, s, gate, submissions(&gate, "host.example", tasks)...)
	use := func() {
		wants := make([]dispatch.Want, tasks)
		for i := range wants {
			wants[i] = want(1)
		}
		reply, err := s.Claim(t.Context(), 0, pool, 0, wants)
		if err != nil {
			t.Fatal(err)
		}
		transitions := make([]dispatch.Transition, tasks)
		for i, grants := range reply.Grants {
			if len(grants) != 1 {
				t.Fatalf("want %d was granted %d tasks", i, len(grants))
			}
			transitions[i] = dispatch.Transition{
				ID: grants[0].Task.ID, Token: grants[0].Token.Digest(), Revision: grants[0].Task.Revision,
				Result: dispatch.ResultReleased, State: dispatch.StateScheduled, Queue: dispatch.QueueEffect{Kind: dispatch.QueueUntouched},
			}
		}
		results, err := s.Apply(t.Context(), transitions)
		if err != nil || results[0].Code != dispatch.Applied {
			t.Fatalf("Apply: %+v, %v", results[0], err)
		}
	}
	for range 10 {
		use()
	}
	before := usedMemory(t, client)
	for range rounds {
		use()
	}
	each := float64(usedMemory(t, client)-before) / (tasks * rounds)
	t.Logf("%d used client tokens: %.0f bytes each", tasks*rounds, each)
	if each > usedLimit {
		t.Errorf("a used client token costs %.0f bytes, the limit is %d", each, usedLimit)
	}
}

const pollLimit = 64 // bytes

// TestMemoryPerPoll measures what a store of several shards keeps of a poll.
func TestMemoryPerPoll(t *testing.T) {
	const polls, rounds = 200, 250
	server := redistest.Start(t, redistest.WithClock())
	server.Clock().Freeze() // so that all are noted in one step of time
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL(), Shards: 2})
	note := func() {
		batch := make([]dispatch.Poll, polls)
		for i := range batch {
			batch[i] = want(1).Poll
		}
		if _, err := s.BeginPolls(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		note()
	}
	before := usedMemory(t, client)
	for range rounds {
		note()
	}
	each := float64(usedMemory(t, client)-before) / (polls * rounds)
	t.Logf("%d polls: %.0f bytes each", polls*rounds, each)
	if each > pollLimit {
		t.Errorf("a poll costs %.0f bytes, the limit is %d", each, pollLimit)
	}
}
