package dispatch_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Store is a store with what it may have beside.
type Store interface {
	dispatch.Store
	dispatch.Bindings
	dispatch.AuditLog
}

// faultyStore is a store that counts the calls that it gets, and does to them what a test wants.
type faultyStore struct {
	Store
	deaf atomic.Bool // hints do not arrive

	mu     sync.Mutex // guards what follows
	counts map[string]int
	faults []*fault
}

// call is one call of a store.
type call struct {
	name   string   // of the method
	shards []int    // that it is for, of those whose number is clear from it
	ids    []string // of sources, collectors or tasks
	pool   string
	wants  []dispatch.Want
	limit  int // of a list
	reply  any // pointer to the first result, when it was answered
}

// fault is what becomes of some calls. It may ask the store or not, and have another error.
type fault struct {
	when []match
	do   func(ctx context.Context, c *call, ask func() error) error

	mu   sync.Mutex // guards what follows
	skip int        // calls that it leaves alone first
	left int        // calls that it is for yet; negative: all
}

// match selects calls.
type match func(c *call) bool

func calls(names ...string) match {
	return func(c *call) bool { return slices.Contains(names, c.name) }
}

func inShard(shard int) match { return func(c *call) bool { return slices.Contains(c.shards, shard) } }

func inPool(pool string) match { return func(c *call) bool { return c.pool == pool } }

// ofID selects calls of which an id is like this.
func ofID(is func(id string) bool) match {
	return func(c *call) bool { return slices.ContainsFunc(c.ids, is) }
}

// on is a fault of the calls that all of when are true for; with none, of each call.
func on(do func(ctx context.Context, c *call, ask func() error) error, when ...match) *fault {
	return &fault{when: when, do: do, left: -1}
}

// once limits a fault to the first of its calls.
func (f *fault) once() *fault {
	f.left = 1
	return f
}

// from has a fault leave the first n of its calls alone.
func (f *fault) from(n int) *fault {
	f.skip = n
	return f
}

func (f *fault) isFor(c *call) bool {
	for _, is := range f.when {
		if !is(c) {
			return false
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.skip > 0:
		f.skip--
		return false
	case f.left == 0:
		return false
	}
	f.left--
	return true
}

// hang gives no answer until the caller has enough.
func hang(when ...match) *fault {
	return on(func(ctx context.Context, _ *call, _ func() error) error {
		<-ctx.Done()
		return ctx.Err()
	}, when...)
}

// delay holds calls up before they take effect.
func delay(d time.Duration, when ...match) *fault { return before(func() { time.Sleep(d) }, when...) }

// late holds answers up.
func late(d time.Duration, when ...match) *fault { return after(func() { time.Sleep(d) }, when...) }

// fail has the error in place of the call.
func fail(err error, when ...match) *fault {
	return on(func(context.Context, *call, func() error) error { return err }, when...)
}

// spoil has the error in place of the answer to a call that took effect.
func spoil(err error, when ...match) *fault {
	return on(func(_ context.Context, _ *call, ask func() error) error {
		if failed := ask(); failed != nil {
			return failed
		}
		return err
	}, when...)
}

// drop does nothing, and says that it was done.
func drop(when ...match) *fault { return fail(nil, when...) }

func before(do func(), when ...match) *fault {
	return on(func(_ context.Context, _ *call, ask func() error) error {
		do()
		return ask()
	}, when...)
}

func after(do func(), when ...match) *fault {
	return on(func(_ context.Context, _ *call, ask func() error) error {
		err := ask()
		do()
		return err
	}, when...)
}

// inFlight is how many calls are in flight at once.
type inFlight struct {
	mu        sync.Mutex // guards what follows
	now, most int
}

// count leaves calls as they are.
func (n *inFlight) count(when ...match) *fault {
	add := func(d int) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.now += d
		n.most = max(n.most, n.now)
	}
	return on(func(_ context.Context, _ *call, ask func() error) error {
		add(1)
		defer add(-1)
		return ask()
	}, when...)
}

func newFaultyStore(store Store) *faultyStore {
	return &faultyStore{Store: store, counts: make(map[string]int)}
}

