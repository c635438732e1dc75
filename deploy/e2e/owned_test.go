//go:build e2e

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/deploy/e2e/history"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/store/redistest"
)

const (
	ownedCollectors, ownedRaw = 2, 3
	// ownedLimit is the most that grants may be away: a term of 3 s, and all that a busy machine adds.
	ownedLimit = 30 * time.Second
	// ownedLease is longer than grants are away, and some tasks take longer, so that leases must be renewed over a takeover.
	ownedLease, ownedSlowWork = 6 * time.Second, "7s"
	// lateLease is the lease of the client that reports late.
	lateLease = time.Second
)

// ownedRounds is how often something fails: WAGGLE_E2E_ROUNDS, else a few times.
func ownedRounds(t *testing.T, few int) int {
	t.Helper()
	return numberOf(t, "WAGGLE_E2E_ROUNDS", few)
}

// owned is a soak on a store that one dispatcher owns, with collectors of the library and raw clients, of which one reports
// when its leases have run out. One thing fails at a time.
type owned struct {
	*soak

	random  *rand.Rand
	raw     int           // raw clients
	late    int           // raw clients that report late
	load    *failoverLoad // the grants of raw clients
	callers []*caller     // of raw clients
	gaps    []time.Duration
	probes  int // calls of replace
	session string
}

// newOwned starts everything on a Redis that keeps each write; dispatchers reach it by proxies.
func newOwned(t *testing.T, opts ...redistest.Option) *owned {
	t.Helper()
	random := seeded(t)
	server := redistest.Start(t, append([]redistest.Option{redistest.WithAOF(redistest.FsyncAlways)}, opts...)...)
	w := ownedBy(newSoak(t, 1+3*random.IntN(2), server), random)
	w.reach(t, soakDispatchers)
	w.start(t)
	return w
}

func ownedBy(of *soak, random *rand.Rand) *owned {
	return &owned{
		soak: of, random: random, raw: ownedRaw, late: 1, session: uuid.NewString(),
		load: &failoverLoad{accepted: make(map[string]int), atOnce: 20},
	}
}

// reach makes the ways of dispatchers to Redis.
func (w *owned) reach(t *testing.T, dispatchers int) {
	t.Helper()
	for range dispatchers {
		link := redistest.NewProxy(t, w.servers[0].Addr())
		w.links, w.stores = append(w.links, link), append(w.stores, link.URL())
	}
}

