// Package backendtest has the tests that every [backend.Backend] passes.
package backendtest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/codec"
)

// Place is where a store is kept, which is new. What a backend cannot be made to do is nil.
type Place struct {
	// Backend makes a backend of the store, as another process would have it.
	Backend func() backend.Backend
	// Kill ends a backend as the death of its process would.
	Kill func(backend.Backend) error
	// Lose takes the store away from its owner, so that another one can acquire it.
	Lose func() error
	// Fail makes the next write fail: of a group, or of what the backend writes beside.
	Fail func()
	// Fill leaves no room for what grows, or as much as wanted.
	Fill func(full bool)
	// Renew makes the store one of a format that no program knows yet.
	Renew func() error
	// Archives: it is a [backend.Archive], whose Release makes a snapshot.
	Archives bool
}

// Run runs all tests. place is called for each.
func Run(t *testing.T, place func(t *testing.T) Place) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(t *testing.T, p Place)
	}{
		{"OneOwner", oneOwner},
		{"AfterRelease", afterRelease},
		{"Load", load},
		{"Order", order},
		{"Shards", shards},
		{"Lost", lost},
		{"Failed", failed},
		{"Full", full},
		{"NewerFormat", newerFormat},
		{"UnknownFields", unknownFields},
		{"Apart", apart},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, place(t))
		})
	}
}

