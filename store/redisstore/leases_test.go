package redisstore_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// leaseWorld is a store on a server whose clock stands still, and a look at its
// lease index.
type leaseWorld struct {
	*testing.T
	store  *redisstore.Store
	client *redis.Client
	clock  *redistest.Clock
	gate   dispatch.SourceGate
}

func newLeaseWorld(t *testing.T) *leaseWorld {
	t.Helper()
	server := redistest.Start(t, redistest.WithClock())
	server.Clock().Freeze()
	w := &leaseWorld{
		T: t, clock: server.Clock(), client: redisClient(t, server.URL()),
		store: open(t, redisstore.Config{URL: server.URL()}), gate: sourceGate("source"),
	}
	w.gate.Remember = time.Hour // so that a success needs no policy
	openRule(t, w.store)
	return w
}

// lease submits tasks of a queue and claims all that are ready, under leases of d.
func (w *leaseWorld) lease(queue string, n int, d time.Duration) []dispatch.Grant {
	w.Helper()
	submit(w.T, w.store, w.gate, submissions(&w.gate, queue, n)...)
	return w.claimAll(d)
}

// claimAll claims until nothing is ready.
func (w *leaseWorld) claimAll(d time.Duration) (all []dispatch.Grant) {
	w.Helper()
	for {
		ask := want(100)
		ask.Lease = d
		grants := claim(w.T, w.store, ask)
		if len(grants) == 0 {
			return all
		}
		all = append(all, grants...)
	}
}

func (w *leaseWorld) settle(grants []dispatch.Grant) {
	w.Helper()
	for i := range grants {
		settle(w.T, w.store, done(&grants[i]))
	}
}

func (w *leaseWorld) sweep() dispatch.Sweep {
	w.Helper()
	sweep, err := w.store.Expired(w.Context(), 0, bounds.MaxExpired)
	if err != nil {
		w.Fatalf("Expired: %v", err)
	}
	return sweep
}

// pass lets time pass, with a sweep each four seconds, so that no outage is seen.
func (w *leaseWorld) pass(d time.Duration) {
	w.Helper()
	for ; d > 0; d -= 4 * time.Second {
		w.sweep()
		w.clock.Advance(min(d, 4*time.Second))
	}
}

// index is what the lease index holds.
func (w *leaseWorld) index() []string {
	w.Helper()
	members, err := w.client.ZRange(w.Context(), key.Prefix("waggle").Shard(0).Leases(), 0, -1).Result()
	if err != nil {
		w.Fatal(err)
	}
	return members
}

// calls is how often Redis was given a command.
func (w *leaseWorld) calls(command string) int {
	w.Helper()
	text, err := w.client.Info(w.Context(), "commandstats").Result()
	if err != nil {
		w.Fatalf("INFO commandstats: %v", err)
	}
	found := regexp.MustCompile(`cmdstat_` + command + `:calls=(\d+)`).FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		w.Fatal(err)
	}
	return n
}

// renew extends leases, which must all stand.
func (w *leaseWorld) renew(grants []dispatch.Grant) {
	w.Helper()
	for part := range slices.Chunk(grants, 500) {
		renewals := make([]dispatch.Renewal, len(part))
		for i := range part {
			renewals[i] = dispatch.Renewal{ID: part[i].Task.ID, Token: part[i].Token}
		}
		results, err := w.store.Renew(w.Context(), renewals)
		if err != nil {
			w.Fatal(err)
		}
		for i := range results {
			if results[i].Lost != dispatch.LostNone {
				w.Fatalf("renewal %d: %+v", i, results[i])
			}
		}
	}
}

// member is what the lease index has of a task of the gate's source.
func member(id dispatch.TaskID, queue string) string { return string(id) + ":1:" + queue }

// TestExpired_LeaseLeavesTheIndex ends one lease of two: it leaves the index at once. The
// other, which was renewed, stays where it was until a sweep comes to it.
func TestExpired_LeaseLeavesTheIndex(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	w.sweep()
	grants := w.lease("host.example", 2, 10*time.Second)
	w.pass(4 * time.Second)
	w.renew(grants[1:])
	w.settle(grants[:1])
	left := []string{member(grants[1].Task.ID, "host.example")}
	if got := w.index(); !slices.Equal(got, left) {
		t.Errorf("the index holds %q after the end of a lease, want %q", got, left)
	}
	granted, renewed := grants[1].Task.Lease.Deadline, w.clock.Now().Add(10*time.Second).Truncate(time.Millisecond)
	if sweep := w.sweep(); !sweep.Next.Equal(granted) {
		t.Errorf("a sweep is to look next at %v, want the deadline before the renewal, %v", sweep.Next, granted)
	}
	w.pass(5500 * time.Millisecond)
	if sweep := w.sweep(); !sweep.Next.Equal(renewed) {
		t.Errorf("a sweep near a deadline that is none any more is to look next at %v, want %v", sweep.Next, renewed)
	}
	w.settle(grants[1:])
	if sweep := w.sweep(); len(w.index()) > 0 || len(sweep.Expired) > 0 || !sweep.Next.IsZero() {
		t.Errorf("a sweep when all is settled gave %+v and left %q", sweep, w.index())
	}
}

