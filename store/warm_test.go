package store_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/storetest"
)

// followed is a store whose groups a follower takes, which is warm. Now and then, when the clock moves, the follower ends: then it must
// have what a load of the items has, and one of both goes on in the place of the store.
type followed struct {
	dispatch.Store
	t     *testing.T
	clock *storetest.StillClock
	rand  *rand.Rand // by which it begins, reads and ends
	pick  *rand.Rand // by which it picks items
	kept  *keyedLedger
	now   *store.Store
	cold  bool // a load of the items goes on, and not the follower

	scan     []itemName    // that are to be read yet, while groups go on
	follower *store.Loader // nil: there is none
	from     int           // the first group that it has not taken
	warm     bool          // it has read all items
	latest   time.Time     // that a group has had

	takeovers, others int // others: with queues that were apart
}

func newFollowed(t *testing.T, shards int, cold bool) *followed {
	t.Helper()
	f := &followed{t: t, clock: storetest.NewStillClock(start), cold: cold}
	f.rand, f.pick = rand.New(rand.NewPCG(storetest.Seed(t), 7)), rand.New(rand.NewPCG(storetest.Seed(t), 8))
	f.kept = newKeyedLedger(t, shards, f.clock.Now)
	s, err := store.Open(t.Context(), f.config())
	if err != nil {
		t.Fatal(err)
	}
	f.now, f.Store = s, s
	t.Cleanup(func() {
		if err := f.now.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *followed) config() store.Config {
	return store.Config{Now: f.clock.Now, Backend: f.kept}
}

// movedClock is the clock of a store that is followed.
type movedClock struct {
	*storetest.StillClock
	of *followed
}

func (c movedClock) Advance(d time.Duration) { c.Set(c.Now().Add(d)) }

func (c movedClock) Set(now time.Time) {
	if c.of.latest.Before(c.Now()) {
		c.of.latest = c.Now()
	}
	c.of.step()
	c.StillClock.Set(now)
}

// step lets the follower go on a little.
func (f *followed) step() {
	switch {
	case f.follower == nil && f.rand.IntN(2) == 0:
		f.begin()
	case f.follower == nil:
	case !f.warm:
		f.read(f.rand.IntN(4) == 0)
	case f.rand.IntN(7) == 0 && !f.clock.Now().Before(f.latest):
		f.end()
	case f.rand.IntN(4) == 0:
		f.must(f.follower.Warm())
	default:
		f.take()
		if f.rand.IntN(8) == 0 {
			f.again()
		}
	}
}

// begin begins a follower: it has the items that are kept now, each as it is when it is read, in any order.
func (f *followed) begin() {
	f.follower, f.warm = f.loader(), false
	f.scan, f.from = f.kept.names(), len(f.kept.groups)
	f.pick.Shuffle(len(f.scan), func(i, j int) { f.scan[i], f.scan[j] = f.scan[j], f.scan[i] })
}

// loader begins to load.
func (f *followed) loader() *store.Loader {
	l := store.NewLoader(f.config())
	f.must(l.Begin(f.kept.shards))
	f.must(l.Add(codec.AppendItem(nil, codec.Store, 0, func(c *codec.Codec) { codec.Int(c, 1, &f.kept.shards) })))
	return l
}

// read reads some of the items. Behind the last ones come the groups since the first: now all is as of one instant.
func (f *followed) read(last bool) {
	next := f.scan
	if !last {
		next = next[:f.pick.IntN(len(next)+1)]
	}
	f.must(f.follower.Add(f.kept.read(nil, next)))
	if f.scan = f.scan[len(next):]; !last {
		return
	}
	for _, name := range f.kept.names() { // of those that came meanwhile a scan may have some
		if f.pick.IntN(8) == 0 {
			f.must(f.follower.Add(f.kept.read(nil, []itemName{name})))
		}
	}
	f.take()
	f.must(f.follower.Warm())
	f.warm = true
}

// take takes the groups that came since. One that it takes has what several commands have changed, as a backend may have it.
func (f *followed) take() {
	for left := f.kept.groups[f.from:]; len(left) > 0; {
		n := 1 + f.pick.IntN(min(4, len(left)))
		group := slices.Clone(left[n-1][:groupHead])
		for _, of := range left[:n] {
			group = append(group, of[groupHead:]...)
		}
		f.must(f.follower.Group(group))
		left = left[n:]
	}
	f.from = len(f.kept.groups)
}

// again gives the follower items that it has, as an owner does that writes again what a failover may have lost.
func (f *followed) again() {
	names := slices.DeleteFunc(f.kept.names(), func(itemName) bool { return f.pick.IntN(3) > 0 })
	items := f.kept.read(nil, names)
	if f.pick.IntN(2) == 0 {
		f.must(f.follower.Add(items))
	} else {
		f.must(f.follower.Group(slices.Concat(f.kept.groups[0][:groupHead], items)))
	}
}

// end ends the follower.
func (f *followed) end() {
	f.take()
	warm, loaded := f.follower, f.loader()
	for shard := range f.kept.shards {
		f.must(loaded.Add(f.kept.piece(shard)))
	}
	f.follower = nil
	has, err := warm.OpenKeyed(f.kept.term())
	f.must(err)
	wants, err := loaded.OpenKeyed(f.kept.term())
	f.must(err)
	f.takeovers++
	next, by := has, warm
	same := f.same(has, wants)
	if !same {
		f.others++
	}
	if !same || f.cold {
		next, by = wants, loaded
	}
	next.TakeUnrecorded(f.now)
	f.must(f.now.Close())
	f.kept.owner, f.now, f.Store = by.Unlocked, next, next
}

// same holds a store against one that was loaded of the items, and reports whether it has all the same: see apart.
func (f *followed) same(has, wants *store.Store) bool {
	f.t.Helper()
	for name, s := range map[string]*store.Store{"warm": has, "loaded": wants} {
		if misfits := s.Check(); len(misfits) > 0 {
			f.t.Fatalf("takeover %d: the %s store: %v", f.takeovers, name, misfits)
		}
	}
	f.sameItems(f.now, has)
	if f.apart(has, wants) {
		return false
	}
	for name, of := range map[string]func(*store.Store) (any, error){
		"items":  func(s *store.Store) (any, error) { return s.ExactItems() },
		"queues": func(s *store.Store) (any, error) { return s.ListQueues(f.t.Context(), "", "", 10_000) },
		"pools":  func(s *store.Store) (any, error) { return s.ListPools(f.t.Context(), "", "", 10_000) },
		"counts": func(s *store.Store) (any, error) { return s.Stats(f.t.Context()) },
	} {
		got, err := of(has)
		f.must(err)
		want, err := of(wants)
		f.must(err)
		if !reflect.DeepEqual(got, want) {
			f.t.Fatalf("takeover %d: %s of the warm store: %+v, and must be %+v", f.takeovers, name, got, want)
		}
	}
	return true
}

// sameItems holds what a store keeps against what the store before has kept.
func (f *followed) sameItems(before, after *store.Store) {
	f.t.Helper()
	want, err := before.Items()
	f.must(err)
	got, err := after.Items()
	f.must(err)
	if !slices.Equal(got, want) {
		f.t.Fatalf("takeover %d: it keeps %q, and before %q was kept", f.takeovers, without(got, want), without(want, got))
	}
}

// longestDelay is how late a queue may be: more than any that the model test sets.
const longestDelay = time.Hour

// apart holds queues against those that were loaded of the items, and reports whether some have another next grant: a later one, as that
// may be after a grant was given back, or one that has come for both.
func (f *followed) apart(has, wants *store.Store) (apart bool) {
	f.t.Helper()
	now, got, want := f.clock.Now(), f.queues(has), f.queues(wants)
	for name, q := range got {
		w, there := want[name]
		if !there { // a later next grant keeps it
			w.Name = name
		}
		if a, b := q.NextGrant, w.NextGrant; !a.Equal(b) {
			apart = true
			if a.Before(b) && b.After(now) || a.After(now.Add(longestDelay)) || !there && !a.After(now) {
				f.t.Fatalf("takeover %d: queue %s of the warm store waits until %v, and must until %v", f.takeovers, name, a, b)
			}
		}
		if q.NextGrant = w.NextGrant; !reflect.DeepEqual(q, w) {
			f.t.Fatalf("takeover %d: the warm store has the queue %+v, and must have %+v", f.takeovers, q, w)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		f.t.Fatalf("takeover %d: the warm store has not the queues %v", f.takeovers, want)
	}
	return apart
}

// queues are those of a store by their names.
func (f *followed) queues(s *store.Store) map[string]dispatch.PortableQueue {
	f.t.Helper()
	queues := map[string]dispatch.PortableQueue{}
	f.must(s.Export(f.t.Context(), func(batch *dispatch.PortableBatch) error {
		for _, q := range batch.Queues {
			queues[q.Name] = q
		}
		return nil
	}))
	return queues
}

func (f *followed) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatalf("takeover %d: %v", f.takeovers, err)
	}
}

func (f *followed) instance() storetest.Instance {
	return storetest.Instance{
		Store: f, Clock: movedClock{f.clock, f}, Undoes: true,
		DeleteLock: func(id dispatch.TaskID) { f.kept.putLock(id, "", 0) },
		SetLock:    f.kept.putLock,
		LockValue:  f.kept.lock,
	}
}

// takeoverSteps are fewer than [storetest.DefaultSteps]: `make model` makes more.
const takeoverSteps = 10_000

// TestLoader_Warm makes random operations on two stores that are taken over again and again: one by a follower that is warm, the other by
// a load of its items. Both must answer alike.
func TestLoader_Warm(t *testing.T) {
	t.Parallel()
	var warm *followed
	storetest.Model(t, func(t *testing.T, opts storetest.Options) storetest.Instance {
		t.Helper()
		warm = newFollowed(t, opts.Shards, false)
		return warm.instance()
	}, storetest.ModelConfig{Steps: takeoverSteps, Reference: func(t *testing.T, opts storetest.Options) storetest.Instance {
		t.Helper()
		return newFollowed(t, opts.Shards, true).instance()
	}})
	t.Logf("%d takeovers, %d with queues that had another next grant", warm.takeovers, warm.others)
	if warm.others*2 > warm.takeovers {
		t.Error("most takeovers found queues that had another next grant")
	}
}
