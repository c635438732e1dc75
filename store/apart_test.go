package store_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/backendtest"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/storetest"
)

// archive is a ledger that does something after it has looked for tasks that are apart, and before it answers.
type archive struct {
	backend.Archive
	ledger *backendtest.Ledger
	owner  backend.Owner

	mu   sync.Mutex // guards what follows
	then func() error
	asks int
}

// Acquire implements [backend.Backend].
func (a *archive) Acquire(ctx context.Context, owner backend.Owner) (backend.Term, error) {
	a.owner = owner
	return a.Archive.Acquire(ctx, owner)
}

// Recall implements [backend.Archive].
func (a *archive) Recall(ctx context.Context, shard int, keys [][16]byte, each func(entry []byte)) error {
	err := a.Archive.Recall(ctx, shard, keys, each)
	a.mu.Lock()
	then := a.then
	a.then = nil
	a.asks++
	a.mu.Unlock()
	if then != nil {
		err = errors.Join(err, then())
	}
	return err
}

// meanwhile does something once, while the next call waits for tasks that are apart.
func (a *archive) meanwhile(do func() error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.then = do
}

// apartStore is a store of which tasks go apart.
type apartStore struct {
	*store.Store
	*archive
	t     *testing.T
	clock *storetest.StillClock
	gates []dispatch.SourceGate
	turns int
}

func newApartStore(t *testing.T) *apartStore {
	t.Helper()
	ledger := new(backendtest.Ledger)
	a := &apartStore{
		t: t, archive: &archive{Archive: ledger.Backend().(backend.Archive), ledger: ledger}, clock: storetest.NewStillClock(start), //nolint:forcetypeassert // it is one
		gates: []dispatch.SourceGate{{UID: "u", ID: "s", Version: 1, Pool: "default", Priority: 5, Remember: time.Hour}},
	}
	var err error
	if a.Store, err = store.Open(t.Context(), store.Config{Backend: a.archive, Now: a.clock.Now}); err != nil {
		t.Fatal(err)
	}
	openQueues(t, a.Store, 0)
	return a
}

func (a *apartStore) submit(items []dispatch.Submission) ([]dispatch.SubmitResult, error) {
	return a.Submit(a.t.Context(), 1, a.gates, items)
}

// do submits tasks, and has them succeed.
func (a *apartStore) do(items []dispatch.Submission) error {
	a.t.Helper()
	if _, err := a.submit(items); err != nil {
		return err
	}
	a.turns++
	reply, err := a.Claim(a.t.Context(), 0, "default", 0, []dispatch.Want{{
		Poll: dispatch.Poll{Collector: "c", Session: "s", ClientToken: fmt.Sprint(a.turns), Call: "1"}, Max: len(items), MaxBytes: 1 << 30,
	}}, nil)
	if err != nil || len(reply.Grants[0]) != len(items) {
		return fmt.Errorf("claim %d tasks: %d, %w", len(items), len(reply.Grants[0]), err)
	}
	ends := make([]dispatch.Transition, len(items))
	for i := range ends {
		ends[i] = unread(&reply.Grants[0][i])
	}
	_, err = a.Apply(a.t.Context(), ends)
	return err
}

// snapshot has the tasks that are over go apart, if the backend keeps it.
func (a *apartStore) snapshot(kept error) (pieces [][]byte, entries []byte, err error) {
	err = a.owner.Snapshot(backend.AllShards, backend.Snapshot{
		Write: func(piece []byte) error { pieces = append(pieces, slices.Clone(piece)); return nil },
		Apart: func(more []byte) error { entries = append(entries, more...); return nil },
		Kept: func() error {
			if kept == nil {
				a.ledger.KeepApart(entries)
			}
			return kept
		},
	})
	return pieces, entries, err
}

// apart makes a store with so many tasks that are apart.
func (a *apartStore) apart(n int) []dispatch.Submission {
	a.t.Helper()
	items := newItems(0, n, 3)
	if err := a.do(items); err != nil {
		a.t.Fatal(err)
	}
	a.clock.Advance(time.Millisecond)
	if _, err := a.submit(newItems(1000, 1, 1)); err != nil { // one that waits
		a.t.Fatal(err)
	}
	if _, entries, err := a.snapshot(nil); err != nil || count(entries)[codec.Task] != n {
		a.t.Fatalf("%v went apart of %d tasks, %v", count(entries), n, err)
	}
	return items
}

// count counts entries by their kind.
func count(entries []byte) map[codec.Kind]int {
	kinds := make(map[codec.Kind]int)
	for a, rest, ok := codec.CutApart(entries); ok; a, rest, ok = codec.CutApart(rest) {
		kinds[a.Kind]++
	}
	return kinds
}

// codes are those of answers.
func (a *apartStore) codes(items []dispatch.Submission) (codes []dispatch.SubmitCode) {
	a.t.Helper()
	results, err := a.submit(items)
	if err != nil {
		a.t.Fatal(err)
	}
	for _, r := range results {
		codes = append(codes, r.Code)
	}
	return codes
}