// inject adds faults. The first one is the outermost.
func (s *faultyStore) inject(faults ...*fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, faults...)
}

// heal ends these faults; without any, all of them.
func (s *faultyStore) heal(faults ...*fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = slices.DeleteFunc(slices.Clone(s.faults), func(f *fault) bool {
		return len(faults) == 0 || slices.Contains(faults, f)
	})
}

// count is how many calls there were of one name; of the empty name, of all.
func (s *faultyStore) count(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.counts[name]
	for _, of := range s.counts {
		if name == "" {
			n += of
		}
	}
	return n
}

// through makes a call, by way of the faults that it is for.
func through[T any](ctx context.Context, s *faultyStore, c call, do func() (T, error)) (T, error) {
	s.mu.Lock()
	s.counts[c.name]++
	faults := slices.Clone(s.faults)
	s.mu.Unlock()
	var out T
	c.reply = &out
	ask := func() (err error) {
		out, err = do()
		return err
	}
	for _, f := range slices.Backward(faults) {
		if f.isFor(&c) {
			inner := ask
			ask = func() error { return f.do(ctx, &c, inner) }
		}
	}
	if err := ask(); err != nil {
		var none T
		return none, err
	}
	return out, nil
}

// done is the result of a call that has none.
type done struct{}

func (s *faultyStore) do(ctx context.Context, c call, do func() error) error {
	_, err := through(ctx, s, c, func() (done, error) { return done{}, do() })
	return err
}

// homes are the shards of sources, collectors or queues.
func (s *faultyStore) homes(names ...string) (shards []int) {
	for _, name := range names {
		shards = append(shards, dispatch.ShardOf(dispatch.SlotOf(name), s.Shards()))
	}
	return shards
}

// named is a call about things by their ids.
func (s *faultyStore) named(name string, ids ...string) call {
	return call{name: name, ids: ids, shards: s.homes(ids...)}
}

// about is a call about tasks, or what each of items says of one.
func about[T any](s *faultyStore, name string, items []T, id func(*T) dispatch.TaskID) call {
	c := call{name: name}
	for i := range items {
		of := id(&items[i])
		c.ids, c.shards = append(c.ids, string(of)), append(c.shards, dispatch.ShardOf(max(of.Slot(), 0), s.Shards()))
	}
	return c
}

func itself(id *dispatch.TaskID) dispatch.TaskID { return *id }

func each[T any](items []T, of func(*T) string) []string {
	all := make([]string, len(items))
	for i := range items {
		all[i] = of(&items[i])
	}
	return all
}

func (s *faultyStore) Claim(ctx context.Context, shard int, pool string, holds int64, wants []dispatch.Want) (dispatch.ClaimReply, error) {
	return through(ctx, s, call{name: "Claim", shards: []int{shard}, pool: pool, wants: wants}, func() (dispatch.ClaimReply, error) {
		return s.Store.Claim(ctx, shard, pool, holds, wants)
	})
}

func (s *faultyStore) GiveBack(ctx context.Context, shard int, collector, clientToken, run string) (int, error) {
	return through(ctx, s, call{name: "GiveBack", shards: []int{shard}, ids: []string{collector}}, func() (int, error) {
		return s.Store.GiveBack(ctx, shard, collector, clientToken, run)
	})
}

func (s *faultyStore) BeginPolls(ctx context.Context, polls []dispatch.Poll) ([]dispatch.PollState, error) {
	c := s.named("BeginPolls", each(polls, func(p *dispatch.Poll) string { return p.Collector })...)
	return through(ctx, s, c, func() ([]dispatch.PollState, error) { return s.Store.BeginPolls(ctx, polls) })
}

func (s *faultyStore) Beats(ctx context.Context, beats []dispatch.CollectorInfo) ([]dispatch.PollState, error) {
	c := s.named("Beats", each(beats, func(b *dispatch.CollectorInfo) string { return b.ID })...)
	return through(ctx, s, c, func() ([]dispatch.PollState, error) { return s.Store.Beats(ctx, beats) })
}

