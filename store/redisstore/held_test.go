package redisstore_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// heldWorld is a world in which collectors hold grants of several sizes.
type heldWorld struct {
	*leaseWorld
	rand    *rand.Rand
	policy  dispatch.Policy
	spec    *dispatch.SourceSpec
	made    int
	session int
	wants   []dispatch.Want
}

var holders = []string{"c1", "c2"}

// heldOps are the ways in which leases come and go.
var heldOps = []func(w *heldWorld){
	(*heldWorld).grant, (*heldWorld).grant, (*heldWorld).grant, (*heldWorld).repeat, (*heldWorld).report, (*heldWorld).report, (*heldWorld).carry,
	(*heldWorld).carry, (*heldWorld).expire, (*heldWorld).giveBack, (*heldWorld).cancel, (*heldWorld).revoke, (*heldWorld).replace,
}

// TestHeld_Counts lets leases come and go in all ways: what collectors are noted to
// hold of each grant is what they hold, and nothing is noted in the end.
func TestHeld_Counts(t *testing.T) {
	t.Parallel()
	w := &heldWorld{
		leaseWorld: newLeaseWorld(t), rand: rand.New(rand.NewPCG(1, 2)), spec: dispatch.DefaultSpec(),
		policy: dispatch.Policy{Rand: func() float64 { return 0 }},
	}
	w.sweep()
	for step := range 400 {
		op := w.rand.IntN(len(heldOps))
		heldOps[op](w)
		for _, collector := range holders {
			if want, got := w.holds(collector), w.noted(collector); !maps.Equal(want, got) {
				t.Fatalf("after step %d, of kind %d, %s holds %v, and it is noted that it holds %v", step, op, collector, want, got)
			}
		}
	}
	w.end(w.leases(), w.revoked)
	for _, collector := range holders {
		if n, err := w.client.Exists(t.Context(), key.Prefix("waggle").Shard(0).Held(collector)).Result(); n != 0 || err != nil {
			t.Errorf("something is noted of what %s holds: %v, %v", collector, w.noted(collector), err)
		}
	}
}

// leases are all that stand.
func (w *heldWorld) leases() []*dispatch.Task {
	w.Helper()
	leases, next, err := w.store.ListLeases(w.Context(), "", 1000)
	if err != nil || next != "" {
		w.Fatalf("ListLeases: next %q, %v", next, err)
	}
	return leases
}

// some are some of all that stand.
func (w *heldWorld) some() []*dispatch.Task {
	w.Helper()
	leases := w.leases()
	w.rand.Shuffle(len(leases), func(i, j int) { leases[i], leases[j] = leases[j], leases[i] })
	return leases[:w.rand.IntN(len(leases)+1)]
}

// holds is how many tasks of each of its grants a collector holds.
func (w *heldWorld) holds(collector string) map[string]int {
	w.Helper()
	held := map[string]int{}
	for _, task := range w.leases() {
		if token := task.Lease.Token; token.Collector == collector {
			held[token.ClientToken]++
		}
	}
	return held
}

// noted is what is noted of that.
func (w *heldWorld) noted(collector string) map[string]int {
	w.Helper()
	fields, err := w.client.HGetAll(w.Context(), key.Prefix("waggle").Shard(0).Held(collector)).Result()
	if err != nil {
		w.Fatal(err)
	}
	held := map[string]int{}
	for field, text := range fields {
		token := strings.Trim(field, "/")
		switch {
		case field == token:
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 || fields[token+"/"] == "" {
				w.Fatalf("of what %s holds, %q is %q: %v", collector, field, text, err)
			}
			held[token] = n
		case field == "/"+token:
			held[token] = 1
		case fields[token] == "":
			w.Fatalf("of what %s holds, there is %q without a count", collector, field)
		}
	}
	return held
}

// grant claims for several wants at once.
func (w *heldWorld) grant() {
	w.Helper()
	var items []dispatch.Submission
	for range 1 + w.rand.IntN(10) {
		w.made++
		queue := fmt.Sprintf("host-%d.example", w.made%3)
		items = append(items, submission(&w.gate, queue, fmt.Sprintf("https://%s/%d", queue, w.made)))
	}
	submit(w.T, w.store, w.gate, items...)
	wants := make([]dispatch.Want, 1+w.rand.IntN(3))
	for i := range wants {
		token := uuid.NewString()
		wants[i] = dispatch.Want{
			Poll: dispatch.Poll{Collector: w.collector(), Session: w.current(), ClientToken: token, Call: token},
			Max:  1 + w.rand.IntN(4), Lease: time.Duration(5+w.rand.IntN(20)) * time.Second,
		}
	}
	w.claim(wants...)
	w.wants = append(w.wants, wants...)
}