func again(items []dispatch.Submission) []dispatch.Submission {
	items = slices.Clone(items)
	for i := range items {
		items[i].IfExists = dispatch.IfExistsAgain
	}
	return items
}

// TestApart_Leaves has a task that is apart due again: the group has all of it, the next snapshot its removal.
func TestApart_Leaves(t *testing.T) {
	t.Parallel()
	a := newApartStore(t)
	items := a.apart(10)
	want := dispatch.Response{HTTPStatus: 200, Bytes: 54_321, FetchDuration: 321 * time.Millisecond}
	if tasks, _, err := a.Tasks(t.Context(), []dispatch.TaskID{items[3].ID}, true); err != nil || tasks[0].Response != want {
		t.Errorf("one that is apart: %+v, %v", tasks[0], err)
	}
	if got := a.codes(again(items[:2])); !slices.Equal(got, []dispatch.SubmitCode{dispatch.SubmitRevisit, dispatch.SubmitRevisit}) {
		t.Errorf("tasks that are apart are answered %v", got)
	}
	lost := errors.New("lost")
	for _, err := range []error{lost, lost, nil} {
		_, entries, got := a.snapshot(err)
		if want := (map[codec.Kind]int{codec.Task | codec.Removed: 2}); !errors.Is(got, err) || fmt.Sprint(count(entries)) != fmt.Sprint(want) {
			t.Errorf("a snapshot has %v, %v; want %v", count(entries), got, want)
		}
	}
	if err := errors.Join(a.Check()...); err != nil {
		t.Error(err)
	}
	stats, err := a.Stats(t.Context())
	if err != nil || stats.Counts.Done != 8 || stats.Counts.Ready != 3 {
		t.Errorf("counts %+v, %v", stats.Counts, err)
	}
}

// TestApart_Races has other commands change what a call waits for.
func TestApart_Races(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first     func(a *apartStore, known []dispatch.Submission) []dispatch.Submission
		meanwhile func(a *apartStore, known []dispatch.Submission) error
		code      dispatch.SubmitCode
		state     dispatch.State
	}{
		"another call has it due again": {
			meanwhile: func(a *apartStore, known []dispatch.Submission) error {
				_, err := a.submit(again(known))
				return err
			},
			code: dispatch.SubmitExists, state: dispatch.StateReady,
		},
		"it is due again and goes apart again": {
			meanwhile: func(a *apartStore, known []dispatch.Submission) error {
				known = again(known)
				if err := a.do(known); err != nil {
					return err
				}
				_, _, err := a.snapshot(nil)
				return err
			},
			code: dispatch.SubmitExists, state: dispatch.StateDone,
		},
		"a new one comes and goes apart": {
			first: func(*apartStore, []dispatch.Submission) []dispatch.Submission { return newItems(500, 1, 1) },
			meanwhile: func(a *apartStore, known []dispatch.Submission) error {
				if err := a.do(known); err != nil {
					return err
				}
				_, _, err := a.snapshot(nil)
				return err
			},
			code: dispatch.SubmitExists, state: dispatch.StateDone,
		},
		"its time is over and it is forgotten": {
			meanwhile: func(a *apartStore, known []dispatch.Submission) error {
				a.clock.Advance(2 * time.Hour)
				return a.forget(known)
			},
			code: dispatch.SubmitCreated, state: dispatch.StateReady,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newApartStore(t)
			known := a.apart(1)
			if c.first != nil {
				known = c.first(a, known)
			}
			if _, err := a.Claim(t.Context(), 0, "default", 0, []dispatch.Want{{ // what else there is to do
				Poll: dispatch.Poll{Collector: "c", Session: "s", ClientToken: "else", Call: "1"}, Max: 10, MaxBytes: 1 << 30,
			}}, nil); err != nil {
				t.Fatal(err)
			}
			a.meanwhile(func() error { return c.meanwhile(a, known) })
			results, err := a.submit(known)
			if err != nil || results[0].Code != c.code || results[0].State != c.state {
				t.Errorf("%+v, %v; want %v, %s", results, err, c.code, c.state)
			}
			if err := errors.Join(a.Check()...); err != nil {
				t.Error(err)
			}
		})
	}
}

// forget has the backend find tasks whose time is over.
func (a *apartStore) forget(items []dispatch.Submission) error {
	var keys [][16]byte
	err := a.Each(a.t.Context(), 0, func(entry []byte) error {
		of, _, _ := codec.CutApart(entry)
		keys = append(keys, of.Key)
		return nil
	})
	if len(keys) < len(items) {
		return fmt.Errorf("%d tasks are apart", len(keys))
	}
	return errors.Join(err, a.owner.Forget(a.t.Context(), 0, keys))
}