// apart keeps what snapshots give apart: the last of each task counts, and a removal ends it.
func apart(t *testing.T, p Place) {
	if !p.Archives {
		return
	}
	entry := func(n byte, text string) []byte {
		key, kind := [16]byte{n, 15: n}, codec.Task
		if text == "" {
			kind |= codec.Removed
		}
		return codec.AppendApart(nil, 1, codec.AppendItem(nil, kind, 0, func(c *codec.Codec) {
			c.Key(1, &key)
			codec.Text(c, 2, &text)
		}))
	}
	want := make(map[[16]byte]string)
	for round, texts := range [][]string{{"a", "b", "c", "d"}, {"", "B", "c"}, {"", "", "", "D", "e"}, {"again"}} {
		o := acquire(t, p)
		for n, text := range texts {
			o.apart = append(o.apart, entry(byte(n), "")...) // one that comes before counts for nothing
			o.apart = append(o.apart, entry(byte(n), text)...)
			if delete(want, [16]byte{byte(n), 15: byte(n)}); text != "" {
				want[[16]byte{byte(n), 15: byte(n)}] = string(entry(byte(n), text))
			}
		}
		o.mustPut(kept{fmt.Sprint(round): "q"})
		if err := o.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		o = acquire(t, p)
		recalled, listed := make(map[[16]byte]string), make(map[[16]byte]string)
		into := func(all map[[16]byte]string) func(entry []byte) error {
			return func(entry []byte) error {
				a, _, ok := codec.CutApart(entry)
				if _, twice := all[a.Key]; twice || !ok {
					t.Errorf("round %d: an entry comes twice, or cannot be read", round)
				}
				all[a.Key] = string(a.Entry)
				return nil
			}
		}
		var keys [][16]byte
		for n := range byte(10) {
			keys = append(keys, [16]byte{n, 15: n}, [16]byte{n, 15: n + 1})
		}
		of := o.Backend.(backend.Archive) //nolint:forcetypeassert // the place says so
		err := of.Recall(t.Context(), 0, keys, func(entry []byte) { _ = into(recalled)(entry) })
		if err := errors.Join(err, of.Each(t.Context(), 0, into(listed))); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(recalled, want) || !maps.Equal(listed, want) {
			t.Errorf("round %d: %q are recalled and %q listed, want %q", round, recalled, listed, want)
		}
		if err := of.Each(t.Context(), 1, func([]byte) error { return errors.New("of another shard") }); err != nil {
			t.Error(err)
		}
		if err := o.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// kept are rules by their patterns: items as good as any.
type kept map[string]string

func (k kept) apply(kind codec.Kind, fields []byte) error {
	if kind == codec.Store || kind == codec.End {
		return nil
	}
	c := codec.Reader(fields)
	var pattern, queue string
	codec.Text(c, 1, &pattern)
	codec.Text(c, 2, &queue)
	switch kind {
	case codec.Rule:
		k[pattern] = queue
	case codec.Rule | codec.Removed:
		delete(k, pattern)
	default:
		return fmt.Errorf("there is an item of kind %d", kind)
	}
	_, err := c.End()
	return err
}

// owner uses a backend, and has what it keeps.
type owner struct {
	t testing.TB
	backend.Backend
	term backend.Term

	mu     sync.Mutex // guards what follows
	kept   kept
	sent   bool // a group of this term
	shards int
	ended  bool
	apart  []byte // the entries of the next snapshot
}

// acquire acquires and loads the store, which must work.
func acquire(t testing.TB, p Place) *owner {
	t.Helper()
	o := &owner{t: t, Backend: p.Backend(), kept: kept{}}
	if err := o.open(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Release(context.WithoutCancel(t.Context())) })
	return o
}

func (o *owner) open(ctx context.Context, shards int) (err error) {
	o.term, err = o.Acquire(ctx, backend.Owner{
		Shards: shards, Snapshot: o.snapshot, Leased: func() bool { return false },
		Gained:   func(context.Context, backend.Gain) error { return nil },
		Unlocked: func(int, []backend.Unlocked) (backend.Commit, error) { return nil, nil },
	})
	if err != nil {
		return err
	}
	if err := loadAll(ctx, o.Backend, o.term, o); err != nil {
		return errors.Join(err, o.Release(ctx))
	}
	if o.term.Keyed {
		o.shards = o.term.Shards
	}
	return nil
}

// loadAll loads all shards.
func loadAll(ctx context.Context, b backend.Backend, term backend.Term, items backend.Items) error {
	if !term.Keyed {
		return b.Load(ctx, backend.AllShards, items)
	}
	for _, gain := range term.Gained {
		if err := b.Load(ctx, gain.Shard, items); err != nil {
			return err
		}
	}
	return nil
}

// Begin implements [backend.Items].
func (o *owner) Begin(shards int) error {
	if shards != 0 || !o.term.Keyed {
		o.kept = kept{}
	}
	o.shards, o.ended = shards, false
	return nil
}

// Add implements [backend.Items].
func (o *owner) Add(piece []byte) error {
	for len(piece) > 0 {
		kind, _, fields, rest, ok := codec.CutItem(piece)
		if !ok {
			return errors.New("an item is cut off")
		}
		piece, o.ended = rest, kind == codec.End
		if err := o.kept.apply(kind, fields); err != nil {
			return err
		}
	}
	return nil
}

// Ended implements [backend.Items].
func (o *owner) Ended() error {
	if !o.ended {
		return errors.New("the end of the snapshot is missing")
	}
	return nil
}

// headBytes are before the items of a group.
const headBytes = 8

// Group implements [backend.Items].
func (o *owner) Group(group []byte) error { return o.Add(group[headBytes:]) }

// snapshot writes all rules, a piece each.
func (o *owner) snapshot(_ int, to backend.Snapshot) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	write := to.Write
	if to.Begun(); !o.sent {
		o.t.Error("a snapshot is asked for before the first group")
	}
	shards := max(o.shards, 1)
	var err error
	if !o.term.Keyed {
		err = write(codec.AppendItem(nil, codec.Store, 0, func(c *codec.Codec) { codec.Int(c, 1, &shards) }))
	}
	for _, pattern := range slices.Sorted(maps.Keys(o.kept)) {
		if err == nil {
			err = write(rule(pattern, o.kept[pattern]))
		}
	}
	if err == nil && !o.term.Keyed {
		err = write(codec.AppendItem(nil, codec.End, 0, func(*codec.Codec) {}))
	}
	if err == nil && to.Apart != nil {
		if err = to.Apart(o.apart); err == nil {
			err = to.Kept()
		}
	}
	return err
}

// rule is the item of one; without a queue it is removed.
func rule(pattern, queue string) []byte {
	if queue == "" {
		return codec.RemovedText(nil, codec.Rule, 0, pattern)
	}
	return codec.AppendItem(nil, codec.Rule, 0, func(c *codec.Codec) {
		codec.Text(c, 1, &pattern)
		codec.Text(c, 2, &queue)
	})
}

// groupOf is the group of some items.
func groupOf(items ...[]byte) []byte {
	return slices.Concat(append([][]byte{binary.LittleEndian.AppendUint64(nil, 1)}, items...)...)
}

// put sends a group that sets rules, and waits until it is kept.
func (o *owner) put(ctx context.Context, shard int, rules kept) error {
	c, err := o.send(shard, rules)
	if err != nil {
		return err
	}
	return c.Wait(ctx)
}

