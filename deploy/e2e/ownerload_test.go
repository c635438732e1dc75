//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestOwner_RedisFull fills Redis with keys of others, for 30 s if WAGGLE_E2E_ROUNDS is set: submits are refused, leases are
// renewed and reported all the while, and then all goes on.
func TestOwner_RedisFull(t *testing.T) {
	t.Parallel()
	full := 4 * time.Second
	if os.Getenv("WAGGLE_E2E_ROUNDS") != "" {
		full = 30 * time.Second
	}
	w := newOwned(t, redistest.WithMaxMemory(32<<20))
	foreign := redis.NewClient(&redis.Options{Network: "unix", Addr: w.servers[0].Socket()})
	t.Cleanup(func() { _ = foreign.Close() })
	w.check(t, 1, func() fault {
		w.clients[0].createSource(t, &pb.SourceSpec{Id: "backlog", Pool: "backlog", LeaseDuration: durationpb.New(2 * time.Minute)})
		const backlog = 400
		items := make([]*pb.SubmitItem, backlog)
		for n := range items {
			items[n] = &pb.SubmitItem{SourceId: "backlog", Url: fmt.Sprintf("https://backlog-%d.example/", n)}
		}
		w.clients[0].submit(t, items...)
		held := w.fetchBacklog(t, backlog/2)
		filling, stop := context.WithCancel(t.Context())
		defer stop()
		keys, isFull := make(chan int, 1), make(chan struct{})
		go func() { keys <- fill(filling, foreign, isFull) }()
		<-isFull
		ctx, end := context.WithTimeout(t.Context(), full)
		defer end()
		lasts(ctx, time.Second) // the owner asks Redis for its room twice a second
		done := 0
		for n := 0; ctx.Err() == nil; n++ {
			c := w.clients[n%len(w.clients)]
			if _, err := c.tasks.SubmitTasks(t.Context(), &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{page("backlog", 1)}}); reason(err) != "STORE_FULL" {
				t.Errorf("a submit while Redis is full is answered %v", err)
			}
			if r := c.renew(t, "backlog", w.session, held[len(held)-1]); len(r.GetLost()) > 0 {
				t.Errorf("renew while Redis is full: %v", r)
			}
			if done < len(held)-1 {
				w.reportBacklog(t, c, held[done])
				done++
			}
			lasts(ctx, full/300)
		}
		stop()
		others := <-keys
		return fault{fmt.Sprintf("Redis is full, %d keys are of others; %d leases were reported meanwhile", others, done), func() {
			for n := range others {
				foreign.Del(context.WithoutCancel(t.Context()), fmt.Sprint("foreign:", n))
			}
			w.lasts(t, time.Second)
			for _, lease := range slices.Concat(held[done:], w.fetchBacklog(t, backlog-len(held))) {
				w.reportBacklog(t, w.clients[0], lease)
			}
			w.others = backlog
		}, time.Millisecond}
	})
}

func (w *owned) fetchOneOfBacklog(t *testing.T, c *client) (*pb.FetchTaskResponse, error) {
	t.Helper()
	return c.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{
		CollectorId: "backlog", Session: w.session, ClientToken: uuid.NewString(), Pools: []string{"backlog"}, Wait: durationpb.New(0),
	})
}

// fetchBacklog fetches tasks of the backlog.
func (w *owned) fetchBacklog(t *testing.T, n int) (leases []*pb.Lease) {
	t.Helper()
	until(t, time.Minute, "the backlog is granted", func() bool {
		reply, err := w.fetchOneOfBacklog(t, w.clients[0])
		if err != nil {
			t.Fatalf("fetch of the backlog: %v", err)
		}
		for _, task := range reply.GetLeasedTasks() {
			leases = append(leases, task.GetLease())
		}
		return len(leases) == n
	})
	return leases
}

func (w *owned) reportBacklog(t *testing.T, c *client, lease *pb.Lease) {
	t.Helper()
	if r := c.report(t, "backlog", w.session, lease); r.GetCode() != pb.ReportCode_REPORT_CODE_OK {
		t.Errorf("report: %v", r)
	}
}

// fill writes keys for as long as ctx, and whenever there is room again; isFull is closed when there was none first. It returns how
// many keys there are.
func fill(ctx context.Context, c *redis.Client, isFull chan struct{}) (keys int) {
	value, refused := make([]byte, 256<<10), false
	for ctx.Err() == nil {
		if c.Set(ctx, fmt.Sprint("foreign:", keys), value, 0).Err() == nil {
			keys++
			continue
		}
		if !refused {
			refused = true
			close(isFull)
		}
		lasts(ctx, 10*time.Millisecond)
	}
	return keys
}

// TestOwner_Takeover prints how long after the kill of the owner another dispatcher grants the first of many waiting tasks, of which
// WAGGLE_E2E_TAKEOVER says the number. It asserts no time.
func TestOwner_Takeover(t *testing.T) {
	t.Parallel()
	tasks := numberOf(t, "WAGGLE_E2E_TAKEOVER", 20_000)
	server := redistest.Start(t)
	owner := serve(t, "owner", server.URL(), "waggle")
	next := serve(t, "next", server.URL(), "waggle")
	c := dial(t, next.addr)
	c.createSource(t, &pb.SourceSpec{Id: "many"})
	c.submitMany(t, "many", "host-%d.example", 5000, tasks)
	session := uuid.NewString()
	caller := newCaller(nil, 0, []*client{c})
	owner.signal(syscall.SIGKILL)
	began := time.Now()
	for granted := false; !granted; {
		request := &pb.FetchTaskRequest{CollectorId: "a", Session: session, ClientToken: uuid.NewString(), Wait: durationpb.New(5 * time.Second)}
		if !caller.answered(t.Context(), func(ctx context.Context, c *client) error {
			reply, err := c.dispatch.FetchTask(ctx, request)
			granted = len(reply.GetLeasedTasks()) > 0
			return err
		}) {
			t.FailNow()
		}
	}
	took := time.Since(began)
	if n := c.stats(t).GetTasks(); int(n.GetReady()+n.GetLeased()) != tasks {
		t.Errorf("%d tasks are READY and %d LEASED, of %d", n.GetReady(), n.GetLeased(), tasks)
	}
	t.Logf("%d tasks: first grant %.2f s after the kill of the owner", tasks, took.Seconds())
}

// numberOf is a number of the environment.
func numberOf(t *testing.T, variable string, other int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return other
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s: %q is no number from 1 on", variable, text)
	}
	return n
}

// submitMany submits tasks of a source over a number of hosts, whose names have their number in them.
func (c *client) submitMany(t *testing.T, source, host string, hosts, tasks int) (ids []string) {
	t.Helper()
	var mu sync.Mutex // guards ids
	const batch, submitters = 1000, 8
	var submitting errgroup.Group
	submitting.SetLimit(submitters)
	for first := 0; first < tasks; first += batch {
		submitting.Go(func() error {
			items := make([]*pb.SubmitItem, min(batch, tasks-first))
			for i := range items {
				n := first + i
				items[i] = &pb.SubmitItem{SourceId: source, Url: fmt.Sprintf("https://"+host+"/some/path/of/usual/length/%d", n%hosts, n)}
			}
			reply, err := c.tasks.SubmitTasks(t.Context(), &pb.SubmitTasksRequest{Items: items})
			mu.Lock()
			defer mu.Unlock()
			for _, r := range reply.GetResults() {
				ids = append(ids, r.GetTaskId())
			}
			return err
		})
	}
	if err := submitting.Wait(); err != nil {
		t.Fatal(err)
	}
	return ids
}