// TestApart_Forget forgets tasks that are apart when their time is over, not before, and once.
func TestApart_Forget(t *testing.T) {
	t.Parallel()
	a := newApartStore(t)
	items := a.apart(10)
	if err := a.forget(items); err != nil {
		t.Fatal(err)
	}
	if _, entries, err := a.snapshot(nil); err != nil || len(entries) > 0 {
		t.Errorf("a snapshot has %v, %v, before the time of any is over", count(entries), err)
	}
	a.clock.Advance(2 * time.Hour)
	for range 2 { // what is forgotten is apart in the ledger until a snapshot has it
		if err := a.forget(items); err != nil {
			t.Fatal(err)
		}
	}
	if _, entries, err := a.snapshot(nil); err != nil || count(entries)[codec.Task|codec.Removed] != 10 {
		t.Errorf("a snapshot has %v, %v", count(entries), err)
	}
	if err := errors.Join(a.Check()...); err != nil {
		t.Error(err)
	}
	if stats, err := a.Stats(t.Context()); err != nil || stats.Counts.Done != 10 {
		t.Errorf("counts %+v, %v: what is forgotten is DONE", stats.Counts, err)
	}
	if got := a.codes(items[:1]); got[0] != dispatch.SubmitCreated {
		t.Errorf("a task that is forgotten is answered %v", got)
	}
}

// TestApart_Unread refuses calls that name tasks which cannot be read, and changes nothing. Others go on.
func TestApart_Unread(t *testing.T) {
	t.Parallel()
	a := newApartStore(t)
	items := a.apart(3)
	fault := fmt.Errorf("%w: a bad block", dispatch.ErrStoreUnavailable)
	for name, call := range map[string]func() error{
		"submit": func() error { _, err := a.submit(append(newItems(700, 1, 1), again(items)...)); return err },
		"read":   func() error { _, _, err := a.Tasks(t.Context(), []dispatch.TaskID{items[0].ID}, true); return err },
		"report": func() error {
			_, err := a.Apply(t.Context(), []dispatch.Transition{{ID: items[0].ID, Unread: true}})
			return err
		},
	} {
		before := len(a.ledger.Groups())
		a.meanwhile(func() error { return fault })
		if err := call(); !errors.Is(err, fault) {
			t.Errorf("%s: %v", name, err)
		}
		if after := len(a.ledger.Groups()); after != before {
			t.Errorf("%s has changed something", name)
		}
	}
	if got := a.codes(newItems(700, 1, 1)); got[0] != dispatch.SubmitCreated {
		t.Errorf("a call after that is answered %v", got)
	}
}

// TestApart_Asks asks the backend of nothing that is in memory, and once a call.
func TestApart_Asks(t *testing.T) {
	t.Parallel()
	a := newApartStore(t)
	items := a.apart(100)
	a.asks = 0
	a.codes(newItems(1000, 1, 1)) // it waits
	if a.asks != 0 {
		t.Errorf("the backend was asked %d times of what is in memory", a.asks)
	}
	a.codes(items)
	if a.asks != 1 {
		t.Errorf("the backend was asked %d times in a call", a.asks)
	}
}

// newer is a backend in which each task that is apart has a field of a newer release.
type newer struct{ backend.Archive }

// newerField is that field.
var newerField = protowire.AppendVarint(protowire.AppendTag(nil, 40, protowire.VarintType), 12345)

// Recall implements [backend.Archive].
func (n newer) Recall(ctx context.Context, shard int, keys [][16]byte, each func(entry []byte)) error {
	return n.Archive.Recall(ctx, shard, keys, func(entry []byte) {
		a, _, _ := codec.CutApart(entry)
		item := binary.AppendUvarint([]byte{byte(codec.Task)}, uint64(a.Shard))
		item = binary.AppendUvarint(item, uint64(len(a.Fields)+len(newerField)))
		each(codec.AppendApart(nil, a.Until, append(append(item, a.Fields...), newerField...)))
	})
}

// TestStore_Apart_newerField: what a newer release has written of a task that is apart stands in no call's way, and is kept when the task
// goes on.
func TestStore_Apart_newerField(t *testing.T) {
	t.Parallel()
	a := newApartStore(t)
	items := a.apart(3)
	a.archive.Archive = newer{a.archive.Archive}
	if results, err := a.submit(items[:1]); err != nil || results[0].Code != dispatch.SubmitExists {
		t.Errorf("submit: %+v, %v; want EXISTS", results, err)
	}
	if tasks, _, err := a.Tasks(t.Context(), []dispatch.TaskID{items[0].ID}, true); err != nil || tasks[0] == nil {
		t.Errorf("read: %v, %v", tasks, err)
	}
	before := len(a.ledger.Groups())
	if got := a.codes(again(items[1:2])); got[0] != dispatch.SubmitRevisit {
		t.Errorf("again: %v; want REVISIT", got)
	}
	if written := bytes.Join(a.ledger.Groups()[before:], nil); !bytes.Contains(written, newerField) {
		t.Error("the field is not written back")
	}
}