func (o *owner) send(shard int, rules kept) (backend.Commit, error) {
	var items [][]byte
	for _, pattern := range slices.Sorted(maps.Keys(rules)) {
		items = append(items, rule(pattern, rules[pattern]))
	}
	group := groupOf(items...)
	if err := o.Room(shard, len(group), false); err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sent = true
	c := o.Commit(shard, group, len(group))
	clear(group) // it belongs to the caller
	for pattern, queue := range rules {
		if o.kept[pattern] = queue; queue == "" {
			delete(o.kept, pattern)
		}
	}
	return c, nil
}

func (o *owner) mustPut(rules kept) {
	o.t.Helper()
	if err := o.put(o.t.Context(), 0, rules); err != nil {
		o.t.Fatal(err)
	}
}

func (o *owner) mustRelease() {
	o.t.Helper()
	if err := o.Release(o.t.Context()); err != nil {
		o.t.Fatal(err)
	}
}

// has fails unless exactly those rules were loaded.
func (o *owner) has(want kept) {
	o.t.Helper()
	if !maps.Equal(o.kept, want) {
		o.t.Errorf("loaded are %v; want %v", o.kept, want)
	}
}

// refused fails unless nothing is kept any more, and nothing may be answered.
func (o *owner) refused(want error) {
	o.t.Helper()
	if err := o.put(o.t.Context(), 0, kept{"late": "q"}); !errors.Is(err, want) {
		o.t.Errorf("a group is kept, or refused by %v; want %v", err, want)
	}
	if until, err := o.Until(o.t.Context(), 0); err == nil && (until.IsZero() || time.Until(until) > 0) {
		o.t.Errorf("reads may be answered until %v", until)
	}
}

// oneOwner has a second owner come while the first one lives: it is refused, or the first one is.
func oneOwner(t *testing.T, p Place) {
	first := acquire(t, p)
	first.mustPut(kept{"a": "1"})
	second := &owner{t: t, Backend: p.Backend(), kept: kept{}}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := second.open(ctx, 0); err != nil {
		if !errors.Is(err, backend.ErrInUse) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the second owner: %v", err)
		}
		first.mustPut(kept{"b": "2"})
		return
	}
	if second.term.Epoch <= first.term.Epoch {
		t.Errorf("epoch %d follows %d", second.term.Epoch, first.term.Epoch)
	}
	first.refused(dispatch.ErrStoreUnavailable)
	second.has(kept{"a": "1"})
	second.mustRelease()
	acquire(t, p).has(kept{"a": "1"})
}

// afterRelease acquires a store again.
func afterRelease(t *testing.T, p Place) {
	first := acquire(t, p)
	first.has(kept{})
	if first.term.Kind == "" {
		t.Error("the store has no kind")
	}
	first.mustPut(kept{"a": "1"})
	first.mustRelease()
	first.mustRelease()
	second := acquire(t, p)
	second.has(kept{"a": "1"})
	if second.term.Away > time.Minute {
		t.Errorf("nobody owned the store for %v", second.term.Away)
	}
	if until, err := second.Until(t.Context(), 0); err != nil || !until.IsZero() && time.Until(until) <= 0 {
		t.Errorf("reads may be answered until %v, %v", until, err)
	}
	second.mustRelease() // without a group, as if what was loaded did not fit together
	acquire(t, p).has(kept{"a": "1"})
}

// load kills and releases owners: what was acknowledged is loaded, and nothing else.
func load(t *testing.T, p Place) {
	random := rand.New(rand.NewPCG(1, 2))
	want := kept{}
	for round := range 8 {
		o := acquire(t, p)
		o.has(want)
		for range random.IntN(60) {
			rules := kept{}
			for range 1 + random.IntN(4) {
				rules[fmt.Sprint(random.IntN(30))] = []string{"", "q", "r"}[random.IntN(3)]
			}
			shard := random.IntN(2) - 1 // AllShards or 0
			if err := o.put(t.Context(), shard, rules); err != nil {
				t.Fatal(err)
			}
			for pattern, queue := range rules {
				if want[pattern] = queue; queue == "" {
					delete(want, pattern)
				}
			}
		}
		if round%3 == 2 {
			o.mustRelease()
		} else if err := p.Kill(o.Backend); err != nil {
			t.Fatal(err)
		}
	}
}