// TestExpired_RenewedDoNotWake renews a thousand leases before their deadlines, which lie
// 10 ms apart: the keeper does not come for each.
func TestExpired_RenewedDoNotWake(t *testing.T) {
	t.Parallel()
	const leases, step = 1000, 10 * time.Millisecond
	w := newLeaseWorld(t)
	submit(t, w.store, w.gate, submissions(&w.gate, "host.example", leases)...)
	next := w.sweep().Next
	var held []dispatch.Grant
	for range leases {
		ask := want(1)
		ask.Lease = 12 * time.Second
		held = append(held, claim(t, w.store, ask)...)
		w.clock.Advance(step)
		if w.clock.Now().Second()%4 == 0 {
			next = w.sweep().Next
		}
	}
	w.renew(held)
	if got := len(w.index()); got != leases {
		t.Fatalf("the index holds %d leases, want %d", got, leases)
	}
	sweeps, last := 0, time.Time{}
	for range 1190 {
		if now := w.clock.Now(); !next.IsZero() && !next.After(now) || now.Sub(last) >= 900*time.Millisecond {
			sweep := w.sweep()
			if len(sweep.Expired) > 0 {
				t.Fatalf("%d renewed leases have expired", len(sweep.Expired))
			}
			next, last = sweep.Next, now
			sweeps++
		}
		w.clock.Advance(step)
	}
	if most := 12*2 + 2; sweeps > most {
		t.Errorf("a thousand renewed leases had the keeper come %d times in 12 seconds, want at most %d", sweeps, most)
	}
}

// TestExpired_OrphanBesideLease has a leased task and an orphan in one lane.
func TestExpired_OrphanBesideLease(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	items := submissions(&w.gate, "host.example", 2)
	submit(t, w.store, w.gate, items...)
	lock := redisstore.LockKey(w.store, "waggle", items[0].ID)
	end := w.clock.Now().Add(5 * time.Second)
	if err := w.client.Do(t.Context(), "set", lock, "other/token/1", "pxat", end.UnixMilli()).Err(); err != nil {
		t.Fatal(err)
	}
	grants := w.claimAll(10 * time.Second)
	if len(grants) != 1 || grants[0].Task.ID != items[1].ID {
		t.Fatalf("granted %+v, want the task without a lock alone", grants)
	}
	orphan, leased := member(items[0].ID+"~", "host.example"), member(items[1].ID, "host.example")
	if got := w.index(); !slices.Equal(got, []string{orphan, leased}) {
		t.Errorf("the index holds %q, want the orphan and the lease", got)
	}
	if sweep := w.sweep(); sweep.Next.UnixMilli() != end.UnixMilli() {
		t.Errorf("a sweep is to look next at %v, want when the lock ends, %v", sweep.Next, end)
	}
	w.pass(5001 * time.Millisecond)
	sweep := w.sweep()
	if got := w.index(); !slices.Equal(got, []string{leased}) || len(sweep.Expired) > 0 {
		t.Errorf("the index holds %q when the lock has ended, and %d leases have run out", got, len(sweep.Expired))
	}
	if freed := w.claimAll(10 * time.Second); len(freed) != 1 || freed[0].Task.ID != items[0].ID {
		t.Errorf("granted %+v, want the task whose lock has ended", freed)
	}
	w.pass(5 * time.Second)
	if sweep = w.sweep(); len(sweep.Expired) != 1 || sweep.Expired[0].ID != items[1].ID {
		t.Errorf("%+v have run out, want the lease alone", sweep.Expired)
	}
}

// TestExpired_ClockBack_BehindOthers steps the clock back by a day: leases from before, behind
// younger ones in the index, get a deadline that comes.
func TestExpired_ClockBack_BehindOthers(t *testing.T) {
	t.Parallel()
	const queues, each = 150, 2
	w := newLeaseWorld(t)
	w.sweep()
	var before []dispatch.Grant
	for i := range queues {
		before = append(before, w.lease(fmt.Sprintf("host-%d.example", i), each, 30*time.Second)...)
	}
	w.clock.Advance(-24 * time.Hour)
	var items []dispatch.Submission
	for i := range queues {
		queue := fmt.Sprintf("host-%d.example", i)
		items = append(items, submission(&w.gate, queue, "https://"+queue+"/young"))
	}
	submit(t, w.store, w.gate, items...)
	w.clock.Advance(time.Millisecond) // then queues open, which had a turn a day ahead
	if got := len(w.claimAll(30 * time.Second)); got != queues {
		t.Fatalf("%d young tasks were granted, want %d", got, queues)
	}
	for range queues * each / 100 { // 100 leases a sweep
		w.sweep()
	}
	limit := w.clock.Now().Add(30 * time.Second)
	for _, g := range before {
		tasks, _, err := w.store.Tasks(t.Context(), []dispatch.TaskID{g.Task.ID}, false)
		if err != nil {
			t.Fatal(err)
		}
		if at := tasks[0].Lease.Deadline; at.After(limit) {
			t.Fatalf("the lease of %s ends at %v, after %v", g.Task.ID, at, limit)
		}
	}
	index := key.Prefix("waggle").Shard(0).Leases()
	if n, err := w.client.ZCount(t.Context(), index, "-inf", strconv.FormatInt(limit.UnixMilli(), 10)).Result(); err != nil || n != queues*(each+1) {
		t.Errorf("the index holds %d leases that end by %v (%v), want %d", n, limit, err, queues*(each+1))
	}
}

