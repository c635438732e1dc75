package redisstore_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redistest"
	"github.com/waggle-crawl/waggle/store/storetest"
)

// crawl is a store with tasks in all states, and what a test knows of them.
type crawl struct {
	*redisstore.Store
	client *redis.Client
	clock  *redistest.Clock
	prefix string
	held   map[dispatch.TaskID]dispatch.Grant
	lost   map[dispatch.TaskID]bool // whose records were deleted
	queues map[string]string        // uids of sources with tasks there
}

// crawlSize is how much a crawl has of everything.
type crawlSize struct {
	shards, sources int
	flat, wide      int // queues with one lane, and with several
	leased          int
}

// large has some thousand tasks, and small some of every kind.
var (
	large = crawlSize{shards: 1, sources: 24, flat: 240, wide: 16, leased: 150}
	small = crawlSize{shards: 1, sources: 8, flat: 24, wide: 6, leased: 30}
)

// newCrawl fills a store whose clock stands still.
func newCrawl(t *testing.T, size crawlSize) *crawl {
	t.Helper()
	server := redistest.Start(t, redistest.WithClock())
	server.Clock().Freeze()
	c := &crawl{client: redisClient(t, server.URL()), clock: server.Clock(), prefix: "waggle", held: map[dispatch.TaskID]dispatch.Grant{}, lost: map[dispatch.TaskID]bool{}, queues: map[string]string{}}
	c.Store = open(t, redisstore.Config{URL: server.URL(), Shards: size.shards})
	rule := dispatch.QueueRule{Pattern: "*", Settings: dispatch.QueueSettings{MinDelay: time.Second, MaxInFlight: 3, MaxBlock: time.Hour}}
	if _, err := c.PutRule(t.Context(), rule.Pattern, &rule, rulesVersion(t, c.Store)); err != nil {
		t.Fatal(err)
	}
	gates := make([]dispatch.SourceGate, size.sources)
	for i := range gates {
		src := &dispatch.Source{ID: fmt.Sprintf("s%d", i), UID: fmt.Sprintf("uid%d", i), Version: 1, Spec: dispatch.SourceSpec{Pool: poolOf(i), Priority: 5}}
		if i%3 > 0 {
			src.Spec.Remember = 24 * time.Hour
		}
		if err := c.PutSource(t.Context(), src, 0); err != nil {
			t.Fatal(err)
		}
		gates[i] = src.Gate()
	}
	for i := range size.flat {
		c.fill(t, &gates[i%size.sources], fmt.Sprintf("h%d.flat.example", i), 3+i%7)
	}
	for i := range size.wide {
		for k := range 5 {
			c.fill(t, &gates[(i+k)%size.sources], fmt.Sprintf("h%d.wide.example", i), 8)
		}
	}
	c.fillLater(t, gates[:3])
	for n := range 8 {
		c.grant(t, 5)
		for id := range c.held {
			if len(c.held) > size.leased && n < 6 {
				c.end(t, id, n)
			}
		}
		c.clock.Advance(1100 * time.Millisecond)
	}
	for i := range 3 { // nobody has been granted of these
		c.fill(t, &gates[i], "open.example", 8)
	}
	return c
}

func poolOf(i int) string { return []string{pool, "browser"}[i%2] }

// fill submits tasks to a queue: some for later, some recurring.
func (c *crawl) fill(t *testing.T, gate *dispatch.SourceGate, queue string, n int) {
	t.Helper()
	c.queues[queue] = gate.UID
	items := submissions(gate, queue, n)
	for i := range items {
		items[i].Key = gate.UID + items[i].URL
		items[i].ID = dispatch.NewTaskID(dispatch.Identity{Scope: gate.UID, Queue: queue, Key: items[i].Key})
		items[i].Priority = i % 10
		items[i].Recurring = i%4 == 0
		if i%5 == 4 {
			items[i].Due = c.clock.Now().Add(time.Duration(i) * time.Minute)
		}
	}
	submit(t, c.Store, *gate, items...)
}

// fillLater submits to a queue with several lanes whose tasks are all due later.
func (c *crawl) fillLater(t *testing.T, gates []dispatch.SourceGate) {
	t.Helper()
	for i := range gates {
		items := submissions(&gates[i], "later.example", 2)
		for k := range items {
			items[k].Due = c.clock.Now().Add(time.Hour)
		}
		submit(t, c.Store, gates[i], items...)
	}
	c.queues["later.example"] = gates[0].UID
}