func (s *faultyStore) ListCollectors(ctx context.Context, filter dispatch.CollectorFilter, after string, limit int) ([]*dispatch.CollectorRecord, error) {
	c := s.named("ListCollectors", filter.IDs...)
	for shard := range s.Shards() {
		if filter.IDs == nil {
			c.shards = append(c.shards, shard)
		}
	}
	return through(ctx, s, c, func() ([]*dispatch.CollectorRecord, error) {
		return s.Store.ListCollectors(ctx, filter, after, limit)
	})
}

func (s *faultyStore) EndSession(ctx context.Context, shard int, collector, keep string, limit int) ([]*dispatch.Task, error) {
	return through(ctx, s, call{name: "EndSession", shards: []int{shard}, ids: []string{collector}}, func() ([]*dispatch.Task, error) {
		return s.Store.EndSession(ctx, shard, collector, keep, limit)
	})
}

func (s *faultyStore) Renew(ctx context.Context, renewals []dispatch.Renewal) ([]dispatch.RenewResult, error) {
	c := about(s, "Renew", renewals, func(r *dispatch.Renewal) dispatch.TaskID { return r.ID })
	return through(ctx, s, c, func() ([]dispatch.RenewResult, error) { return s.Store.Renew(ctx, renewals) })
}

func (s *faultyStore) Apply(ctx context.Context, transitions []dispatch.Transition) ([]dispatch.ApplyResult, error) {
	c := about(s, "Apply", transitions, func(t *dispatch.Transition) dispatch.TaskID { return t.ID })
	return through(ctx, s, c, func() ([]dispatch.ApplyResult, error) { return s.Store.Apply(ctx, transitions) })
}

func (s *faultyStore) Expired(ctx context.Context, shard, limit int) (dispatch.Sweep, error) {
	return through(ctx, s, call{name: "Expired", shards: []int{shard}}, func() (dispatch.Sweep, error) {
		return s.Store.Expired(ctx, shard, limit)
	})
}

func (s *faultyStore) RequestCancel(ctx context.Context, ids []dispatch.TaskID, reason dispatch.CancelReason, line *dispatch.Attempt) error {
	return s.do(ctx, about(s, "RequestCancel", ids, itself), func() error { return s.Store.RequestCancel(ctx, ids, reason, line) })
}

func (s *faultyStore) ListLeases(ctx context.Context, cursor string, limit int) ([]*dispatch.Task, string, error) {
	var next string
	leased, err := through(ctx, s, call{name: "ListLeases", limit: limit}, func() (leased []*dispatch.Task, err error) {
		leased, next, err = s.Store.ListLeases(ctx, cursor, limit)
		return leased, err
	})
	return leased, next, err
}

func (s *faultyStore) Submit(ctx context.Context, rules int64, gates []dispatch.SourceGate, items []dispatch.Submission) ([]dispatch.SubmitResult, error) {
	c := about(s, "Submit", items, func(x *dispatch.Submission) dispatch.TaskID { return x.ID })
	return through(ctx, s, c, func() ([]dispatch.SubmitResult, error) { return s.Store.Submit(ctx, rules, gates, items) })
}

func (s *faultyStore) Tasks(ctx context.Context, ids []dispatch.TaskID, details bool) ([]*dispatch.Task, time.Time, error) {
	var now time.Time
	tasks, err := through(ctx, s, about(s, "Tasks", ids, itself), func() (tasks []*dispatch.Task, err error) {
		tasks, now, err = s.Store.Tasks(ctx, ids, details)
		return tasks, err
	})
	return tasks, now, err
}

func (s *faultyStore) ListTasks(ctx context.Context, filter dispatch.TaskFilter, cursor string, limit int) (dispatch.TaskPage, error) {
	return through(ctx, s, call{name: "ListTasks", limit: limit}, func() (dispatch.TaskPage, error) {
		return s.Store.ListTasks(ctx, filter, cursor, limit)
	})
}

func (s *faultyStore) PutSource(ctx context.Context, source *dispatch.Source, ifVersion int64) error {
	return s.do(ctx, s.named("PutSource", source.ID), func() error { return s.Store.PutSource(ctx, source, ifVersion) })
}