// order has some send groups at the same time, without waiting for each: of each sender they are kept in order and whole.
func order(t *testing.T, p Place) {
	const senders, groups = 4, 200
	o := acquire(t, p)
	var sending errgroup.Group
	for n := range senders {
		sending.Go(func() error {
			var last backend.Commit
			for i := range groups {
				value := fmt.Sprint(i)
				var err error
				if last, err = o.send(0, kept{fmt.Sprintf("%d-a", n): value, fmt.Sprintf("%d-b", n): value}); err != nil {
					return err
				}
			}
			return last.Wait(t.Context())
		})
	}
	if err := sending.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(o.Backend); err != nil {
		t.Fatal(err)
	}
	want := kept{}
	for n := range senders {
		want[fmt.Sprintf("%d-a", n)], want[fmt.Sprintf("%d-b", n)] = fmt.Sprint(groups-1), fmt.Sprint(groups-1)
	}
	acquire(t, p).has(want)
}

// shards fixes how many a store has.
func shards(t *testing.T, p Place) {
	first := &owner{t: t, Backend: p.Backend(), kept: kept{}}
	if err := first.open(t.Context(), 4); err != nil || first.shards != 4 {
		t.Fatalf("%d shards, %v; want 4", first.shards, err)
	}
	first.mustPut(kept{"a": "1"})
	first.mustRelease()
	other := &owner{t: t, Backend: p.Backend(), kept: kept{}}
	if err := other.open(t.Context(), 3); !errors.Is(err, dispatch.ErrStoreMismatch) {
		t.Errorf("with 3 shards: %v", err)
	}
	if again := acquire(t, p); again.shards != 4 {
		t.Errorf("it has %d shards", again.shards)
	}
}

// lost takes the store from its owner: nothing that the owner sends then is kept.
func lost(t *testing.T, p Place) {
	if p.Lose == nil {
		return
	}
	o := acquire(t, p)
	o.mustPut(kept{"a": "1"})
	if err := p.Lose(); err != nil {
		t.Fatal(err)
	}
	o.refused(dispatch.ErrStoreUnavailable)
	next := acquire(t, p)
	next.has(kept{"a": "1"})
	o.refused(dispatch.ErrStoreUnavailable)
	next.mustPut(kept{"b": "2"})
	next.mustRelease()
	acquire(t, p).has(kept{"a": "1", "b": "2"})
}

// failed fails one group: no later one is kept, and nothing is answered. What was acknowledged is there.
func failed(t *testing.T, p Place) {
	if p.Fail == nil {
		return
	}
	o := acquire(t, p)
	o.mustPut(kept{"a": "1"})
	var err error
	for tries := 0; err == nil && tries < 5; tries++ { // the fault may meet another write
		p.Fail()
		err = o.put(t.Context(), 0, kept{"a": "1"})
	}
	if !errors.Is(err, dispatch.ErrStoreUnavailable) {
		t.Fatalf("a group whose write fails gives %v", err)
	}
	o.refused(dispatch.ErrStoreUnavailable)
	_ = p.Kill(o.Backend)
	next := acquire(t, p)
	delete(next.kept, "late") // it may be there
	next.has(kept{"a": "1"})
}

