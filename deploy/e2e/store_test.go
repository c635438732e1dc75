//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestServe_Refuses starts dispatchers that cannot work, and wants each to end with the right code and words that help.
func TestServe_Refuses(t *testing.T) {
	server, prefix := shared.Server(t)
	first := serve(t, "dispatcher", server.URL(), prefix, "--shards", "2")
	evicting := redistest.Start(t, redistest.WithConfig("maxmemory-policy", "allkeys-lru"), redistest.WithMaxMemory(100<<20))
	closed := redistest.Start(t)
	redisCLI(t, closed, "CONFIG", "SET", "requirepass", "secret")
	replica := redistest.Start(t, redistest.WithConfig("replicaof", strings.ReplaceAll(server.Addr(), ":", " ")))
	for _, c := range []struct {
		name string
		args []string
		code int
		says []string
	}{
		{"wrong password", []string{"--store", "redis://default:wrong@" + closed.Addr()}, 1, []string{"WRONGPASS", "redis://default:xxxxx@"}},
		{"host unknown", []string{"--store", "redis://no-such-host.invalid:6379/0"}, 1, []string{"no-such-host.invalid"}},
		{"scheme unknown", []string{"--store", "postgres://127.0.0.1/0"}, 2, []string{"--store", "postgres"}},
		{"no URL", []string{"--store", "127.0.0.1:6379"}, 2, []string{"--store"}},
		{"other number of shards", []string{"--store", server.URL(), "--prefix", prefix, "--shards", "3"}, 1, []string{"2", "3", "shards"}},
		{"evicting Redis", []string{"--store", evicting.URL()}, 1, []string{"allkeys-lru", "noeviction"}},
		{"replica", []string{"--store", replica.URL()}, 1, []string{"replica"}},
		{"port in use", []string{"--store", server.URL(), "--prefix", prefix, "--listen", first.addr}, 1, []string{first.addr, "in use", "--listen"}},
		{"HTTP port in use", []string{"--store", server.URL(), "--prefix", prefix, "--http", first.http}, 1, []string{first.http, "in use"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"}, c.args...)
			p := launch(t, c.name, programs.path("waggle"), args...)
			code := p.exit(startLimit)
			said := p.out.tail(logTail)
			if code != c.code {
				t.Errorf("code %d, want %d; it says %s", code, c.code, said)
			}
			for _, words := range c.says {
				if !strings.Contains(said, words) {
					t.Errorf("it says %q, and nothing of %q", said, words)
				}
			}
			if strings.Contains(said, "panic") || strings.Contains(said, "goroutine ") {
				t.Errorf("it shows its insides: %s", said)
			}
			t.Logf("code %d: %s", code, strings.TrimSpace(said))
		})
	}
}

// TestServe_StoreStartsLater starts dispatchers before their Redis: they end by SIGTERM at once, and serve as soon as it
// is there.
func TestServe_StoreStartsLater(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	args := []string{"serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--store", server.URL(), "--log-format", "json"}
	first := launch(t, "first", programs.path("waggle"), args...)
	first.line(`"the store is away`, startLimit)
	t.Logf("it ended %v after SIGTERM", first.stop(startLimit).Round(time.Millisecond))
	second := launch(t, "second", programs.path("waggle"), args...)
	second.line(`"the store is away`, startLimit)
	server.Restart()
	began := time.Now()
	second.line(`"serving"`, startLimit)
	t.Logf("it served %v after Redis was there", time.Since(began).Round(time.Millisecond))
	second.stop(startLimit)
}

// TestServe_StoreRestarts takes Redis away from a dispatcher and gives it back: calls answer UNAVAILABLE meanwhile and
// then go on, with the leases that stood, without a restart of the dispatcher.
func TestServe_StoreRestarts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithAOF(redistest.FsyncAlways))
	d := serve(t, "dispatcher", server.URL(), "waggle")
	c := dial(t, d.addr)
	c.setRule(t, "*", 0, 100)
	c.createSource(t, &pb.SourceSpec{Id: "restart", LeaseDuration: durationpb.New(60 * time.Second)})
	c.submit(t, page("restart", 1), page("restart", 2))
	session := uuid.NewString()
	held := c.fetchOne(t, "a", session, 0)

	server.Kill()
	until(t, 10*time.Second, "the term of the owner ends", func() bool { // until then it answers reads
		_, err := c.admin.GetStats(t.Context(), &pb.GetStatsRequest{})
		return status.Code(err) == codes.Unavailable && reason(err) == "STORE_UNAVAILABLE"
	})
	fetching, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := c.dispatch.FetchTask(fetching, &pb.FetchTaskRequest{CollectorId: "a", Session: session, ClientToken: uuid.NewString()})
	if status.Code(err) != codes.Unavailable || reason(err) != "STORE_UNAVAILABLE" || retryDelay(err) <= 0 {
		t.Errorf("fetch with Redis away: %v, retry after %v", err, retryDelay(err))
	}
	d.line(`"not serving"`, 10*time.Second)
	if lines := strings.Count(d.out.tail(1<<20), "\n"); lines > 30 {
		t.Errorf("it wrote %d lines about that", lines)
	}

	server.Restart()
	began := time.Now()
	until(t, 10*time.Second, "calls succeed again", func() bool {
		_, err := c.admin.GetStats(t.Context(), &pb.GetStatsRequest{})
		return err == nil
	})
	t.Logf("calls succeed %v after the restart of Redis", time.Since(began).Round(time.Millisecond))
	if r := c.renew(t, "a", session, held.GetLease()); len(r.GetLost()) > 0 {
		t.Errorf("the lease that stood: %v", r.GetLost())
	}
	if r := c.report(t, "a", session, held.GetLease()); r.GetCode() != pb.ReportCode_REPORT_CODE_OK {
		t.Errorf("its report: %v", r)
	}
	next := c.fetchOne(t, "a", session, 10*time.Second)
	if r := c.report(t, "a", session, next.GetLease()); r.GetCode() != pb.ReportCode_REPORT_CODE_OK {
		t.Errorf("the report of the next: %v", r)
	}
	// A submit must wake a parked fetch again.
	fetched := make(chan *pb.FetchTaskResponse, 1)
	go func() {
		defer close(fetched)
		reply, err := c.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{
			CollectorId: "a", Session: session, ClientToken: uuid.NewString(), Wait: durationpb.New(20 * time.Second),
		})
		if err == nil {
			fetched <- reply
		}
	}()
	until(t, 5*time.Second, "the fetch is parked", func() bool { return c.stats(t).GetDispatcher().GetParkedFetches() == 1 })
	c.submit(t, page("restart", 3))
	if reply := <-fetched; len(reply.GetLeasedTasks()) != 1 || reply.GetWaited().AsDuration() > 10*time.Second {
		t.Errorf("the parked fetch got %v", reply)
	}
	d.stop(20 * time.Second)
}