func (s *faultyStore) MarkApplied(ctx context.Context, id, uid string, version int64, seeds []dispatch.TaskID) (bool, error) {
	return through(ctx, s, s.named("MarkApplied", id), func() (bool, error) { return s.Store.MarkApplied(ctx, id, uid, version, seeds) })
}

func (s *faultyStore) SourcesByID(ctx context.Context, ids []string) ([]*dispatch.Source, error) {
	return through(ctx, s, s.named("SourcesByID", ids...), func() ([]*dispatch.Source, error) { return s.Store.SourcesByID(ctx, ids) })
}

func (s *faultyStore) PutRule(ctx context.Context, pattern string, rule *dispatch.QueueRule, ifVersion int64) (int64, error) {
	return through(ctx, s, call{name: "PutRule"}, func() (int64, error) { return s.Store.PutRule(ctx, pattern, rule, ifVersion) })
}

func (s *faultyStore) Rules(ctx context.Context) ([]dispatch.QueueRule, int64, error) {
	var version int64
	rules, err := through(ctx, s, call{name: "Rules"}, func() (rules []dispatch.QueueRule, err error) {
		rules, version, err = s.Store.Rules(ctx)
		return rules, err
	})
	return rules, version, err
}

func (s *faultyStore) Holds(ctx context.Context, have int64) (holds []dispatch.Hold, version int64, now time.Time, err error) {
	holds, err = through(ctx, s, call{name: "Holds"}, func() (read []dispatch.Hold, err error) {
		read, version, now, err = s.Store.Holds(ctx, have)
		return read, err
	})
	return holds, version, now, err
}

func (s *faultyStore) PutHolds(ctx context.Context, change dispatch.HoldChange, ifVersion int64) (int64, error) {
	return through(ctx, s, call{name: "PutHolds"}, func() (int64, error) { return s.Store.PutHolds(ctx, change, ifVersion) })
}

func (s *faultyStore) Now(ctx context.Context) (time.Time, error) {
	return through(ctx, s, call{name: "Now"}, func() (time.Time, error) { return s.Store.Now(ctx) })
}

func (s *faultyStore) Campaign(ctx context.Context, duty, holder string, ttl time.Duration) (string, error) {
	return through(ctx, s, call{name: "Campaign", ids: []string{holder}}, func() (string, error) {
		return s.Store.Campaign(ctx, duty, holder, ttl)
	})
}

func (s *faultyStore) Publish(ctx context.Context, hint dispatch.Hint) error {
	return s.do(ctx, call{name: "Publish"}, func() error { return s.Store.Publish(ctx, hint) })
}

func (s *faultyStore) Subscribe(ctx context.Context, deliver func(dispatch.Hint)) error {
	return s.do(ctx, call{name: "Subscribe"}, func() error {
		return s.Store.Subscribe(ctx, func(h dispatch.Hint) {
			if !s.deaf.Load() {
				deliver(h)
			}
		})
	})
}

func (s *faultyStore) BindCollector(ctx context.Context, collectorID, identity string) (string, error) {
	return through(ctx, s, call{name: "BindCollector", ids: []string{collectorID}}, func() (string, error) {
		return s.Store.BindCollector(ctx, collectorID, identity)
	})
}

func (s *faultyStore) ReleaseCollector(ctx context.Context, collectorID string) (string, error) {
	return through(ctx, s, call{name: "ReleaseCollector", ids: []string{collectorID}}, func() (string, error) {
		return s.Store.ReleaseCollector(ctx, collectorID)
	})
}

func (s *faultyStore) AppendAudit(ctx context.Context, entry dispatch.AuditEntry) error {
	return s.do(ctx, call{name: "AppendAudit"}, func() error { return s.Store.AppendAudit(ctx, entry) })
}

func (s *faultyStore) AuditEntries(ctx context.Context, by, before string, limit int) (entries []dispatch.AuditEntry, next string, err error) {
	_, err = through(ctx, s, call{name: "AuditEntries", limit: limit}, func() ([]dispatch.AuditEntry, error) {
		entries, next, err = s.Store.AuditEntries(ctx, by, before, limit)
		return entries, err
	})
	return entries, next, err
}