// start starts dispatchers, collectors and raw clients.
func (w *owned) start(t *testing.T) {
	t.Helper()
	w.crew, w.lease, w.slowWork = ownedCollectors, ownedLease, ownedSlowWork
	w.soak.start(t)
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	dir := t.TempDir()
	for n := range w.raw + w.late {
		id := fmt.Sprintf("raw-%d", n)
		path := filepath.Join(dir, id+".jsonl")
		log, err := history.Open(path, id)
		if err != nil {
			t.Fatal(err)
		}
		w.logs, w.killed[id] = append(w.logs, path), true
		var all []*client
		for _, addr := range w.addrs {
			all = append(all, dial(t, addr, log.DialOptions()...))
		}
		c := newCaller(&w.failures, n%len(w.addrs), all)
		w.callers = append(w.callers, c)
		working.Go(func() {
			if n < w.raw {
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
			CollectorId: id, Session: session, ClientToken: uuid.NewString(), Wait: durationpb.New(time.Second), LeaseDuration: durationpb.New(lateLease),
		}
		var reply *pb.FetchTaskResponse
		c.answered(ctx, func(ctx context.Context, c *client) (err error) {
			reply, err = c.dispatch.FetchTask(ctx, request)
			return err
		})
		lasts(ctx, 2*lateLease)
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
	return slices.Index(w.advertised, record.Address)
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
		w.allServe(t)
		gap := w.load.longestGap(began)
		w.gaps = append(w.gaps, gap)
		t.Logf("round %d: %s; %.2f s without grants", round, f.name, gap.Seconds())
	}
}

// allServe waits until each dispatcher answers from all of the store.
func (w *owned) allServe(t *testing.T) {
	t.Helper()
	for n, c := range w.clients {
		until(t, ownedLimit, fmt.Sprintf("dispatcher %d answers", n), func() bool {
			w.keepUp()
			ctx, cancel := context.WithTimeout(t.Context(), soakCall)
			defer cancel()
			stats, err := c.admin.GetStats(ctx, &pb.GetStatsRequest{})
			return err == nil && len(stats.GetOwnership().GetAwayShards()) == 0
		})
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
	w.showGaps(t)
}

func (w *owned) showGaps(t *testing.T) {
	t.Helper()
	slices.Sort(w.gaps)
	t.Logf("%d rounds: without grants for %.2f s at most, median %.2f s; %d tasks acknowledged", len(w.gaps),
		w.gaps[len(w.gaps)-1].Seconds(), w.gaps[len(w.gaps)/2].Seconds(), len(w.ids))
}

// replace takes an owner away, waits until another dispatcher has taken over, and changes tasks there. Then it asks the one before for
// these tasks and for work. What it returns waits for the answers, none of which may be what was so before. Fetches that have waited
// all the while get nothing that others have.
func (w *owned) replace(t *testing.T, owner int, away func()) (answered func()) {
	t.Helper()
	const tasks, parked, wait = 20, 10, 8 * time.Second
	before, now := w.clients[owner], w.clients[(owner+1)%len(w.clients)]
	w.probes++
	old, late := fmt.Sprintf("old-%d", w.probes), fmt.Sprintf("late-%d", w.probes)
	for _, pool := range []string{old, late} {
		now.createSource(t, &pb.SourceSpec{Id: pool, Pool: pool, LeaseDuration: durationpb.New(time.Minute)})
	}
	items := make([]*pb.SubmitItem, tasks)
	for n := range items {
		items[n] = page(old, n)
	}
	ids := now.submit(t, items...)
	var waiting sync.WaitGroup
	fetch := func(pool string, wait time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		reply, err := before.dispatch.FetchTask(ctx, &pb.FetchTaskRequest{
			CollectorId: "probe", Session: w.session, ClientToken: uuid.NewString(), Pools: []string{pool}, Wait: durationpb.New(wait),
		})
		if err == nil && len(reply.GetLeasedTasks()) > 0 {
			t.Errorf("the owner before has granted what it must not: %v", reply)
		}
	}
	for range parked {
		waiting.Go(func() { fetch(late, wait) })
	}
	until(t, startLimit, "fetches are parked", func() bool {
		stats, err := before.admin.GetStats(t.Context(), &pb.GetStatsRequest{})
		return err == nil && stats.GetDispatcher().GetParkedFetches() >= parked
	})
	began := time.Now()
	away()
	w.granted(t, began)
	if _, err := now.tasks.CancelTasks(t.Context(), &pb.CancelTasksRequest{TaskIds: ids, By: "e2e", Reason: "test"}); err != nil {
		t.Fatalf("cancel tasks: %v", err)
	}
	now.submit(t, page(late, 0))
	reply, err := now.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{
		CollectorId: "holder", Session: w.session, ClientToken: uuid.NewString(), Pools: []string{late}, Wait: durationpb.New(5 * time.Second),
	})
	if err != nil || len(reply.GetLeasedTasks()) != 1 {
		t.Fatalf("fetch at the owner: %v, %v", reply, err)
	}
	for _, id := range ids {
		waiting.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			reply, err := before.tasks.GetTask(ctx, &pb.GetTaskRequest{TaskId: id})
			if state := reply.GetTask().GetState(); err == nil && state != pb.TaskState_TASK_STATE_CANCELED || status.Code(err) == codes.NotFound {
				t.Errorf("the owner before says of a canceled task: %v, %v", state, err)
			}
		})
	}
	waiting.Go(func() { fetch(old, 0) })
	return func() {
		waiting.Wait()
		if r := now.report(t, "holder", w.session, reply.GetLeasedTasks()[0].GetLease()); r.GetCode() != pb.ReportCode_REPORT_CODE_OK {
			t.Errorf("report: %v", r)
		}
		w.others++
	}
}