// TestServe_StoreFull fills Redis: submits and fetches are refused with STORE_FULL, and what is leased is renewed and reported.
func TestServe_StoreFull(t *testing.T) {
	server := redistest.Start(t)
	d := serve(t, "dispatcher", server.URL(), "waggle")
	c := dial(t, d.addr)
	c.setRule(t, "*", 0, 100)
	c.createSource(t, &pb.SourceSpec{Id: "full", LeaseDuration: durationpb.New(60 * time.Second)})
	c.submit(t, page("full", 1), page("full", 2))
	session := uuid.NewString()
	held := c.fetchOne(t, "a", session, 0)

	redisCLI(t, server, "CONFIG", "SET", "maxmemory", "1mb")
	full := func(err error) bool {
		return status.Code(err) == codes.ResourceExhausted && reason(err) == "STORE_FULL" && retryDelay(err) > 0
	}
	n := 2
	until(t, 10*time.Second, "a submit is refused", func() bool { // the owner asks Redis for its room twice a second
		n++
		_, err := c.tasks.SubmitTasks(t.Context(), &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{page("full", n)}})
		if err != nil && !full(err) {
			t.Fatalf("submit with Redis full: %v, retry after %v", err, retryDelay(err))
		}
		return err != nil
	})
	_, err := c.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "a", Session: session, ClientToken: uuid.NewString(), Wait: durationpb.New(0)})
	if !full(err) {
		t.Errorf("fetch with Redis full: %v, retry after %v", err, retryDelay(err))
	}
	if r := c.renew(t, "a", session, held.GetLease()); len(r.GetLost()) > 0 || r.GetLeaseDuration().AsDuration() != 60*time.Second {
		t.Errorf("renewing with Redis full: %v", r)
	}
	if r := c.report(t, "a", session, held.GetLease()); r.GetCode() != pb.ReportCode_REPORT_CODE_OK {
		t.Errorf("reporting with Redis full: %v", r)
	}
	redisCLI(t, server, "CONFIG", "SET", "maxmemory", "0")
	until(t, 10*time.Second, "a submit is taken", func() bool {
		_, err := c.tasks.SubmitTasks(t.Context(), &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{page("full", n)}})
		return err == nil
	})
	next := c.fetchOne(t, "a", session, 10*time.Second)
	if r := c.report(t, "a", session, next.GetLease()); r.GetCode() != pb.ReportCode_REPORT_CODE_OK {
		t.Errorf("with room again: %v", r)
	}
}

// page is a page of a source to submit.
func page(source string, n int) *pb.SubmitItem {
	return &pb.SubmitItem{SourceId: source, Url: fmt.Sprintf("https://%s.example/%d", source, n)}
}

// lastingAddr is an address where nobody listens, below the ports that Linux gives to clients: one that asks again and again for a
// server that restarts would at last be given the port that it asks for, be connected to itself, and keep it.
func lastingAddr(t *testing.T) string {
	t.Helper()
	for {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000)))
		if err != nil {
			continue // it is taken
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return l.Addr().String()
	}
}

// freeAddr is an address that nobody listens on, nor will before it is used.
func freeAddr(t *testing.T) string {
	t.Helper()
	return closed(t, listenAside(t, "127.0.0.1"))
}

// freePort is freeAddr's for all addresses of this machine.
func freePort(t *testing.T) string {
	t.Helper()
	return portOf(closed(t, listenAside(t, "0.0.0.0")))
}

// closed is the address of the listener, which it closes.
func closed(t *testing.T, listener net.Listener) string {
	t.Helper()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return listener.Addr().String()
}

// listenAside listens on a port that the kernel gives to nobody who asks for any, so that no test beside takes it before
// its time.
func listenAside(t *testing.T, host string) net.Listener {
	t.Helper()
	for {
		listener, err := net.Listen("tcp4", fmt.Sprintf("%s:%d", host, 20_000+rand.IntN(12_000)))
		if err == nil {
			return listener
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
	}
}
