//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/store/redistest"
)

const (
	parkedFetches     = 10_000
	parkedConnections = 50
	// parkedLimit is how much memory of the dispatcher a parked fetch may take. Half of what it takes is the stack of its
	// call, which doubles once a call that waits needs more than 8 KiB of it, and stays so. About 1 KiB is what the owner knows of
	// the collector.
	parkedLimit = 18 << 10
)

// TestParkedFetch_memory parks 10,000 fetches of as many collectors, and reads what they take of the dispatcher's memory:
// all of it that the system knows of, with little garbage in it.
func TestParkedFetch_memory(t *testing.T) {
	t.Setenv("GOGC", "10")
	server := redistest.Start(t)
	d := serve(t, "dispatcher", server.URL(), "waggle", "--max-streams-per-address", "20000", "--max-new-collectors", "20000")
	before := residentMemory(t, d.cmd.Process.Pid)

	var clients []*client
	for range parkedConnections {
		clients = append(clients, dial(t, d.addr))
	}
	ctx, end := context.WithCancel(t.Context())
	var parked sync.WaitGroup
	for i := range parkedFetches {
		parked.Go(func() {
			name := fmt.Sprintf("parked-%d", i)
			_, err := clients[i%len(clients)].dispatch.FetchTask(ctx, &pb.FetchTaskRequest{
				CollectorId: name, Session: name, ClientToken: name, Wait: durationpb.New(30 * time.Second),
			})
			if status.Code(err) != codes.Canceled {
				t.Errorf("a fetch was answered before it was canceled: %v", err)
			}
		})
	}
	until(t, 20*time.Second, "all fetches are parked", func() bool {
		return clients[0].stats(t).GetDispatcher().GetParkedFetches() == parkedFetches
	})
	each := func() int { return (residentMemory(t, d.cmd.Process.Pid) - before) / parkedFetches }
	t.Logf("a parked fetch takes %d bytes of the dispatcher (limit %d)", each(), parkedLimit)
	until(t, 5*time.Second, fmt.Sprintf("a parked fetch takes at most %d bytes", parkedLimit), func() bool { return each() <= parkedLimit })
	end()
	parked.Wait()
}

// residentMemory is how much memory a process holds, in bytes.
func residentMemory(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}
