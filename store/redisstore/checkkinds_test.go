package redisstore_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/storetest"
)

// endByItself are kinds of keys that only bound what is repeated, or that others write anew: nothing is wrong without them.
var endByItself = []string{"picks", "acked", "keeper", "keep", "cause", "duty", "filtered"}

// TestStore_Check_eachKind deletes one key of each kind: a check finds it, a repair mends it, and then nothing is found.
func TestStore_Check_eachKind(t *testing.T) {
	t.Parallel()
	c := newCrawl(t, small)
	c.addHolds(t)
	if _, err := c.Beats(t.Context(), []dispatch.CollectorInfo{{ID: "a", Session: "s"}, {ID: "b", Session: "s", Ended: true}}); err != nil {
		t.Fatal(err)
	}
	sound(t, c.Store)
	r := rand.New(rand.NewPCG(storetest.Seed(t), 4))
	for _, kind := range []string{
		"closed", "colls", "counts", "ended", "ends", "forget", "held", "heldqueues", "heldsources", "idle", "kept", "l", "lanes", "lc", "ld", "leases", "po", "pools", "pw", "q", "qo", "qw",
		"queues", "s", "seen", "settings", "shard", "so", "sw", "sources", "pending", "src", "uid", "version",
	} {
		if kind == "so" || kind == "sw" { // a repair ends them: the next claim that names the source lists its lanes anew
			c.nameSource(t, kind)
		}
		names := c.keys(t, func(k string) bool { return k == kind })
		if len(names) == 0 {
			t.Errorf("the store has no key of kind %s", kind)
			continue
		}
		name := names[r.IntN(len(names))]
		remove(t, c.client, name)
		c.repairs(t, "deleted "+name)
	}
	for _, name := range c.keys(t, func(kind string) bool { return slices.Contains(endByItself, kind) }) {
		remove(t, c.client, name)
	}
	sound(t, c.Store)
}

// addHolds holds queues and a source.
func (c *crawl) addHolds(t *testing.T) {
	t.Helper()
	if _, err := c.PutHolds(t.Context(), hold("flat.example"), 0); err != nil {
		t.Fatal(err)
	}
	src := &dispatch.Source{ID: "held", UID: "held", Version: 1, Holds: []dispatch.Hold{{Target: dispatch.HoldTarget{Source: "held"}}}}
	if err := c.PutSource(t.Context(), src, 0); err != nil {
		t.Fatal(err)
	}
}

// nameSource has a claim name a source, so that its lanes are listed for such claims, and submits to a new queue of it.
func (c *crawl) nameSource(t *testing.T, queue string) {
	t.Helper()
	_, holds, _, err := c.Holds(t.Context(), -1)
	if err != nil {
		t.Fatal(err)
	}
	w := want(1)
	w.SourceUIDs = []string{"uid0"}
	reply, err := c.Claim(t.Context(), 0, pool, holds, []dispatch.Want{w})
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range reply.Grants[0] {
		c.held[g.Task.ID] = g
	}
	c.fill(t, c.gate(t, "uid0"), queue+".named.example", 3)
}

// repairs holds that a check finds something, a repair mends it, and then nothing is found.
func (c *crawl) repairs(t *testing.T, what string) {
	t.Helper()
	if report := checked(t, c.Store, false); report.Left() == 0 {
		t.Errorf("%s: a check finds nothing", what)
	}
	report := checked(t, c.Store, true)
	if report.Left() > 0 {
		t.Errorf("%s: %d findings are left", what, report.Left())
		logFindings(t, report)
	}
	failed := t.Failed()
	if sound(t, c.Store); t.Failed() && !failed {
		t.Errorf("%s", what)
		logFindings(t, report)
		t.FailNow()
	}
}