// full has no room: what grows is refused, the rest goes on; and all does when there is room again.
func full(t *testing.T, p Place) {
	if p.Fill == nil {
		return
	}
	o := acquire(t, p)
	p.Fill(true)
	const most = 10_000
	grown := 0
	var err error
	for ; err == nil && grown < most; grown++ {
		pattern, queue := fmt.Sprint(grown), strings.Repeat("q", 1000)
		group := groupOf(rule(pattern, queue))
		if err = o.Room(0, len(group), true); err == nil {
			if err := o.Commit(0, group, len(group)).Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			o.sent, o.kept[pattern] = true, queue
		}
	}
	if !errors.Is(err, dispatch.ErrStoreFull) {
		t.Fatalf("after %d groups what grows is refused by %v", grown, err)
	}
	for i := range 5 {
		o.mustPut(kept{fmt.Sprint(i): ""})
	}
	p.Fill(false)
	for limit := time.Now().Add(10 * time.Second); ; {
		if err = o.Room(0, 1000, true); err == nil || time.Now().After(limit) {
			break
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
	if err != nil {
		t.Fatalf("there is room again, but %v", err)
	}
	if o.Commit(0, nil, 1000) != nil {
		t.Error("there is a commit without a group")
	}
	want := maps.Clone(o.kept)
	o.mustRelease()
	acquire(t, p).has(want)
}

// newerFormat refuses what only a later program can read, and names that.
func newerFormat(t *testing.T, p Place) {
	if p.Renew == nil {
		return
	}
	o := acquire(t, p)
	o.mustPut(kept{"a": "1"})
	o.mustRelease()
	if err := p.Renew(); err != nil {
		t.Fatal(err)
	}
	next := &owner{t: t, Backend: p.Backend(), kept: kept{}}
	if err := next.open(t.Context(), 0); !errors.Is(err, dispatch.ErrStoreMismatch) || !strings.Contains(err.Error(), "format") {
		t.Errorf("a newer format is refused by %v", err)
	}
}

// unknownFields adds a field to a task that this program does not know: it stays when the task changes.
func unknownFields(t *testing.T, p Place) {
	const number, value = 1000, 77
	s, err := store.Open(t.Context(), store.Config{Backend: p.Backend()})
	if err != nil {
		t.Fatal(err)
	}
	gate := dispatch.SourceGate{UID: "u", ID: "s", Version: 1, Pool: "default", Priority: 5}
	id := dispatch.NewTaskID(dispatch.Identity{Scope: "u", Queue: "q", Key: "k"})
	_, err = s.Submit(t.Context(), 0, []dispatch.SourceGate{gate}, []dispatch.Submission{{ID: id, SourceUID: "u", Queue: "q", Key: "k", Priority: 5}})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	b := p.Backend()
	found := new(tasks)
	term, err := b.Acquire(t.Context(), backend.Owner{
		Snapshot: func(int, backend.Snapshot) error { return errors.New("none is needed") }, Leased: func() bool { return false },
	})
	if err == nil {
		err = loadAll(t.Context(), b, term, found)
	}
	if err != nil || len(found.items) == 0 {
		t.Fatalf("%d tasks, %v", len(found.items), err)
	}
	extended := slices.Concat(found.items[0], field(number, value))
	group := groupOf(codec.AppendEncoded(nil, codec.Task, 0, extended))
	if err := b.Room(0, len(group), false); err != nil {
		t.Fatal(err)
	}
	if err := b.Commit(0, group, len(group)).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(b); err != nil {
		t.Fatal(err)
	}
	if s, err = store.Open(t.Context(), store.Config{Backend: p.Backend()}); err != nil {
		t.Fatal(err)
	}
	_, err = s.Claim(t.Context(), 0, "default", 0, []dispatch.Want{{
		Poll: dispatch.Poll{Collector: "c", Session: "s", ClientToken: "t", Call: "1"}, Max: 1, MaxBytes: 1 << 20,
	}}, nil)
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	b, found = p.Backend(), new(tasks)
	term, err = b.Acquire(t.Context(), backend.Owner{Leased: func() bool { return false }})
	if err == nil {
		err = errors.Join(loadAll(t.Context(), b, term, found), b.Release(t.Context()))
	}
	if err != nil {
		t.Fatal(err)
	}
	if n := len(found.items); n == 0 || !strings.HasSuffix(string(found.items[n-1]), string(field(number, value))) {
		t.Errorf("the task is %q, without its field %d", found.items, number)
	}
}

// field is a number as a field of that number.
func field(number int, value uint64) []byte {
	c := codec.Writer(nil)
	codec.Uint(c, number, &value)
	return c.Buffer()
}

// tasks are the fields of the tasks that are loaded, in their order.
type tasks struct{ items [][]byte }

// Begin implements [backend.Items].
func (o *tasks) Begin(int) error {
	*o = tasks{}
	return nil
}

// Add implements [backend.Items].
func (o *tasks) Add(piece []byte) error {
	for len(piece) > 0 {
		kind, _, fields, rest, ok := codec.CutItem(piece)
		if !ok {
			return errors.New("an item is cut off")
		}
		if piece = rest; kind == codec.Task {
			o.items = append(o.items, slices.Clone(fields))
		}
	}
	return nil
}

// Ended implements [backend.Items].
func (*tasks) Ended() error { return nil }

// Group implements [backend.Items].
func (o *tasks) Group(group []byte) error { return o.Add(group[headBytes:]) }
