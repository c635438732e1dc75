//go:build e2e

package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/store/redistest"
)

const (
	memoryTasks   = 200_000
	memoryHosts   = 1000
	memoryURL     = 90  // bytes
	memoryPayload = 200 // bytes
	// memoryLimit is how many bytes of Redis a queued task may cost beyond its URL and payload.
	memoryLimit = 450
)

// TestMemory submits many tasks to a Redis with its default settings, and measures what one costs. WAGGLE_E2E_TASKS sets
// how many; the figure that is published is of 1,000,000.
func TestMemory(t *testing.T) {
	tasks := memoryTasks
	if text := os.Getenv("WAGGLE_E2E_TASKS"); text != "" {
		var err error
		if tasks, err = strconv.Atoi(text); err != nil || tasks < 1000 {
			t.Fatalf("WAGGLE_E2E_TASKS: %q is no number of at least 1000", text)
		}
	}
	tasks -= tasks % 1000
	random := seeded(t)
	server := redistest.Start(t)
	d := serve(t, "dispatcher", server.URL(), "waggle")
	c := dial(t, d.addr)
	c.createSource(t, &pb.SourceSpec{Id: "memory"})
	c.submit(t, page("memory", 0)) // so that what comes with the first task is no task's cost
	before := usedMemory(t, server)

	began := time.Now()
	const submitters = 4
	batches := make(chan []*pb.SubmitItem)
	var g sync.WaitGroup
	for range submitters {
		g.Go(func() {
			for items := range batches {
				reply, err := c.tasks.SubmitTasks(t.Context(), &pb.SubmitTasksRequest{Items: items})
				if err != nil {
					t.Errorf("submit: %v", err)
					continue
				}
				for _, r := range reply.GetResults() {
					if r.GetCode() != pb.SubmitCode_SUBMIT_CODE_CREATED {
						t.Errorf("submit: %v", r)
					}
				}
			}
		})
	}
	for begin := 0; begin < tasks && !t.Failed(); begin += 1000 {
		batches <- memoryItems(random, begin, 1000)
	}
	close(batches)
	g.Wait()
	took := time.Since(began)
	if ready := c.stats(t).GetTasks().GetReady(); ready != int64(tasks+1) {
		t.Fatalf("%d tasks are READY, want %d", ready, tasks+1)
	}
	each := float64(usedMemory(t, server)-before) / float64(tasks)
	beyond := each - memoryURL - memoryPayload
	t.Logf("%d tasks on %d queues, URL of %d bytes, payload of %d: %.0f bytes of Redis each, %.0f beyond URL and payload (limit %d); submitted in %v, %.0f/s",
		tasks, memoryHosts, memoryURL, memoryPayload, each, beyond, memoryLimit, took.Round(time.Millisecond), float64(tasks)/took.Seconds())
	if beyond > memoryLimit {
		t.Errorf("%.0f bytes a task beyond URL and payload; the limit is %d", beyond, memoryLimit)
	}
}

// memoryItems makes tasks whose payloads cannot be compressed.
func memoryItems(random *rand.Rand, begin, n int) []*pb.SubmitItem {
	items := make([]*pb.SubmitItem, n)
	for i := range items {
		url := fmt.Sprintf("https://host-%04d.example/%d/", (begin+i)%memoryHosts, begin+i)
		url += strings.Repeat("x", memoryURL-len(url))
		payload := make([]byte, memoryPayload)
		for k := range payload {
			payload[k] = byte(random.Uint32())
		}
		items[i] = &pb.SubmitItem{SourceId: "memory", Url: url, Payload: payload}
	}
	return items
}

// usedMemory is Redis's used_memory.
func usedMemory(t *testing.T, server *redistest.Server) int64 {
	t.Helper()
	for line := range strings.Lines(redisCLI(t, server, "INFO", "memory")) {
		if value, is := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); is {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("INFO memory has no used_memory")
	return 0
}
