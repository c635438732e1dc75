package dispatchtest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// faultyStore is a store that counts the calls that it gets, and does to them what a test wants.
type faultyStore struct {
	dispatch.Store

	mu     sync.Mutex // guards what follows
	counts map[string]int
	faults []*Fault
}

// Call is one call of a store.
type Call struct {
	name   string   // of the method
	Shards []int    // that it is for, of those whose number is clear from it
	ids    []string // of sources, collectors or tasks
	pool   string
	Wants  []dispatch.Want // of a claim
	Limit  int             // of a list
	Reply  any             // pointer to the first result, when it was answered
}

// Fault is what becomes of some calls. It may ask the store or not, and have another error.
type Fault struct {
	when []Match
	do   func(ctx context.Context, c *Call, ask func() error) error

	mu   sync.Mutex // guards what follows
	skip int        // calls that it leaves alone first
	left int        // calls that it is for yet; negative: all
}

// Match selects calls.
type Match func(c *Call) bool

// Calls selects calls of these methods.
func Calls(names ...string) Match {
	return func(c *Call) bool { return slices.Contains(names, c.name) }
}

// InShard selects calls for a shard.
func InShard(shard int) Match { return func(c *Call) bool { return slices.Contains(c.Shards, shard) } }

// InPool selects calls for a pool.
func InPool(pool string) Match { return func(c *Call) bool { return c.pool == pool } }

// OfID selects calls of which an id is like this.
func OfID(is func(id string) bool) Match {
	return func(c *Call) bool { return slices.ContainsFunc(c.ids, is) }
}

// On is a fault of the calls that all of when are true for; with none, of each call.
func On(do func(ctx context.Context, c *Call, ask func() error) error, when ...Match) *Fault {
	return &Fault{when: when, do: do, left: -1}
}

// Once limits a fault to the first of its calls.
func (f *Fault) Once() *Fault {
	f.left = 1
	return f
}

// From has a fault leave the first n of its calls alone.
func (f *Fault) From(n int) *Fault {
	f.skip = n
	return f
}

func (f *Fault) isFor(c *Call) bool {
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

// Hang gives no answer until the caller has enough.
func Hang(when ...Match) *Fault {
	return On(func(ctx context.Context, _ *Call, _ func() error) error {
		<-ctx.Done()
		return ctx.Err()
	}, when...)
}

// Delay holds calls up before they take effect.
func Delay(d time.Duration, when ...Match) *Fault { return Before(func() { time.Sleep(d) }, when...) }

// Late holds answers up.
func Late(d time.Duration, when ...Match) *Fault { return After(func() { time.Sleep(d) }, when...) }

// Fail has the error in place of the call.
func Fail(err error, when ...Match) *Fault {
	return On(func(context.Context, *Call, func() error) error { return err }, when...)
}

// Spoil has the error in place of the answer to a call that took effect.
func Spoil(err error, when ...Match) *Fault {
	return On(func(_ context.Context, _ *Call, ask func() error) error {
		if failed := ask(); failed != nil {
			return failed
		}
		return err
	}, when...)
}

// Drop does nothing, and says that it was done.
func Drop(when ...Match) *Fault { return Fail(nil, when...) }

// Before does something before calls take effect.
func Before(do func(), when ...Match) *Fault {
	return On(func(_ context.Context, _ *Call, ask func() error) error {
		do()
		return ask()
	}, when...)
}

// After does something after calls took effect.
func After(do func(), when ...Match) *Fault {
	return On(func(_ context.Context, _ *Call, ask func() error) error {
		err := ask()
		do()
		return err
	}, when...)
}

// InFlight is how many calls are in flight at once.
type InFlight struct {
	mu        sync.Mutex // guards what follows
	now, most int        // calls
}

// Most is the highest number of calls that were in flight at once.
func (n *InFlight) Most() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.most
}

// Count leaves calls as they are.
func (n *InFlight) Count(when ...Match) *Fault {
	add := func(d int) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.now += d
		n.most = max(n.most, n.now)
	}
	return On(func(_ context.Context, _ *Call, ask func() error) error {
		add(1)
		defer add(-1)
		return ask()
	}, when...)
}