// TestExpired_RecordLost loses the record of a leased task: a sweep takes the task off its
// queue, and off the index.
func TestExpired_RecordLost(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	w.sweep()
	grants := w.lease("host.example", 1, 10*time.Second)
	if err := w.client.Del(t.Context(), redisstore.TaskKey(w.store, "waggle", grants[0].Task.ID)).Err(); err != nil {
		t.Fatal(err)
	}
	w.pass(10 * time.Second)
	if sweep := w.sweep(); len(sweep.Expired) > 0 || !sweep.Next.IsZero() {
		t.Errorf("a sweep gave %+v, want nothing", sweep)
	}
	stats, err := w.store.Stats(t.Context())
	if err != nil || stats.Dropped != 1 || stats.Counts.Leased != 0 {
		t.Errorf("dropped %d, leased %d, %v, want 1 and 0", stats.Dropped, stats.Counts.Leased, err)
	}
	if q, err := w.store.QueuesNamed(t.Context(), []string{"host.example"}); err != nil || q[0] != nil || len(w.index()) > 0 {
		t.Errorf("the queue is %+v, %v, and the index holds %q, want none", q, err, w.index())
	}
}

// TestExpired_Bounded holds P10: however many leases have run out, in however many queues, a
// sweep looks at a bounded number.
func TestExpired_Bounded(t *testing.T) {
	t.Parallel()
	const queues, each = 40, 100
	w := newLeaseWorld(t)
	w.sweep()
	for i := range queues {
		w.lease(fmt.Sprintf("host-%d.example", i), each, 4*time.Second)
	}
	w.clock.Advance(4 * time.Second)
	policy, spec := dispatch.Policy{Rand: func() float64 { return 0 }}, dispatch.DefaultSpec()
	for left := queues * each; left > 0; {
		before := w.calls("getrange")
		sweep := w.sweep()
		if n := w.calls("getrange") - before; n > bounds.MaxSweepLooks {
			t.Fatalf("a sweep looked at %d records, want at most %d", n, bounds.MaxSweepLooks)
		}
		if len(sweep.Expired) == 0 || len(sweep.Expired) > bounds.MaxExpired {
			t.Fatalf("a sweep of %d leases returned %d", left, len(sweep.Expired))
		}
		if left -= len(sweep.Expired); left > 0 && !sweep.Next.Equal(sweep.Now) {
			t.Fatalf("a sweep that left %d leases is to look next at %v, want %v", left, sweep.Next, sweep.Now)
		}
		transitions := make([]dispatch.Transition, len(sweep.Expired))
		for i, task := range sweep.Expired {
			transitions[i] = policy.Expire(task, spec, sweep.Now)
		}
		if _, err := w.store.Apply(t.Context(), transitions); err != nil {
			t.Fatal(err)
		}
	}
	if sweep := w.sweep(); len(sweep.Expired) > 0 || len(w.index()) > 0 {
		t.Errorf("%d leases are left, and the index holds %q", len(sweep.Expired), w.index())
	}
}

// TestListLeases_WhileTheyMove lists leases by pages, while they are renewed and a sweep moves
// them: whoever stands all the while is listed.
func TestListLeases_WhileTheyMove(t *testing.T) {
	t.Parallel()
	const queues, page = 200, 7
	w := newLeaseWorld(t)
	w.sweep()
	want := map[dispatch.TaskID]bool{}
	var brief, stay []dispatch.Grant
	for i := range queues {
		queue := fmt.Sprintf("host-%d.example", i)
		brief = append(brief, w.lease(queue, 1, 10*time.Second)...)
		submit(t, w.store, w.gate, submission(&w.gate, queue, "https://"+queue+"/stays"))
		stay = append(stay, w.claimAll(10*time.Second)...)
	}
	for _, g := range stay {
		want[g.Task.ID] = true
	}
	cursor, pages := "", 0
	for {
		leases, next, err := w.store.ListLeases(t.Context(), cursor, page)
		if err != nil || len(leases) > page {
			t.Fatalf("ListLeases gave %d, %v, want at most %d", len(leases), err, page)
		}
		for _, task := range leases {
			delete(want, task.ID)
		}
		if cursor = next; cursor == "" {
			break
		}
		if pages++; pages == 10 { // all that are left move on
			w.settle(brief)
			w.pass(5 * time.Second)
			w.renew(stay)
			w.pass(5 * time.Second)
			w.sweep()
		}
		if pages > 2*queues {
			t.Fatalf("the list does not end after %d pages", pages)
		}
	}
	if len(want) > 0 {
		t.Errorf("%d leases of %d were not listed", len(want), queues)
	}
}
