package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestStore_NamedSource looks at what is kept of a source: nothing more until a claim
// names it, and nothing more when none did for long.
func TestStore_NamedSource(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithClock())
	clock := server.Clock()
	clock.Freeze()
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	k := key.Prefix("waggle").Shard(0)
	gate := sourceGate("source")
	naming := func() dispatch.Want {
		w := want(1)
		w.SourceUIDs = []string{gate.UID}
		return w
	}
	kept := func(when string, want int64, keys ...string) {
		t.Helper()
		if n, err := client.Exists(t.Context(), keys...).Result(); err != nil || n != want {
			t.Errorf("%s: %d of the keys %s, %v, want %d", when, n, keys, err, want)
		}
	}
	all := []string{k.SourceOpen(1), k.SourceWait(1), k.QueueAside(pool, "a.example")}

	for _, queue := range []string{"a.example", "b.example"} {
		submit(t, s, gate, submissions(&gate, queue, 2)...)
	}
	claimOne(t, s)
	kept("while no claim names it", 0, all...)
	for range 2 {
		if got := len(claim(t, s, naming())); got > 1 {
			t.Errorf("granted %d", got)
		}
	}
	kept("while both queues are held", 2, all[1:]...)
	clock.Advance(25 * time.Hour)
	submit(t, s, gate, submissions(&gate, "c.example", 1)...)
	kept("when no claim has named it for a day", 0, all[:2]...)
	if got := len(claim(t, s, naming())); got != 1 {
		t.Errorf("granted %d when it was named again", got)
	}
	kept("when it was named again", 2, all[1:]...)
}

// BenchmarkClaimNamed claims for a source of many queues of which one has something to
// give, and reports what such a claim costs Redis: each of the first ones, which list
// the queues; one that finds it; and one that finds nothing.
func BenchmarkClaimNamed(b *testing.B) {
	for _, c := range []struct {
		name   string
		queues int
		host   string
	}{
		{"queues=1", 1, "host-%d.held"},
		{"queues=30000/held", 30_000, "host-%d.held"},
		{"queues=30000/empty", 30_000, "host-%d.empty"},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := newBenchLoad(b, 1)
			l.many(b, c.queues, c.host)
			naming := want(1)
			naming.SourceUIDs = []string{l.gate.UID}
			before := l.cpu(b)
			first := l.claimUntil(b, naming, true)
			listing := l.cpu(b) - before
			var found, nothing time.Duration
			rounds := 0
			for b.Loop() {
				rounds++
				submit(b, l.store, l.gate, submission(&l.gate, "zz.example", fmt.Sprintf("https://example/%d", rounds)))
				before = l.cpu(b)
				l.claimUntil(b, naming, true)
				between := l.cpu(b)
				l.claimUntil(b, naming, false)
				found, nothing = found+between-before, nothing+l.cpu(b)-between
			}
			b.ReportMetric(float64(first), "first-calls")
			b.ReportMetric(float64(listing.Microseconds())/float64(first), "redis-µs/first-call")
			b.ReportMetric(float64(found.Microseconds())/float64(rounds), "redis-µs/found")
			b.ReportMetric(float64(nothing.Microseconds())/float64(rounds), "redis-µs/nothing")
		})
	}
}

// many makes a source with lanes in many queues, whose tasks are held or
// done, and one task in another.
func (l *benchLoad) many(b *testing.B, queues int, host string) {
	b.Helper()
	var err error
	if l.holds, err = l.store.PutHolds(b.Context(), hold("held"), 0); err != nil {
		b.Fatal(err)
	}
	for made := 0; made < queues; {
		var items []dispatch.Submission
		for ; made < queues && len(items) < 100; made++ {
			items = append(items, submission(&l.gate, fmt.Sprintf(host, made), fmt.Sprintf("https://example/%d", made)))
		}
		submit(b, l.store, l.gate, items...)
	}
	for more := true; more; {
		reply, err := l.store.Claim(b.Context(), 0, pool, l.holds, []dispatch.Want{want(100)})
		if err != nil {
			b.Fatal(err)
		}
		if len(reply.Grants[0]) > 0 {
			l.finish(b, reply.Grants[0])
		}
		more = reply.More || len(reply.Grants[0]) > 0
	}
	submit(b, l.store, l.gate, submission(&l.gate, "zz.example", "https://example/first"))
}

// claimUntil claims until there is no more, or something is granted, which is checked,
// and says how many calls it took.
func (l *benchLoad) claimUntil(b *testing.B, w dispatch.Want, granted bool) int {
	b.Helper()
	for calls := 1; ; calls++ {
		fresh := want(1)
		w.ClientToken, w.Call = fresh.ClientToken, fresh.Call
		reply, err := l.store.Claim(b.Context(), 0, pool, l.holds, []dispatch.Want{w})
		if err != nil {
			b.Fatal(err)
		}
		if got := len(reply.Grants[0]) > 0; got || !reply.More {
			if got != granted {
				b.Fatalf("granted is %v after %d calls, want %v", got, calls, granted)
			}
			return calls
		}
	}
}

// TestStore_NamedSource_LaneReplaced empties the only lane of a queue, whose source claims name,
// and has another source's task come back to the queue in the same call: nothing is left that a
// claim for the first source would look at.
func TestStore_NamedSource_LaneReplaced(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithClock())
	server.Clock().Freeze()
	s := open(t, redisstore.Config{URL: server.URL()})
	openRule(t, s)
	named, other := sourceGate("named"), sourceGate("other")
	submit(t, s, other, submissions(&other, "a.example", 1)...)
	held := claimOne(t, s)
	later := submission(&named, "a.example", "https://a.example/later")
	later.Due = server.Clock().Now().Add(time.Hour)
	submit(t, s, named, later)
	naming := want(1)
	naming.SourceUIDs = []string{named.UID}
	if got := len(claim(t, s, naming)); got != 0 {
		t.Fatalf("granted %d tasks that are due later", got)
	}
	tasks, _, err := s.Tasks(t.Context(), []dispatch.TaskID{later.ID}, false)
	if err != nil {
		t.Fatal(err)
	}
	back := done(&held)
	back.State, back.Settled, back.Shrink = dispatch.StateScheduled, false, false
	results, err := s.Apply(t.Context(), []dispatch.Transition{
		{ID: later.ID, Revision: tasks[0].Revision, State: dispatch.StateCanceled, Settled: true, Remember: time.Hour, Queue: dispatch.QueueEffect{Kind: dispatch.QueueUntouched}},
		back,
	})
	if err != nil || results[0].Code != dispatch.Applied || results[1].Code != dispatch.Applied {
		t.Fatalf("Apply: %+v, %v", results, err)
	}
	sound(t, s)
}