func (w *heldWorld) claim(wants ...dispatch.Want) {
	w.Helper()
	if _, err := w.store.Claim(w.Context(), 0, pool, 0, wants); err != nil {
		w.Fatalf("Claim: %v", err)
	}
}

func (w *heldWorld) collector() string { return holders[w.rand.IntN(len(holders))] }
func (w *heldWorld) current() string   { return fmt.Sprint("s", w.session) }

// repeat claims for a client token again.
func (w *heldWorld) repeat() {
	w.Helper()
	if len(w.wants) > 0 {
		again := w.wants[w.rand.IntN(len(w.wants))]
		again.Session = w.current()
		w.claim(again, again)
	}
}

// end applies a transition to each task.
func (w *heldWorld) end(tasks []*dispatch.Task, of func(*dispatch.Task) dispatch.Transition) {
	w.Helper()
	if len(tasks) == 0 {
		return
	}
	transitions := make([]dispatch.Transition, len(tasks))
	for i, task := range tasks {
		transitions[i] = of(task)
	}
	if _, err := w.store.Apply(w.Context(), transitions); err != nil {
		w.Fatalf("Apply: %v", err)
	}
}

func (w *heldWorld) report() {
	w.Helper()
	w.end(w.some(), func(t *dispatch.Task) dispatch.Transition {
		return done(&dispatch.Grant{Task: *t, Token: t.Lease.Token})
	})
}

// carry reports successes, some of them twice.
func (w *heldWorld) carry() {
	w.Helper()
	var successes []dispatch.Transition
	for _, t := range w.some() {
		successes = append(successes, unread(&dispatch.Grant{Task: *t, Token: t.Lease.Token}))
	}
	if len(successes) == 0 {
		return
	}
	if _, err := w.store.Apply(w.Context(), append(successes, successes[0])); err != nil {
		w.Fatalf("Apply: %v", err)
	}
}

func (w *heldWorld) expire() {
	w.Helper()
	w.pass(time.Duration(1+w.rand.IntN(5)) * time.Second)
	sweep := w.sweep()
	w.end(sweep.Expired, func(t *dispatch.Task) dispatch.Transition { return w.policy.Expire(t, w.spec, sweep.Now) })
}

func (w *heldWorld) giveBack() {
	w.Helper()
	if len(w.wants) == 0 {
		return
	}
	g := w.wants[w.rand.IntN(len(w.wants))]
	if _, err := w.store.GiveBack(w.Context(), 0, g.Collector, g.ClientToken, g.Call); err != nil {
		w.Fatalf("GiveBack: %v", err)
	}
}

// cancel asks for the cancel of leased tasks, of which some are given back then.
func (w *heldWorld) cancel() {
	w.Helper()
	var ids []dispatch.TaskID
	for _, t := range w.some() {
		ids = append(ids, t.ID)
	}
	if err := w.store.RequestCancel(w.Context(), ids, dispatch.CancelTask, nil); err != nil {
		w.Fatalf("RequestCancel: %v", err)
	}
	w.giveBack()
}

func (w *heldWorld) revoke() {
	w.Helper()
	w.end(w.some(), w.revoked)
}

func (w *heldWorld) revoked(t *dispatch.Task) dispatch.Transition {
	return w.policy.Revoke(t, w.spec, dispatch.Note{}, w.clock.Now())
}

// replace ends the older sessions of all collectors.
func (w *heldWorld) replace() {
	w.Helper()
	w.session++
	for _, collector := range holders {
		before, found := w.noted(collector), 0
		for range 100 {
			tasks, err := w.store.EndSession(w.Context(), 0, collector, w.current(), 3)
			if err != nil {
				w.Fatalf("EndSession: %v", err)
			}
			if len(tasks) == 0 {
				break
			}
			found += len(tasks)
			w.end(tasks, w.revoked)
		}
		all := 0
		for _, n := range before {
			all += n
		}
		if after := w.holds(collector); found != all || len(after) > 0 {
			w.Fatalf("EndSession of %s found %d tasks of %d, and left %v", collector, found, all, after)
		}
	}
}

