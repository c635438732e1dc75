package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// pool is the pool of the cases' sources unless they say otherwise.
const pool = dispatch.DefaultPool

// manyBytes is a byte limit that no case reaches by accident.
const manyBytes = 64 << 20

// env is one case: its store, its clock, and shorthand that fails the case when
// a call that should succeed does not.
type env struct {
	*testing.T
	Instance
	ctx   context.Context //nolint:containedctx // one case has one context, as testing.T has
	rules int64           // the version of the queue rules that the case knows
	held  heldBook        // the holds that the case has put
	calls int             // makes client tokens and calls unique
}

func newEnv(t *testing.T, factory Factory, opts Options) *env {
	t.Helper()
	e := &env{T: t, Instance: factory(t, opts), held: newHeldBook()}
	e.ctx = t.Context()
	e.Clock.Set(start)
	return e
}

// ok fails the case when err is not nil.
func (e *env) ok(what string, err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("%s: %v", what, err)
	}
}

// fails fails the case when err is not want.
func (e *env) fails(what string, err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Fatalf("%s: error %v, want %v", what, err, want)
	}
}

// is fails the case when got is not want.
func is[T any](e *env, what string, got, want T) {
	e.Helper()
	if d := diff(reflect.ValueOf(got), reflect.ValueOf(want), what); d != "" {
		e.Fatalf("%s (got, want)", d)
	}
}

func (e *env) now() time.Time { return e.Clock.Now().Truncate(time.Millisecond).UTC() }

func (e *env) advance(d time.Duration) { e.Clock.Advance(d) }

// shard is the shard of a queue, a source id or a collector id.
func (e *env) shard(name string) int {
	return dispatch.ShardOf(dispatch.SlotOf(name), e.Store.Shards())
}

// queues makes n names of queues that share a shard, ascending.
func (e *env) queues(n int) []string {
	first := e.shard("q000000.test")
	var names []string
	for i := 0; len(names) < n; i++ {
		if name := fmt.Sprintf("q%06d.test", i); e.shard(name) == first {
			names = append(names, name)
		}
	}
	return names
}

// queueIn makes the name of a queue of a shard.
func (e *env) queueIn(shard int) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf("q%06d.test", i); e.shard(name) == shard {
			return name
		}
	}
}

// queue is the one queue of cases that need no more.
const queue = "q000000.test"

// source makes a source's gate, changed by each of the given functions.
func source(id string, changes ...func(*dispatch.SourceGate)) dispatch.SourceGate {
	g := dispatch.SourceGate{
		UID: "uid-" + id, ID: id, Version: 1, Pool: pool, Priority: dispatch.DefaultPriority,
	}
	for _, change := range changes {
		change(&g)
	}
	return g
}

// item makes a submission, due now.
func item(g dispatch.SourceGate, queue, key string, changes ...func(*dispatch.Submission)) dispatch.Submission {
	s := dispatch.Submission{
		SourceUID: g.UID, Scope: g.UID, Queue: queue, Key: key, URL: "http://" + queue + "/" + key,
		Priority: dispatch.DefaultPriority,
	}
	for _, change := range changes {
		change(&s)
	}
	s.ID = dispatch.NewTaskID(dispatch.Identity{Scope: s.Scope, Queue: s.Queue, Key: s.Key})
	return s
}

// numbered makes n submissions with the keys 0 to n-1.
func numbered(g dispatch.SourceGate, queue string, n int) []dispatch.Submission {
	items := make([]dispatch.Submission, n)
	for i := range items {
		items[i] = item(g, queue, strconv.Itoa(i))
	}
	return items
}

func (e *env) submit(g dispatch.SourceGate, items ...dispatch.Submission) []dispatch.SubmitResult {
	e.Helper()
	results, err := e.Store.Submit(e.ctx, e.rules, []dispatch.SourceGate{g}, items)
	e.ok("submit", err)
	if len(results) != len(items) {
		e.Fatalf("submit of %d items answered %d results", len(items), len(results))
	}
	return results
}

// submitOne submits an item and checks what became of it.
func (e *env) submitOne(g dispatch.SourceGate, s dispatch.Submission, want dispatch.SubmitCode) dispatch.SubmitResult {
	e.Helper()
	r := e.submit(g, s)[0]
	if r.Code != want {
		e.Fatalf("submit of %s in %s answered code %d, want %d", s.Key, s.Queue, r.Code, want)
	}
	return r
}