// TestStore_Check_wrongValues writes wrong values to keys.
func TestStore_Check_wrongValues(t *testing.T) {
	t.Parallel()
	c := newCrawl(t, small)
	sound(t, c.Store)
	first := func(kind string) string {
		t.Helper()
		names := c.keys(t, func(k string) bool { return k == kind })
		if len(names) == 0 {
			t.Fatalf("no key of kind %s", kind)
		}
		return names[len(names)/2]
	}
	value := func(name string) string {
		t.Helper()
		text, err := c.client.Get(t.Context(), name).Result()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	set := func(name, text string) { must(c.client.Set(t.Context(), name, text, redis.KeepTTL).Err()) }
	member := func(name string) string {
		t.Helper()
		members, err := c.client.ZRange(t.Context(), name, 0, 0).Result()
		must(err)
		return members[0]
	}
	move := func(kind string, by float64) func() {
		return func() {
			name := first(kind)
			must(c.client.ZIncrBy(t.Context(), name, by, member(name)).Err())
		}
	}
	add := func(kind, of string) func() {
		return func() { must(c.client.ZAdd(t.Context(), first(kind), redis.Z{Score: 1 << 50, Member: of}).Err()) }
	}
	for _, test := range []struct {
		name   string
		damage func()
	}{
		{"a queue's value is shorter", func() { name := first("q"); set(name, value(name)[:40]) }},
		{"a queue's value is longer", func() { name := first("q"); set(name, value(name)+"more") }},
		{"a queue's value is empty", func() { set(first("q"), "") }},
		{"a queue's value is text", func() { set(first("q"), strings.Repeat("queue ", 30)) }},
		{"a queue counts other tasks", func() { name := first("q"); v := []byte(value(name)); v[27]++; set(name, string(v)) }},
		{"a queue counts other leases", func() { name := first("q"); v := []byte(value(name)); v[23] += 3; set(name, string(v)) }},
		{"a lane's value is shorter", func() { name := first("l"); set(name, value(name)[:20]) }},
		{"a lane's value is longer", func() { name := first("l"); set(name, value(name)+"x") }},
		{"a gate is shorter", func() { name := first("src"); set(name, value(name)[:30]) }},
		{"a gate is longer", func() { name := first("src"); set(name, value(name)+"x") }},
		{"counts are shorter", func() { name := first("counts"); set(name, value(name)[:30]) }},
		{"counts are higher", func() { name := first("counts"); v := []byte(value(name)); v[11]++; set(name, string(v)) }},
		{"the shard's counts are higher", func() { name := first("shard"); v := []byte(value(name)); v[11]++; set(name, string(v)) }},
		{"a uid has another number", func() { set(first("uid"), "999") }},
		{"a task has another score in its lane", move("s", 1)},
		{"a task is early in its lane", move("s", -(1 << 48))},
		{"a lane has another score in its queue", move("qo", 1)},
		{"a queue has another score in its pool", move("pw", 1)},
		{"a lease is looked at late", move("leases", 1e6)},
		{"the lock of a lease has no end", func() { must(c.client.Persist(t.Context(), first("lock")).Err()) }},
		{"an entry of a lane is of no task", add("s", "aaaaaaaaaaaaaaaaaaaaaaaaaa")},
		{"an entry of a pool is of no queue", add("pw", "nothing.example")},
		{"an entry of the lease index is of no task", add("leases", "1-aaaaaaaaaaaaaaaaaaaaaaaaaa:1:h1.flat.example")},
		{"an entry of the lease index is none", add("leases", "nonsense")},
		{"an entry of dead tasks is of no task", add("ld", "1-aaaaaaaaaaaaaaaaaaaaaaaaaa")},
		{"an entry of canceled tasks is of no task", add("lc", "1-aaaaaaaaaaaaaaaaaaaaaaaaaa")},
		{"a queue is listed that is none", func() { must(c.client.ZAdd(t.Context(), first("queues"), redis.Z{Member: "example.nothing"}).Err()) }},
		{"a lane is listed that is none", func() { must(c.client.SAdd(t.Context(), first("lanes"), "nothing.example").Err()) }},
		{"a source is named that is gone", func() { must(c.client.HSet(t.Context(), "waggle:{0}:named", "77", "x").Err()) }},
		{"a lane is kept that has nothing", func() { must(c.client.SAdd(t.Context(), first("kept"), "1:nothing.example").Err()) }},
		{"a grant counts other tasks", func() { must(c.client.HSet(t.Context(), first("held"), "token", 3).Err()) }},
		{"closed queues are counted that are none", func() { must(c.client.HIncrBy(t.Context(), first("closed"), "full:default", 2).Err()) }},
		{"settings are others", func() { must(c.client.HSet(t.Context(), first("settings"), "*", "0 9 0 0 0 *").Err()) }},
		{"details are of no task", func() { must(c.client.HSet(t.Context(), "waggle:{0}:d:1-aaaaaaaaaaaaaaaaaaaaaaaaaa", "c", "x").Err()) }},
	} {
		test.damage()
		c.repairs(t, test.name)
	}
	want := c.openTasks(t)
	reported := c.drain(t)
	for _, id := range want {
		if !reported[id] {
			t.Errorf("task %s was not reported", id)
		}
	}
	sound(t, c.Store)
}