// TestHeld_TokenOfAnOutage repeats a client token after an outage that its leases have
// outlived: it is given those, and nothing else, and when they have settled nothing is
// noted.
func TestHeld_TokenOfAnOutage(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	w.sweep()
	for _, most := range []int{1, 2} {
		queue := fmt.Sprintf("host-%d.example", most)
		submit(t, w.store, w.gate, submissions(&w.gate, queue, 2*most)...)
		ask := want(most)
		grants := claim(t, w.store, ask)
		w.clock.Advance(dispatch.DefaultLeaseDuration + 3*dispatch.TokenMemory)
		if again := claim(t, w.store, ask); len(again) != most || again[0].Token != grants[0].Token {
			t.Fatalf("after the outage %d tasks were granted, %+v, want the %d from before", len(again), again, most)
		}
		var successes []dispatch.Transition
		for i := range grants {
			successes = append(successes, unread(&grants[i]))
		}
		results, err := w.store.Apply(t.Context(), successes)
		for i, r := range results {
			if r.Code != dispatch.Applied {
				t.Errorf("success %d of %d: %+v", i, len(results), r)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	held, err := w.client.HGetAll(t.Context(), key.Prefix("waggle").Shard(0).Held("collector")).Result()
	if err != nil || len(held) > 0 {
		t.Errorf("it is noted that the collector holds %v, %v", held, err)
	}
}

// TestUsed_Forgotten has client tokens used in step after step: each step has a set of
// them, and sweeps leave those of the last two, also when none came for long.
func TestUsed_Forgotten(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	k := key.Prefix("waggle").Shard(0)
	w.sweep()
	use := func() int64 {
		submit(t, w.store, w.gate, submission(&w.gate, "host.example", "https://host.example/"+uuid.NewString()))
		g := claimOne(t, w.store)
		settle(t, w.store, done(&g))
		return dispatch.TokenStep(w.clock.Now())
	}
	for _, pause := range []time.Duration{dispatch.TokenMemory, dispatch.TokenMemory, 2 * dispatch.TokenMemory, 300 * time.Hour, dispatch.TokenMemory} {
		used := map[string]bool{k.Used(use()): true}
		w.clock.Advance(dispatch.TokenMemory)
		used[k.Used(use())] = true
		w.sweep()
		found, err := w.client.Keys(t.Context(), k.Used(0)[:len(k.Used(0))-1]+"*").Result()
		if err != nil || len(found) != 2 || !used[found[0]] || !used[found[1]] {
			t.Fatalf("client tokens are noted as used in %q, %v, want %v", found, err, used)
		}
		w.clock.Advance(pause)
	}
	w.clock.Advance(dispatch.TokenMemory)
	w.sweep()
	if found, err := w.client.Keys(t.Context(), "*used*").Result(); err != nil || len(found) > 0 {
		t.Errorf("client tokens are noted as used in %q in the end, %v", found, err)
	}
}

// TestUsed_EndsUnswept loses the key by which sweeps know what to remove: what is
// noted of used client tokens ends all the same.
func TestUsed_EndsUnswept(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	w.sweep()
	submit(t, w.store, w.gate, submission(&w.gate, "host.example", "https://host.example/"))
	g := claimOne(t, w.store)
	settle(t, w.store, done(&g))
	used := key.Prefix("waggle").Shard(0).Used(dispatch.TokenStep(w.clock.Now()))
	w.client.Del(t.Context(), key.Prefix("waggle").Shard(0).Keeper())
	openRule(t, w.store)
	for _, after := range []struct {
		pause time.Duration
		stand int64
	}{{2 * dispatch.TokenMemory, 1}, {24*time.Hour - dispatch.TokenMemory, 1}, {dispatch.TokenMemory, 0}} {
		w.clock.Advance(after.pause)
		w.sweep()
		if found, err := w.client.Exists(t.Context(), used).Result(); err != nil || found != after.stand {
			t.Errorf("%v later there are %d sets of used client tokens, %v; want %d", after.pause, found, err, after.stand)
		}
	}
}

// TestStore_ListCollectors_heldMany counts the leases of a collector that has many,
// and asks Redis for some of them at a time (P10).
func TestStore_ListCollectors_heldMany(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	openRule(t, s)
	const one, many = 500, 3
	gate := sourceGate("source")
	submit(t, s, gate, submissions(&gate, "host.example", one+many*bounds.MaxClaimTasks)...)
	for range many {
		claim(t, s, want(bounds.MaxClaimTasks))
	}
	for range one {
		claim(t, s, want(1))
	}
	all, steps := calls(t, client, "hgetall"), calls(t, client, "hscan")
	if _, err := s.Beats(t.Context(), []dispatch.CollectorInfo{{ID: "collector", Session: "session"}}); err != nil {
		t.Fatal(err)
	}
	records, err := s.ListCollectors(t.Context(), dispatch.CollectorFilter{Held: true}, "", 9)
	if err != nil || len(records) != 1 || records[0].Held != one+many*bounds.MaxClaimTasks {
		t.Errorf("ListCollectors: %+v, %v", records, err)
	}
	all, steps = calls(t, client, "hgetall")-all, calls(t, client, "hscan")-steps
	if fields := one + 2*many; all > 0 || steps < fields/200 {
		t.Errorf("%d fields are read whole %d times, and in %d steps", fields, all, steps)
	}
}
