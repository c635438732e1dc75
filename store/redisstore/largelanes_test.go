package redisstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redistest"
	"github.com/waggle-crawl/waggle/store/storetest"
)

// laneWorld works on few lanes of hundreds of tasks, most of which stand in sets behind the
// heads, where the model test has a handful in each.
type laneWorld struct {
	*testing.T
	*rand.Rand
	store, reference dispatch.Store
	client           *redis.Client
	clock            *redistest.Clock
	gates            []dispatch.SourceGate
	held             []dispatch.Grant
	tokens           int
}

// laneOps are what changes lanes, the more frequent ones more than once.
var laneOps = []func(w *laneWorld) (what string, do func(s dispatch.Store) (any, error)){
	(*laneWorld).submit, (*laneWorld).submit, (*laneWorld).claim, (*laneWorld).claim, (*laneWorld).claim,
	(*laneWorld).end, (*laneWorld).end, (*laneWorld).pass, (*laneWorld).pass, (*laneWorld).push,
}

// TestModel_LargeLanes has this store and the one in memory answer alike, in the order of tasks above
// all, and its indexes in step with the records.
func TestModel_LargeLanes(t *testing.T) {
	t.Parallel()
	const steps, auditEvery = 1500, 100
	server := redistest.Start(t, redistest.WithClock())
	server.Clock().Freeze()
	s := open(t, redisstore.Config{URL: server.SocketURL()})
	reference, err := store.New(store.Config{Now: server.Clock().Now})
	if err != nil {
		t.Fatal(err)
	}
	seed := storetest.Seed(t)
	w := &laneWorld{
		T: t, Rand: rand.New(rand.NewPCG(seed, 0)), store: s, reference: reference, client: redisClient(t, server.URL()), clock: server.Clock(),
	}
	for n := range 3 {
		w.gates = append(w.gates, sourceGate(fmt.Sprint("source", n)))
	}
	rule := dispatch.QueueRule{Pattern: "*", Settings: dispatch.QueueSettings{MaxInFlight: 1000, MaxBlock: time.Hour}}
	w.both("put rule", func(s dispatch.Store) (any, error) { return s.PutRule(t.Context(), rule.Pattern, &rule, 0) })
	for step := range steps {
		what, do := laneOps[w.IntN(len(laneOps))](w)
		w.both(fmt.Sprintf("step %d of seed %d: %s", step, seed, what), do)
		if step%auditEvery == 0 {
			sound(t, s)
		}
		if t.Failed() {
			return
		}
	}
}

// both has both stores do something, and wants the same answer.
func (w *laneWorld) both(what string, do func(s dispatch.Store) (any, error)) any {
	w.Helper()
	got, err := do(w.store)
	want, errWant := do(w.reference)
	if err != nil || errWant != nil || !reflect.DeepEqual(got, want) {
		w.Fatalf("%s: %v\ngot, want\n%v", what, errors.Join(err, errWant), difference(fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want)))
	}
	return got
}

// difference cuts off what two answers begin with alike.
func difference(got, want string) string {
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	from := max(at-200, 0)
	return fmt.Sprintf("%.600s\n%.600s", got[from:], want[from:])
}

// submit makes tasks of one source, some of them known ones, in one of two queues.
func (w *laneWorld) submit() (string, func(s dispatch.Store) (any, error)) {
	const keys = 1500
	gate, queue := w.gates[w.IntN(len(w.gates))], fmt.Sprintf("host-%d.example", w.IntN(2))
	items := make([]dispatch.Submission, 1+w.IntN(100))
	ifExists := dispatch.IfExists(w.IntN(int(dispatch.IfExistsAgain) + 1))
	due := w.clock.Now().Truncate(time.Millisecond)
	for i := range items {
		items[i] = submission(&gate, queue, fmt.Sprintf("https://%s/%d", queue, w.IntN(keys)))
		items[i].IfExists, items[i].Priority, items[i].Recurring = ifExists, w.IntN(3)*4, w.IntN(8) == 0
		if w.IntN(2) == 0 {
			items[i].Due = due.Add(time.Duration(w.IntN(20_000)-5000) * time.Millisecond)
		}
	}
	return fmt.Sprintf("submit %d to %s of %s", len(items), queue, gate.UID), func(s dispatch.Store) (any, error) {
		return s.Submit(w.Context(), 1, []dispatch.SourceGate{gate}, items)
	}
}

// claim takes up to a hundred tasks.
func (w *laneWorld) claim() (string, func(s dispatch.Store) (any, error)) {
	w.tokens++
	token := fmt.Sprint("t", w.tokens)
	ask := dispatch.Want{Poll: dispatch.Poll{Collector: "c", Session: "s", ClientToken: token, Call: token}, Max: 1 + w.IntN(100), Lease: time.Hour}
	return fmt.Sprintf("claim %d", ask.Max), func(s dispatch.Store) (any, error) {
		reply, err := s.Claim(w.Context(), 0, pool, 0, []dispatch.Want{ask})
		if err != nil {
			return nil, err
		}
		if s == w.store {
			w.held = append(w.held, reply.Grants[0]...)
		}
		var ids []string
		for _, g := range reply.Grants[0] {
			ids = append(ids, fmt.Sprintf("%s of %s, %d", g.Task.URL, g.Task.SourceUID, g.Task.Priority))
		}
		return []any{ids, reply.Next, reply.More, reply.Wait}, nil
	}
}

// end settles some of what is held, or has it wait again, now or later.
func (w *laneWorld) end() (string, func(s dispatch.Store) (any, error)) {
	w.Shuffle(len(w.held), func(i, j int) { w.held[i], w.held[j] = w.held[j], w.held[i] })
	n := min(len(w.held), w.IntN(100))
	all := make([]dispatch.Transition, n)
	for i := range all {
		all[i] = done(&w.held[i])
		if w.IntN(2) == 0 {
			all[i].State, all[i].Settled, all[i].Shrink, all[i].Behind = dispatch.StateScheduled, false, false, w.IntN(4) == 0
			all[i].Delay = time.Duration(w.IntN(3)*w.IntN(10_000)) * time.Millisecond
		}
	}
	w.held = w.held[n:]
	return fmt.Sprintf("end %d", n), func(s dispatch.Store) (any, error) { return s.Apply(w.Context(), all) }
}

// pass lets time pass, and sweeps.
func (w *laneWorld) pass() (string, func(s dispatch.Store) (any, error)) {
	w.clock.Advance(time.Duration(w.IntN(3000)) * time.Millisecond)
	return "pass", func(s dispatch.Store) (any, error) {
		sweep, err := s.Expired(w.Context(), 0, 100)
		return []any{len(sweep.Expired)}, err
	}
}

// push changes a source: its priority, pool or hold.
func (w *laneWorld) push() (string, func(s dispatch.Store) (any, error)) {
	gate := &w.gates[w.IntN(len(w.gates))]
	gate.Version++
	gate.Priority, gate.HeldUntil, gate.Pool = w.IntN(10), time.Time{}, pool
	switch w.IntN(4) {
	case 0:
		gate.HeldUntil = w.clock.Now().Truncate(time.Millisecond).Add(time.Duration(w.IntN(10)) * time.Second)
	case 1:
		gate.Pool = "other"
	}
	return fmt.Sprintf("push %+v", *gate), func(s dispatch.Store) (any, error) {
		next, err := s.PushSource(w.Context(), 0, *gate, "")
		return next, err
	}
}