func newFaultyStore(store dispatch.Store) *faultyStore {
	return &faultyStore{Store: store, counts: make(map[string]int)}
}

// Inject adds faults. The first one is the outermost.
func (s *faultyStore) Inject(faults ...*Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, faults...)
}

// Heal ends these faults; without any, all of them.
func (s *faultyStore) Heal(faults ...*Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = slices.DeleteFunc(slices.Clone(s.faults), func(f *Fault) bool {
		return len(faults) == 0 || slices.Contains(faults, f)
	})
}

// Count is how many calls there were of one name; of the empty name, of all.
func (s *faultyStore) Count(name string) int {
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
func through[T any](ctx context.Context, s *faultyStore, c Call, do func() (T, error)) (T, error) {
	s.mu.Lock()
	s.counts[c.name]++
	faults := slices.Clone(s.faults)
	s.mu.Unlock()
	var out T
	c.Reply = &out
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

func (s *faultyStore) do(ctx context.Context, c Call, do func() error) error {
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
func (s *faultyStore) named(name string, ids ...string) Call {
	return Call{name: name, ids: ids, Shards: s.homes(ids...)}
}

// about is a call about tasks, or what each of items says of one.
func about[T any](s *faultyStore, name string, items []T, id func(*T) dispatch.TaskID) Call {
	c := Call{name: name}
	for i := range items {
		of := id(&items[i])
		c.ids, c.Shards = append(c.ids, string(of)), append(c.Shards, dispatch.ShardOf(max(of.Slot(), 0), s.Shards()))
	}
	return c
}

func itself(id *dispatch.TaskID) dispatch.TaskID { return *id }

// Claim calls the store through the faults.
func (s *faultyStore) Claim(
	ctx context.Context, shard int, pool string, holds int64, wants []dispatch.Want, decided func(*dispatch.ClaimReply),
) (dispatch.ClaimReply, error) {
	return through(ctx, s, Call{name: "Claim", Shards: []int{shard}, pool: pool, Wants: wants}, func() (dispatch.ClaimReply, error) {
		return s.Store.Claim(ctx, shard, pool, holds, wants, decided)
	})
}

// GiveBack calls the store through the faults.
func (s *faultyStore) GiveBack(ctx context.Context, shard int, collector, clientToken, run string) (int, error) {
	return through(ctx, s, Call{name: "GiveBack", Shards: []int{shard}, ids: []string{collector}}, func() (int, error) {
		return s.Store.GiveBack(ctx, shard, collector, clientToken, run)
	})
}

// BeginPoll calls the store through the faults.
func (s *faultyStore) BeginPoll(ctx context.Context, poll dispatch.Poll) (dispatch.PollState, error) {
	return through(ctx, s, s.named("BeginPoll", poll.Collector), func() (dispatch.PollState, error) { return s.Store.BeginPoll(ctx, poll) })
}

// Beat calls the store through the faults.
func (s *faultyStore) Beat(ctx context.Context, beat dispatch.CollectorInfo) (dispatch.PollState, error) {
	return through(ctx, s, s.named("Beat", beat.ID), func() (dispatch.PollState, error) { return s.Store.Beat(ctx, beat) })
}

// ListCollectors calls the store through the faults.
func (s *faultyStore) ListCollectors(ctx context.Context, filter dispatch.CollectorFilter, after string, limit int) ([]*dispatch.CollectorRecord, error) {
	c := s.named("ListCollectors", filter.IDs...)
	for shard := range s.Shards() {
		if filter.IDs == nil {
			c.Shards = append(c.Shards, shard)
		}
	}
	return through(ctx, s, c, func() ([]*dispatch.CollectorRecord, error) {
		return s.Store.ListCollectors(ctx, filter, after, limit)
	})
}

// EndSession calls the store through the faults.
func (s *faultyStore) EndSession(ctx context.Context, shard int, collector, keep string, limit int) ([]*dispatch.Task, error) {
	return through(ctx, s, Call{name: "EndSession", Shards: []int{shard}, ids: []string{collector}}, func() ([]*dispatch.Task, error) {
		return s.Store.EndSession(ctx, shard, collector, keep, limit)
	})
}

// Renew calls the store through the faults.
func (s *faultyStore) Renew(ctx context.Context, renewals []dispatch.Renewal) ([]dispatch.RenewResult, error) {
	c := about(s, "Renew", renewals, func(r *dispatch.Renewal) dispatch.TaskID { return r.ID })
	return through(ctx, s, c, func() ([]dispatch.RenewResult, error) { return s.Store.Renew(ctx, renewals) })
}

// Apply calls the store through the faults.
func (s *faultyStore) Apply(ctx context.Context, transitions []dispatch.Transition) ([]dispatch.ApplyResult, error) {
	c := about(s, "Apply", transitions, func(t *dispatch.Transition) dispatch.TaskID { return t.ID })
	return through(ctx, s, c, func() ([]dispatch.ApplyResult, error) { return s.Store.Apply(ctx, transitions) })
}

// Expired calls the store through the faults.
func (s *faultyStore) Expired(ctx context.Context, shard, limit int) (dispatch.Sweep, error) {
	return through(ctx, s, Call{name: "Expired", Shards: []int{shard}}, func() (dispatch.Sweep, error) {
		return s.Store.Expired(ctx, shard, limit)
	})
}

// RequestCancel calls the store through the faults.
func (s *faultyStore) RequestCancel(ctx context.Context, ids []dispatch.TaskID, reason dispatch.CancelReason, line *dispatch.Attempt) error {
	return s.do(ctx, about(s, "RequestCancel", ids, itself), func() error { return s.Store.RequestCancel(ctx, ids, reason, line) })
}

// ListLeases calls the store through the faults.
func (s *faultyStore) ListLeases(ctx context.Context, cursor string, limit int) ([]*dispatch.Task, string, error) {
	var next string
	leased, err := through(ctx, s, Call{name: "ListLeases", Limit: limit}, func() (leased []*dispatch.Task, err error) {
		leased, next, err = s.Store.ListLeases(ctx, cursor, limit)
		return leased, err
	})
	return leased, next, err
}

// Submit calls the store through the faults.
func (s *faultyStore) Submit(ctx context.Context, rules int64, gates []dispatch.SourceGate, items []dispatch.Submission) ([]dispatch.SubmitResult, error) {
	c := about(s, "Submit", items, func(x *dispatch.Submission) dispatch.TaskID { return x.ID })
	return through(ctx, s, c, func() ([]dispatch.SubmitResult, error) { return s.Store.Submit(ctx, rules, gates, items) })
}

// Tasks calls the store through the faults.
func (s *faultyStore) Tasks(ctx context.Context, ids []dispatch.TaskID, details bool) ([]*dispatch.Task, time.Time, error) {
	var now time.Time
	tasks, err := through(ctx, s, about(s, "Tasks", ids, itself), func() (tasks []*dispatch.Task, err error) {
		tasks, now, err = s.Store.Tasks(ctx, ids, details)
		return tasks, err
	})
	return tasks, now, err
}

// ListTasks calls the store through the faults.
func (s *faultyStore) ListTasks(ctx context.Context, filter dispatch.TaskFilter, cursor string, limit int) (dispatch.TaskPage, error) {
	return through(ctx, s, Call{name: "ListTasks", Limit: limit}, func() (dispatch.TaskPage, error) {
		return s.Store.ListTasks(ctx, filter, cursor, limit)
	})
}

// PutSource calls the store through the faults.
func (s *faultyStore) PutSource(ctx context.Context, source *dispatch.Source, ifVersion int64) error {
	return s.do(ctx, s.named("PutSource", source.ID), func() error { return s.Store.PutSource(ctx, source, ifVersion) })
}

// MarkApplied calls the store through the faults.
func (s *faultyStore) MarkApplied(ctx context.Context, id, uid string, version int64, seeds []dispatch.TaskID) (bool, error) {
	return through(ctx, s, s.named("MarkApplied", id), func() (bool, error) { return s.Store.MarkApplied(ctx, id, uid, version, seeds) })
}

// SourcesByID calls the store through the faults.
func (s *faultyStore) SourcesByID(ctx context.Context, ids []string) ([]*dispatch.Source, error) {
	return through(ctx, s, s.named("SourcesByID", ids...), func() ([]*dispatch.Source, error) { return s.Store.SourcesByID(ctx, ids) })
}

// ListSources calls the store through the faults.
func (s *faultyStore) ListSources(ctx context.Context, filter dispatch.SourceFilter, after string, limit int) (found []*dispatch.Source, more bool, err error) {
	_, err = through(ctx, s, Call{name: "ListSources", Limit: limit}, func() ([]*dispatch.Source, error) {
		found, more, err = s.Store.ListSources(ctx, filter, after, limit)
		return found, err
	})
	return found, more, err
}

// PutRule calls the store through the faults.
func (s *faultyStore) PutRule(ctx context.Context, pattern string, rule *dispatch.QueueRule, ifVersion int64) (int64, error) {
	return through(ctx, s, Call{name: "PutRule"}, func() (int64, error) { return s.Store.PutRule(ctx, pattern, rule, ifVersion) })
}

// Rules calls the store through the faults.
func (s *faultyStore) Rules(ctx context.Context) ([]dispatch.QueueRule, int64, error) {
	var version int64
	rules, err := through(ctx, s, Call{name: "Rules"}, func() (rules []dispatch.QueueRule, err error) {
		rules, version, err = s.Store.Rules(ctx)
		return rules, err
	})
	return rules, version, err
}

// Holds calls the store through the faults.
func (s *faultyStore) Holds(ctx context.Context, have int64) (holds []dispatch.Hold, version int64, now time.Time, err error) {
	holds, err = through(ctx, s, Call{name: "Holds"}, func() (read []dispatch.Hold, err error) {
		read, version, now, err = s.Store.Holds(ctx, have)
		return read, err
	})
	return holds, version, now, err
}

// PutHolds calls the store through the faults.
func (s *faultyStore) PutHolds(ctx context.Context, change dispatch.HoldChange, ifVersion int64) (int64, error) {
	return through(ctx, s, Call{name: "PutHolds"}, func() (int64, error) { return s.Store.PutHolds(ctx, change, ifVersion) })
}

// Now calls the store through the faults.
func (s *faultyStore) Now(ctx context.Context) (time.Time, error) {
	return through(ctx, s, Call{name: "Now"}, func() (time.Time, error) { return s.Store.Now(ctx) })
}

// BindCollector calls the store through the faults.
func (s *faultyStore) BindCollector(ctx context.Context, collectorID, identity string, ttl time.Duration) (string, error) {
	return through(ctx, s, Call{name: "BindCollector", ids: []string{collectorID}}, func() (string, error) {
		return s.Store.BindCollector(ctx, collectorID, identity, ttl)
	})
}

// ReleaseCollector calls the store through the faults.
func (s *faultyStore) ReleaseCollector(ctx context.Context, collectorID string) (string, error) {
	return through(ctx, s, Call{name: "ReleaseCollector", ids: []string{collectorID}}, func() (string, error) {
		return s.Store.ReleaseCollector(ctx, collectorID)
	})
}

// AppendAudit calls the store through the faults.
func (s *faultyStore) AppendAudit(ctx context.Context, entry dispatch.AuditEntry) error {
	return s.do(ctx, Call{name: "AppendAudit"}, func() error { return s.Store.AppendAudit(ctx, entry) })
}

// PutNotice calls the store through the faults.
func (s *faultyStore) PutNotice(ctx context.Context, name string, record []byte) error {
	return s.do(ctx, Call{name: "PutNotice"}, func() error { return s.Store.PutNotice(ctx, name, record) })
}

// AuditEntries calls the store through the faults.
func (s *faultyStore) AuditEntries(ctx context.Context, by, before string, limit int) (entries []dispatch.AuditEntry, next string, err error) {
	_, err = through(ctx, s, Call{name: "AuditEntries", Limit: limit}, func() ([]dispatch.AuditEntry, error) {
		entries, next, err = s.Store.AuditEntries(ctx, by, before, limit)
		return entries, err
	})
	return entries, next, err
}