// create submits items that must be new.
func (e *env) create(g dispatch.SourceGate, items ...dispatch.Submission) {
	e.Helper()
	for i, r := range e.submit(g, items...) {
		if r.Code != dispatch.SubmitCreated {
			e.Fatalf("submit of new item %d (%s) answered code %d", i, items[i].Key, r.Code)
		}
	}
}

// want asks for up to limit tasks by a client token of its own.
func (e *env) want(limit int, changes ...func(*dispatch.Want)) dispatch.Want {
	e.calls++
	w := dispatch.Want{
		Poll: dispatch.Poll{
			Collector: "c1", Session: "s1",
			ClientToken: "token-" + strconv.Itoa(e.calls), Call: "call-" + strconv.Itoa(e.calls),
		},
		Max: limit, MaxBytes: manyBytes,
	}
	for _, change := range changes {
		change(&w)
	}
	return w
}

// claim claims from the shard of queue.
func (e *env) claim(wants ...dispatch.Want) dispatch.ClaimReply {
	e.Helper()
	return e.claimFrom(pool, wants...)
}

func (e *env) claimFrom(pool string, wants ...dispatch.Want) dispatch.ClaimReply {
	e.Helper()
	reply, err := e.Store.Claim(e.ctx, e.shard(queue), pool, e.held.version, wants, nil)
	e.ok("claim", err)
	if len(reply.Grants) != len(wants) || len(reply.Used) != len(wants) {
		e.Fatalf("claim of %d wants answered %d grants and %d used", len(wants), len(reply.Grants), len(reply.Used))
	}
	return reply
}

// take claims exactly n tasks from the shard of queue.
func (e *env) take(n int, changes ...func(*dispatch.Want)) []dispatch.Grant {
	e.Helper()
	grants := e.claim(e.want(n, changes...)).Grants[0]
	if len(grants) != n {
		e.Fatalf("claim of %d tasks granted %v", n, keys(grants))
	}
	return grants
}

// takeOne claims one task.
func (e *env) takeOne(changes ...func(*dispatch.Want)) dispatch.Grant {
	e.Helper()
	return e.take(1, changes...)[0]
}

// takeTask claims one task, for a case that needs no more of the grant.
func (e *env) takeTask(changes ...func(*dispatch.Want)) *dispatch.Task {
	e.Helper()
	grant := e.takeOne(changes...)
	return &grant.Task
}

// takeNone checks that nothing can be claimed, and answers the reply.
func (e *env) takeNone(changes ...func(*dispatch.Want)) dispatch.ClaimReply {
	e.Helper()
	reply := e.claim(e.want(1, changes...))
	if len(reply.Grants[0]) > 0 {
		e.Fatalf("claim granted %v, want none", keys(reply.Grants[0]))
	}
	return reply
}

// keys names the tasks of grants.
func keys(grants []dispatch.Grant) []string {
	names := make([]string, len(grants))
	for i := range grants {
		names[i] = grants[i].Task.Key
	}
	return names
}

// task reads a record that must exist, with its details.
func (e *env) task(id dispatch.TaskID) *dispatch.Task {
	e.Helper()
	t := e.read(id)
	if t == nil {
		e.Fatalf("task %s has no record", id)
	}
	return t
}

// read reads a record with its details; nil when there is none.
func (e *env) read(id dispatch.TaskID) *dispatch.Task {
	e.Helper()
	tasks, _, err := e.Store.Tasks(e.ctx, []dispatch.TaskID{id}, true)
	e.ok("tasks", err)
	if len(tasks) != 1 {
		e.Fatalf("read of one task answered %d", len(tasks))
	}
	return tasks[0]
}

// apply applies one transition.
func (e *env) apply(tr dispatch.Transition) dispatch.ApplyResult {
	e.Helper()
	results, err := e.Store.Apply(e.ctx, []dispatch.Transition{tr})
	e.ok("apply", err)
	if len(results) != 1 {
		e.Fatalf("apply of one transition answered %d results", len(results))
	}
	return results[0]
}