// grant claims in all shards and pools, and returns how many tasks were granted.
func (c *crawl) grant(t *testing.T, each int) (granted int) {
	t.Helper()
	for shard := range c.Shards() {
		for i := range 2 {
			reply, err := c.Claim(t.Context(), shard, poolOf(i), 0, []dispatch.Want{want(each), want(20 * each), want(1)})
			if err != nil {
				t.Fatalf("Claim: %v", err)
			}
			for _, grants := range reply.Grants {
				for _, g := range grants {
					if _, twice := c.held[g.Task.ID]; twice {
						t.Errorf("task %s was granted twice at a time", g.Task.ID)
					}
					c.held[g.Task.ID] = g
					granted++
				}
			}
		}
	}
	return granted
}

// end reports a task, each in another way.
func (c *crawl) end(t *testing.T, id dispatch.TaskID, n int) {
	t.Helper()
	g := c.held[id]
	tr := done(&g)
	switch n % 6 {
	case 1:
		tr.State, tr.Shrink, tr.LastError = dispatch.StateDead, false, &dispatch.Failure{Message: "broken"}
		tr.Result = dispatch.ResultFailed
	case 2:
		tr.State, tr.Remember = dispatch.StateCanceled, 0
	case 3:
		tr.Remember, tr.Memo = 0, []byte("memo")
	case 4:
		tr.State, tr.Due, tr.Settled, tr.Shrink = dispatch.StateScheduled, c.clock.Now().Add(time.Hour), false, false
	}
	delete(c.held, id)
	results, err := c.Apply(t.Context(), []dispatch.Transition{tr})
	if err != nil {
		t.Fatalf("Apply: %v", err)
	}
	if code := results[0].Code; code != dispatch.Applied && (code != dispatch.ApplyNotFound || !c.lost[id]) {
		t.Errorf("report of task %s: code %d, its record was deleted: %t", id, code, c.lost[id])
	}
}

// gate is that of a source.
func (c *crawl) gate(t *testing.T, uid string) *dispatch.SourceGate {
	t.Helper()
	found, err := c.SourcesByID(t.Context(), []string{"s" + uid[len("uid"):]})
	if err != nil {
		t.Fatal(err)
	}
	gate := found[0].Gate()
	return &gate
}

// submitToAll submits a new task to each queue, as its source.
func (c *crawl) submitToAll(t *testing.T) {
	t.Helper()
	for queue, uid := range c.queues {
		gate := c.gate(t, uid)
		item := submission(gate, queue, fmt.Sprintf("https://%s/new/%d", queue, len(c.lost)))
		if _, err := c.Submit(t.Context(), rulesVersion(t, c.Store), []dispatch.SourceGate{*gate}, []dispatch.Submission{item}); err != nil {
			t.Fatalf("Submit: %v", err)
		}
	}
}

// drain grants and reports until nothing comes any more, and gives what was reported.
func (c *crawl) drain(t *testing.T) map[dispatch.TaskID]bool {
	t.Helper()
	reported := map[dispatch.TaskID]bool{}
	for idle := 0; idle < 70; idle++ {
		if c.grant(t, 50) > 0 {
			idle = 0
		}
		for id := range c.held {
			c.end(t, id, 0)
			reported[id] = true
		}
		c.clock.Advance(time.Minute + 11*time.Second)
		for shard := range c.Shards() {
			if _, err := c.Expired(t.Context(), shard, 100); err != nil {
				t.Fatalf("Expired: %v", err)
			}
		}
	}
	c.sweep(t)
	return reported
}

// sweep forgets what is to be forgotten by now.
func (c *crawl) sweep(t *testing.T) {
	t.Helper()
	for range 50 {
		for shard := range c.Shards() {
			if _, err := c.Expired(t.Context(), shard, 100); err != nil {
				t.Fatalf("Expired: %v", err)
			}
		}
	}
}

