//go:build e2e

package e2e_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/store/redistest"
)

const (
	idleCollectors  = 1000
	idleConnections = 50
	idleWindow      = 20 * time.Second
	// idleLimit is how many commands a second a dispatcher on which everybody waits may send to Redis.
	idleLimit = 20
)

// TestIdle parks 1,000 fetches at a dispatcher without tasks, and counts what that costs: the commands that it sends to
// Redis, by a MONITOR that sees each of them, and what their scripts run; and processor time.
func TestIdle(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	d := serve(t, "dispatcher", server.URL(), "waggle")
	watch := monitor(t, server)

	empty := make(chan error, idleCollectors)
	var clients []*client
	for range idleConnections {
		clients = append(clients, dial(t, d.addr))
	}
	began := time.Now()
	for i := range idleCollectors {
		go func() { empty <- poll(t, clients[i%len(clients)], i) }()
	}
	until(t, 10*time.Second, "all fetches are parked", func() bool {
		return clients[0].stats(t).GetDispatcher().GetParkedFetches() == idleCollectors
	})
	t.Logf("%d polls were parked within %v", idleCollectors, time.Since(began).Round(time.Millisecond))

	calls, inner, cpu := watch.calls(), watch.inner(), processorTime(t, d.cmd.Process.Pid)
	window := time.NewTimer(idleWindow)
	<-window.C
	calls, inner, cpu = watch.calls()-calls, watch.inner()-inner, processorTime(t, d.cmd.Process.Pid)-cpu
	perSecond := func(n int) float64 { return float64(n) / idleWindow.Seconds() }
	t.Logf("while they wait: %.1f commands/s (limit %d), whose scripts run %.1f/s; dispatcher CPU %.2f %%",
		perSecond(calls), idleLimit, perSecond(inner), 100*cpu.Seconds()/idleWindow.Seconds())
	if perSecond(calls) > idleLimit {
		t.Errorf("%.1f commands/s; the limit is %d", perSecond(calls), idleLimit)
	}
	if calls == 0 {
		t.Error("not one command: the measurement is broken, since the owner extends its term each second")
	}
	for range idleCollectors {
		if err := <-empty; err != nil {
			t.Fatal(err)
		}
	}
}

// poll is one fetch that finds nothing.
func poll(t *testing.T, c *client, i int) error {
	reply, err := c.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{
		CollectorId: fmt.Sprintf("idle-%d", i), Session: uuid.NewString(), ClientToken: uuid.NewString(),
		Wait: durationpb.New(30 * time.Second),
	})
	switch {
	case err != nil:
		return err
	case reply.GetEmptyReason() != pb.EmptyReason_EMPTY_REASON_NO_TASKS:
		return fmt.Errorf("a fetch with nothing to hand out was answered %v", reply)
	case reply.GetWaited().AsDuration() < 29*time.Second:
		return errors.New("a fetch was answered before its time: " + reply.GetWaited().AsDuration().String())
	}
	return nil
}

// monitored counts what a Redis runs.
type monitored struct {
	mu       sync.Mutex // guards what follows
	byClient []string   // commands of clients by TCP, as MONITOR has them
	byScript []string
}

// monitor watches a Redis until the test ends.
func monitor(t *testing.T, server *redistest.Server) *monitored {
	t.Helper()
	conn, err := net.Dial("unix", server.Socket())
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20)
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil || !lines.Scan() || lines.Text() != "+OK" {
		t.Fatalf("MONITOR: %v, %q", err, lines.Text())
	}
	m := &monitored{}
	var done sync.WaitGroup
	done.Go(func() {
		for lines.Scan() {
			m.note(lines.Text())
		}
	})
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		done.Wait()
	})
	return m
}

// note counts one line: +1795246629.095599 [0 127.0.0.1:54321] "FCALL" "..."
func (m *monitored) note(line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case strings.Contains(line, " [0 lua] "):
		m.byScript = append(m.byScript, line)
	case strings.Contains(line, " [0 127.0.0.1:"):
		m.byClient = append(m.byClient, line)
	}
}

// calls is how many commands clients have sent.
func (m *monitored) calls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.byClient)
}

// inner is how many commands scripts have run.
func (m *monitored) inner() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.byScript)
}

// processorTime is how much a process has used.
func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	const ticksPerSecond = 100 // of Linux's USER_HZ, the same on all machines
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), ") ") // the name may hold spaces
	fields := strings.Fields(after)
	var ticks int64
	for _, field := range fields[11:13] { // utime and stime
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond
}
