//go:build e2e

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/deploy/e2e/history"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/store/redistest"
)

const (
	ownedCollectors, ownedRaw = 2, 3
	// ownedLimit is the most that grants may be away: a term of 3 s, and all that a busy machine adds.
	ownedLimit = 30 * time.Second
	// ownedLease is the lease of the client that reports late.
	ownedLease = time.Second
)

// ownedURL is the URL of a store that one dispatcher at a time owns, in the Redis of another URL.
func ownedURL(url string) string { return strings.Replace(url, "://", "-owner://", 1) }

// ownedRounds is how often something fails: WAGGLE_E2E_ROUNDS, else a few times.
func ownedRounds(t *testing.T, few int) int {
	t.Helper()
	text := os.Getenv("WAGGLE_E2E_ROUNDS")
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("WAGGLE_E2E_ROUNDS: %q is no number of rounds", text)
	}
	return n
}

// owned is a soak on a store that one dispatcher owns, with collectors of the library and raw clients, of which one reports
// when its leases have run out. One thing fails at a time.
type owned struct {
	*soak

	random *rand.Rand
	load   *failoverLoad // the grants of raw clients
	gaps   []time.Duration
}

// newOwned starts everything on a Redis that keeps each write; dispatchers reach it by proxies.
func newOwned(t *testing.T, opts ...redistest.Option) *owned {
	t.Helper()
	random := seeded(t)
	server := redistest.Start(t, append([]redistest.Option{redistest.WithAOF(redistest.FsyncAlways)}, opts...)...)
	w := &owned{soak: newSoak(t, 1+3*random.IntN(2), server), random: random}
	for range soakDispatchers {
		link := redistest.NewProxy(t, server.Addr())
		w.links, w.stores = append(w.links, link), append(w.stores, ownedURL(link.URL()))
	}
	w.start(t)
	return w
}

// start starts dispatchers, collectors and raw clients.
func (w *owned) start(t *testing.T) {
	t.Helper()
	w.crew, w.load = ownedCollectors, &failoverLoad{accepted: make(map[string]int)}
	w.soak.start(t)
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	dir := t.TempDir()
	for n := range ownedRaw + 1 {
		id := fmt.Sprintf("raw-%d", n)
		path := filepath.Join(dir, id+".jsonl")
		log, err := history.Open(path, id)
		if err != nil {
			t.Fatal(err)
		}
		w.logs, w.killed[id] = append(w.logs, path), true
		c := &caller{at: n % len(w.addrs)}
		for _, addr := range w.addrs {
			c.all = append(c.all, dial(t, addr, log.DialOptions()...))
		}
		working.Go(func() {
			if n < ownedRaw {
				w.load.work(ctx, id, c)
			} else {
				workLate(ctx, id, c)
			}
			if err := log.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	w.calm = func() {
		stop()
		working.Wait()
	}
	t.Cleanup(w.calm)
}

// workLate fetches a task at a time, and reports it when its lease has run out, and others had the time to get it.
func workLate(ctx context.Context, id string, c *caller) {
	session := uuid.NewString()
	for ctx.Err() == nil {
		request := &pb.FetchTaskRequest{
			CollectorId: id, Session: session, ClientToken: uuid.NewString(), Wait: durationpb.New(time.Second), LeaseDuration: durationpb.New(ownedLease),
		}
		var reply *pb.FetchTaskResponse
		c.answered(ctx, func(ctx context.Context, c *client) (err error) {
			reply, err = c.dispatch.FetchTask(ctx, request)
			return err
		})
		lasts(ctx, 2*ownedLease)
		for _, task := range reply.GetLeasedTasks() {
			report := &pb.ReportTaskRequest{CollectorId: id, Session: session, Reports: []*pb.TaskReport{
				{TaskId: task.GetTask().GetId(), LeaseToken: task.GetLease().GetLeaseToken(), Outcome: success()},
			}}
			c.answered(ctx, func(ctx context.Context, c *client) error { _, err := c.dispatch.ReportTask(ctx, report); return err })
		}
	}
}

// owner is the number of the dispatcher that owns shard 0; -1: none of them.
func (w *owned) owner(t *testing.T) int {
	t.Helper()
	var record struct {
		Address string `json:"address"`
	}
	text := redisCLI(t, w.servers[0], "GET", "waggle:{0}:owner")
	if err := json.Unmarshal([]byte(text), &record); err != nil {
		t.Fatalf("the owner's record is %q", text)
	}
	return slices.Index(w.addrs, record.Address)
}

// rounds lets something fail again and again. Each time grants must go on, while it fails or, if a fault lasts for some time,
// after that.
func (w *owned) rounds(t *testing.T, n int, begin func() fault) {
	t.Helper()
	for round := range n {
		w.granted(t, time.Now())
		began := time.Now()
		f := begin()
		if f.most == 0 {
			w.granted(t, began)
		} else {
			w.lasts(t, f.most)
		}
		f.end()
		w.granted(t, time.Now())
		gap := w.load.longestGap(began)
		w.gaps = append(w.gaps, gap)
		t.Logf("round %d: %s; %.2f s without grants", round, f.name, gap.Seconds())
	}
}

// granted waits until raw clients get tasks after an instant. What has ended is started again.
func (w *owned) granted(t *testing.T, after time.Time) {
	t.Helper()
	until(t, ownedLimit, "tasks are granted", func() bool {
		w.keepUp()
		return w.load.grants(after) > 20
	})
}

// lasts lets time pass. What has ended is started again.
func (w *owned) lasts(t *testing.T, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); lasts(t.Context(), 10*time.Millisecond) {
		w.keepUp()
	}
}

// check runs rounds, and then checks everything.
func (w *owned) check(t *testing.T, n int, begin func() fault) {
	t.Helper()
	w.run(t, func() { w.rounds(t, n, begin) })
	slices.Sort(w.gaps)
	t.Logf("%d rounds: without grants for %.2f s at most, median %.2f s; %d tasks acknowledged", len(w.gaps),
		w.gaps[len(w.gaps)-1].Seconds(), w.gaps[len(w.gaps)/2].Seconds(), len(w.ids))
}