// settle applies a transition that must succeed.
func (e *env) settle(tr dispatch.Transition) dispatch.ApplyResult {
	e.Helper()
	r := e.apply(tr)
	if r.Code != dispatch.Applied {
		e.Fatalf("apply of %v to %s answered code %d", tr.Result, tr.ID, r.Code)
	}
	return r
}

// renew renews one lease.
func (e *env) renew(g dispatch.Grant) dispatch.RenewResult {
	e.Helper()
	return e.renewWith(dispatch.Renewal{ID: g.Task.ID, Token: g.Token})
}

func (e *env) renewWith(r dispatch.Renewal) dispatch.RenewResult {
	e.Helper()
	results, err := e.Store.Renew(e.ctx, []dispatch.Renewal{r})
	e.ok("renew", err)
	if len(results) != 1 {
		e.Fatalf("renewal of one lease answered %d results", len(results))
	}
	return results[0]
}

// sweep looks for expired leases in the shard of queue.
func (e *env) sweep(limit int) dispatch.Sweep {
	e.Helper()
	s, err := e.Store.Expired(e.ctx, e.shard(queue), limit)
	e.ok("expired", err)
	return s
}

// rule sets a queue rule.
func (e *env) rule(pattern string, settings dispatch.QueueSettings) {
	e.Helper()
	e.setRule(dispatch.QueueRule{Pattern: pattern, Settings: settings, By: "tester", Reason: "a case"})
}

func (e *env) setRule(r dispatch.QueueRule) {
	e.Helper()
	version, err := e.Store.PutRule(e.ctx, r.Pattern, &r, e.rules)
	e.ok("set rule "+r.Pattern, err)
	e.rules = version
	e.syncRules()
}

// syncRules puts the queues of all shards where they now belong.
func (e *env) syncRules() {
	e.Helper()
	for shard := range e.Store.Shards() {
		for page, calls := "", 0; ; calls++ {
			next, err := e.Store.SyncRules(e.ctx, shard, page, 100)
			e.ok("sync rules", err)
			if page = next; page == "" {
				break
			}
			if calls > 10_000 {
				e.Fatalf("sync of the rules of shard %d does not end", shard)
			}
		}
	}
}

// settings are the default ones, changed.
func settings(changes ...func(*dispatch.QueueSettings)) dispatch.QueueSettings {
	s := dispatch.DefaultQueueSettings()
	for _, change := range changes {
		change(&s)
	}
	return s
}

// delayed are settings of a delay and a limit in flight.
func delayed(minDelay time.Duration, inFlight int) dispatch.QueueSettings {
	return settings(func(s *dispatch.QueueSettings) { s.MinDelay, s.MaxInFlight = minDelay, inFlight })
}

// open lets every queue be claimed from without delay or limit.
func (e *env) open() {
	e.Helper()
	e.rule("*", delayed(0, 10_000))
}

// push tells the shard of queue of a source, to the last page.
func (e *env) push(g dispatch.SourceGate) {
	e.Helper()
	for page, calls := "", 0; ; calls++ {
		next, err := e.Store.PushSource(e.ctx, e.shard(queue), g, page)
		e.ok("push source", err)
		if page = next; page == "" {
			return
		}
		if calls > 10_000 {
			e.Fatalf("push of source %s does not end", g.ID)
		}
	}
}

// info reads a queue that must exist.
func (e *env) info(name string) *dispatch.Queue {
	e.Helper()
	q := e.find(name)
	if q == nil {
		e.Fatalf("there is no queue %s", name)
	}
	return q
}

// find reads a queue; nil: there is none.
func (e *env) find(name string) *dispatch.Queue {
	e.Helper()
	queues, err := e.Store.QueuesNamed(e.ctx, []string{name})
	e.ok("queue "+name, err)
	return queues[0]
}

// noQueue checks that the queue of the cases does not exist.
func (e *env) noQueue(when string) {
	e.Helper()
	if q := e.find(queue); q != nil {
		e.Errorf("%s: there is the queue %+v, want none", when, *q)
	}
}

// testCase is one case of the suite.
type testCase struct {
	name string
	run  func(e *env)
}

// foreign is the value of a lock that no lease of a case has.
const foreign = "other/token/1"