// keys are the names of all keys of the kinds, or of all kinds but those.
func (c *crawl) keys(t *testing.T, wanted func(kind string) bool) (names []string) {
	t.Helper()
	all, err := c.client.Keys(t.Context(), c.prefix+":{*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if wanted(kindOf(name)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func kindOf(name string) string {
	_, rest, _ := strings.Cut(name, "}:")
	kind, _, _ := strings.Cut(rest, ":")
	return kind
}

// origins are the kinds of keys that are derived from no other: what is lost there is lost.
var origins = []string{"t", "d", "h", "source", "rules", "holds", "coll", "used", "polled", "lock", "bind", "audit"}

func isDerived(kind string) bool { return !slices.Contains(origins, kind) }

// lose deletes n of the keys, of each kind at least one.
func (c *crawl) lose(t *testing.T, r *rand.Rand, names []string, n int) {
	t.Helper()
	r.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	kinds := map[string]int{}
	var first, others []string
	for _, name := range names {
		if kinds[kindOf(name)]++; kinds[kindOf(name)] == 1 {
			first = append(first, name)
		} else {
			others = append(others, name)
		}
	}
	lost := slices.Concat(first, others)
	lost = lost[:min(n, len(lost))]
	if err := c.client.Del(t.Context(), lost...).Err(); err != nil {
		t.Fatal(err)
	}
	clear(kinds)
	for _, name := range lost {
		kinds[kindOf(name)]++
		if _, id, ok := strings.Cut(name, "}:t:"); ok {
			c.lost[dispatch.TaskID(id)] = true
		}
	}
	t.Logf("WAGGLE_SEED=%d deleted %d of %d keys: %v", storetest.Seed(t), len(lost), len(names), kinds)
}

// open tasks are those whose records wait or are leased, by id.
func (c *crawl) openTasks(t *testing.T) []dispatch.TaskID {
	t.Helper()
	var ids, open []dispatch.TaskID
	for _, name := range c.keys(t, func(kind string) bool { return kind == "t" }) {
		_, id, _ := strings.Cut(name, "}:t:")
		ids = append(ids, dispatch.TaskID(id))
	}
	tasks, _, err := c.Tasks(t.Context(), ids, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if task != nil && (task.State == dispatch.StateReady || task.State == dispatch.StateScheduled || task.State == dispatch.StateLeased) {
			open = append(open, task.ID)
		}
	}
	return open
}

// sound holds that a check of a store finds nothing.
func sound(t *testing.T, s *redisstore.Store) {
	t.Helper()
	if report := checked(t, s, false); report.Left() > 0 {
		t.Errorf("a check finds %d", report.Left())
		logFindings(t, report)
	}
}

// TestStore_Check_lost deletes keys, and holds that the tasks that nobody would ever be granted are found, and granted
// once the store is repaired.
func TestStore_Check_lost(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		shards  int
		records bool
	}{{"indexes", 1, false}, {"indexes of 3 shards", 3, false}, {"records too", 1, true}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			size := large
			size.shards = test.shards
			c := newCrawl(t, size)
			sound(t, c.Store)
			r := rand.New(rand.NewPCG(storetest.Seed(t), 1))
			c.lose(t, r, c.keys(t, func(kind string) bool { return isDerived(kind) || test.records && kind == "t" }), 560)
			c.submitToAll(t)
			c.drain(t)
			stuck := c.openTasks(t)
			t.Logf("%d tasks are granted to nobody", len(stuck))
			if len(stuck) == 0 {
				t.Fatal("all tasks are granted without a repair")
			}
			before := dumpKeys(t, c.client, c.prefix+":*")
			if report := checked(t, c.Store, false); report.Left() == 0 {
				t.Error("a check finds nothing")
			}
			if after := dumpKeys(t, c.client, c.prefix+":*"); !maps.Equal(after, before) {
				t.Error("a check without repair changes the store")
				for name := range before {
					if after[name] != before[name] {
						t.Logf("%s was %.300q, is %.300q", name, before[name], after[name])
					}
				}
			}
			report := checked(t, c.Store, true)
			logFindings(t, report)
			if report.Left() > 0 {
				t.Errorf("%d findings are left", report.Left())
			}
			sound(t, c.Store)
			c.drain(t)
			if left := c.openTasks(t); len(left) > 0 {
				t.Errorf("%d tasks are granted to nobody after the repair", len(left))
			}
			sound(t, c.Store)
		})
	}
}

// TestStore_Check_repairedAtOnce repairs a store before anything else has happened to it: all tasks that have a record
// are granted, or are held as before.
func TestStore_Check_repairedAtOnce(t *testing.T) {
	t.Parallel()
	for n := range uint64(3) {
		t.Run(fmt.Sprint("seed ", n), func(t *testing.T) {
			t.Parallel()
			c := newCrawl(t, large)
			r := rand.New(rand.NewPCG(storetest.Seed(t), n))
			c.lose(t, r, c.keys(t, isDerived), 560)
			report := checked(t, c.Store, true)
			logFindings(t, report)
			if report.Left() > 0 {
				t.Errorf("%d findings are left", report.Left())
			}
			sound(t, c.Store)
			want := c.openTasks(t)
			reported := c.drain(t)
			for _, id := range want {
				if !reported[id] {
					t.Errorf("task %s was not reported", id)
				}
			}
			sound(t, c.Store)
		})
	}
}

// checked checks a store.
func checked(t *testing.T, s *redisstore.Store, repair bool) *redisstore.CheckReport {
	t.Helper()
	report, err := s.Check(t.Context(), repair)
	if err != nil {
		t.Fatalf("Check: %v", err)
	}
	return report
}

func logFindings(t *testing.T, report *redisstore.CheckReport) {
	t.Helper()
	t.Logf("%d passes over %d tasks, %d queues", report.Passes, report.Tasks, report.Queues)
	for _, k := range report.Kinds {
		t.Logf("%s: %d found, %d repaired", k.Kind, k.Found, k.Repaired)
		for _, f := range k.Examples {
			t.Logf("    %s: %s (%t)", f.Name, f.Text, f.Repaired)
		}
	}
}
