//go:build e2e

package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/store/redistest"
)

const (
	chaosTasks    = 10_000
	chaosQueues   = 50
	chaosDelay    = 50 * time.Millisecond
	chaosInFlight = 2
	chaosLease    = 3 * time.Second
	// chaosBound is the least that the tasks can take: each queue's, one after the other, a delay apart.
	chaosBound = chaosTasks / chaosQueues * chaosDelay
	// chaosLimit is the most they may take, on a machine of two cores that is busy with other things too.
	chaosLimit = 75 * time.Second

	// Most tasks take chaosWork; each chaosSlowEvery-th, and so one in a queue now and then, takes longer than a lease, so
	// that leases must be renewed.
	chaosWork      = "60ms"
	chaosSlowEvery = 501
	chaosSlowWork  = "4s"
)

// TestChaos kills two of three dispatchers and three of ten collectors amid 10,000 tasks, and then checks from what the
// collectors wrote down and from the store that no promise was broken. The seed decides who is killed and when, and
// whether there is one shard or four.
func TestChaos(t *testing.T) {
	t.Parallel()
	random := seeded(t)
	w := newChaos(t, 1+3*random.IntN(2))
	began := time.Now()
	for _, kill := range w.plan(random) {
		until(t, chaosLimit, fmt.Sprintf("%d tasks are settled", kill.at), func() bool {
			return w.client.stats(t).GetCounters().GetSettled() >= kill.at
		})
		t.Logf("%v: %d tasks are settled: kill -9 %s", time.Since(began).Round(time.Millisecond), kill.at, kill.victim.name)
		kill.victim.kill()
	}
	until(t, chaosLimit-time.Since(began), "all tasks are DONE", func() bool {
		return w.client.stats(t).GetTasks().GetDone() == chaosTasks
	})
	took := time.Since(began)
	for _, c := range w.collectors {
		if !w.killed[c.name] {
			c.stop(20 * time.Second)
		}
	}
	t.Logf("%d tasks took %v; their queues' delays alone take %v", chaosTasks, took.Round(time.Millisecond), chaosBound)
	w.checkStore(t)
	w.checkHistory(t, chaosDelay, chaosInFlight)
}

// seeded is a random source whose seed is printed: that of the environment's WAGGLE_E2E_SEED, else a new one.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano()) % 1_000_000
	if text := os.Getenv("WAGGLE_E2E_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("WAGGLE_E2E_SEED: %v", err)
		}
	}
	t.Logf("seed: WAGGLE_E2E_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// chaos is the world of TestChaos.
type chaos struct {
	fleet

	dispatchers []*dispatcher
	collectors  []*process
}

// newChaos starts everything. The last dispatcher is the one that lives.
func newChaos(t *testing.T, shards int) *chaos {
	t.Helper()
	t.Logf("shards: %d", shards)
	w := &chaos{fleet: fleet{
		servers: []*redistest.Server{redistest.Start(t, redistest.WithAOF(redistest.FsyncEverySecond))}, shards: shards, killed: map[string]bool{},
	}}
	var servers []string
	for i := range 3 {
		d := serve(t, fmt.Sprintf("dispatcher-%d", i), w.servers[0].URL(), "waggle", "--shards", strconv.Itoa(shards))
		w.dispatchers, servers = append(w.dispatchers, d), append(servers, d.addr)
	}
	w.client = dial(t, servers[2])
	w.client.setRule(t, "*", chaosDelay, chaosInFlight)
	w.client.createSource(t, &pb.SourceSpec{Id: "chaos", LeaseDuration: durationpb.New(chaosLease)})
	items := make([]*pb.SubmitItem, chaosTasks)
	for i := range items {
		work := chaosWork
		if i%chaosSlowEvery == 0 {
			work = chaosSlowWork
		}
		items[i] = &pb.SubmitItem{
			SourceId: "chaos", Url: fmt.Sprintf("https://host-%02d.example/%d", i%chaosQueues, i), Metadata: map[string]string{"work": work},
		}
	}
	for batch := range slices.Chunk(items, 1000) {
		w.ids = append(w.ids, w.client.submit(t, batch...)...)
	}
	dir := t.TempDir()
	for i := range 10 {
		p, log := logCollector(t, fmt.Sprintf("collector-%d", i), dir, 12, servers)
		w.collectors, w.logs = append(w.collectors, p), append(w.logs, log)
	}
	return w
}

// kill is who is killed, and after how many tasks.
type kill struct {
	victim *process
	at     int64
}

// plan says who is to be killed and when, in order: somewhere between a tenth and eight tenths of the work.
func (w *chaos) plan(random *rand.Rand) []kill {
	victims := []*process{w.dispatchers[0].process, w.dispatchers[1].process}
	for _, i := range random.Perm(len(w.collectors))[:3] {
		victims = append(victims, w.collectors[i])
		w.killed[w.collectors[i].name] = true
	}
	random.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
	plan := make([]kill, len(victims))
	for i, at := range random.Perm(chaosTasks * 7 / 10)[:len(victims)] {
		plan[i] = kill{victims[i], int64(at + chaosTasks/10)}
	}
	slices.SortFunc(plan, func(a, b kill) int { return int(a.at - b.at) })
	return plan
}
