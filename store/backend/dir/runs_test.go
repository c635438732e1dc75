package dir_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk/disktest"
	"github.com/waggle-crawl/waggle/store/storetest"
)

// succeeded has n tasks succeed, and returns their ids.
func succeeded(ctx context.Context, s dispatch.Store, first, n int) (items []dispatch.Submission, err error) {
	rule := dispatch.QueueRule{Pattern: "*", Settings: dispatch.QueueSettings{MaxInFlight: 100_000}}
	if _, version, err := s.Rules(ctx); err == nil && version == 0 {
		_, _ = s.PutRule(ctx, rule.Pattern, &rule, 0) // without it less is granted
	}
	for i := range n {
		queue, key := fmt.Sprintf("q%d.test", (first+i)%7), fmt.Sprint(first+i)
		items = append(items, dispatch.Submission{
			ID: dispatch.NewTaskID(dispatch.Identity{Scope: "u", Queue: queue, Key: key}), SourceUID: "u", Queue: queue, Key: key, Priority: 5,
		})
	}
	if _, err := s.Submit(ctx, 1, []dispatch.SourceGate{crashGate}, items); err != nil {
		return nil, err
	}
	return items, succeed(ctx, s, n)
}

// waits submits a task that waits.
func waits(ctx context.Context, s dispatch.Store) error {
	key := fmt.Sprint(rand.Uint64())
	results, err := s.Submit(ctx, 1, []dispatch.SourceGate{crashGate}, []dispatch.Submission{{
		ID: dispatch.NewTaskID(dispatch.Identity{Scope: "u", Queue: "waits.test", Key: key}), SourceUID: "u", Queue: "waits.test", Key: key, Priority: 5,
		Due: time.Date(2100, time.January, 1, 0, 0, 0, 0, time.UTC),
	}})
	if err == nil && results[0].Code != dispatch.SubmitCreated {
		err = fmt.Errorf("a new task is answered %v", results[0].Code)
	}
	return err
}

// succeed has so many of those that are ready succeed.
func succeed(ctx context.Context, s dispatch.Store, n int) error {
	for n > 100 {
		if err := succeed(ctx, s, 100); err != nil {
			return err
		}
		n -= 100
	}
	reply, err := s.Claim(ctx, 0, "default", 0, []dispatch.Want{{
		Poll: dispatch.Poll{Collector: "c", Session: "s", ClientToken: fmt.Sprint(rand.Uint64()), Call: "1"}, Max: n, MaxBytes: manyBytes,
	}}, nil)
	if err != nil || len(reply.Grants[0]) != n {
		return fmt.Errorf("claim %d: %d, %w", n, len(reply.Grants[0]), err)
	}
	ends := make([]dispatch.Transition, n)
	for i, g := range reply.Grants[0] {
		ends[i] = dispatch.Transition{
			ID: g.Task.ID, Unread: true, Lease: g.Token, Result: dispatch.ResultSucceeded, State: dispatch.StateDone, Settled: true, Shrink: true,
			Queue: dispatch.QueueEffect{Kind: dispatch.QueueUntouched},
		}
	}
	_, err = s.Apply(ctx, ends)
	return err
}

// statesOf are those of tasks; StateUnknown: there is none.
func statesOf(ctx context.Context, s dispatch.Store, items []dispatch.Submission) ([]dispatch.State, error) {
	ids := make([]dispatch.TaskID, len(items))
	for i := range items {
		ids[i] = items[i].ID
	}
	tasks, _, err := s.Tasks(ctx, ids, false)
	states := make([]dispatch.State, len(ids))
	for i, task := range tasks {
		if task != nil {
			states[i] = task.State
		}
	}
	return states, err
}

// runsIn are the runs in a directory of a simulated disk.
func runsIn(t *testing.T, d *disktest.Disk) (runs []string) {
	t.Helper()
	names, err := d.List("/data")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, "run-") })
}

// TestRuns_Bounded makes a snapshot again and again: runs are merged, those that are needless are removed, and each task is there.
func TestRuns_Bounded(t *testing.T) {
	t.Parallel()
	d := disktest.New(1)
	config, logs := onDisk(d)
	s := startOn(t, config)
	var all []dispatch.Submission
	for round := range 64 {
		items, err := succeeded(t.Context(), s, 10*round, 10)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, items...)
		if _, err := s.MakeSnapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// Those of two snapshots, of which each is twice the one before.
	if n := len(runsIn(t, d)); n < 2 || n > 16 {
		t.Errorf("there are %d runs", n)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	s = startOn(t, config)
	states, err := statesOf(t.Context(), s, all)
	if n := len(slices.DeleteFunc(states, func(state dispatch.State) bool { return state == dispatch.StateDone })); err != nil || n > 0 {
		t.Errorf("of %d tasks %d are not DONE, %v", len(all), n, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for _, entry := range logs.All() {
		t.Errorf("it was logged: %s %v", entry.Message, entry.ContextMap())
	}
}

// TestRuns_Forget forgets what is over, and the runs get smaller by that, to nothing.
func TestRuns_Forget(t *testing.T) {
	t.Parallel()
	d, c := disktest.New(1), storetest.NewStillClock(start)
	config, _ := onDisk(d)
	config.Now = c.Now
	s := startOn(t, config)
	items, err := succeeded(t.Context(), s, 0, 500)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c.Advance(crashGate.Remember - time.Hour)
		if err := waits(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if _, err := s.MakeSnapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 { // one has the removals, the next one merges, one makes the old files needless
		if err := waits(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if _, err := s.MakeSnapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if left := runsIn(t, d); len(left) > 0 {
		t.Errorf("of tasks that are forgotten there are %v", left)
	}
	states, err := statesOf(t.Context(), s, items)
	stats, err2 := s.Stats(t.Context())
	if states[0] != dispatch.StateUnknown || stats.Counts.Done != 500 || errors.Join(err, err2) != nil {
		t.Errorf("a task that is forgotten is %s, counts %+v; %v, %v", states[0], stats.Counts, err, err2)
	}
	if err := errors.Join(append(s.Check(), s.Close())...); err != nil {
		t.Error(err)
	}
}

// TestRuns_EachCut cuts the power at each operation of two snapshots, between which tasks are due again and forgotten: the next start has
// each task as it was.
func TestRuns_EachCut(t *testing.T) {
	t.Parallel()
	for _, capacity := range []bool{false, true} {
		cuts := 0
		for n := 0; ; n++ {
			whole, err := cutRuns(t, uint64(n), n, capacity)
			if err != nil {
				t.Fatalf("cut %d, a failure instead of a cut: %t: %v", n, capacity, err)
			}
			if whole {
				break
			}
			cuts++
		}
		t.Logf("%d cuts", cuts)
		if cuts < 10 {
			t.Errorf("only %d operations", cuts)
		}
	}
}

// cutRuns cuts the power at operation n of two snapshots, or has it fail for lack of room, and reports whether there was none.
func cutRuns(t *testing.T, seed uint64, n int, full bool) (whole bool, err error) {
	t.Helper()
	d := disktest.New(seed)
	config, _ := onDisk(d)
	config.Now = storetest.NewStillClock(start).Now
	s := startOn(t, config)
	items, err := succeeded(t.Context(), s, 0, 30)
	if err != nil {
		return false, err
	}
	if _, err := s.MakeSnapshot(t.Context()); err != nil {
		return false, err
	}
	again := slices.Clone(items[:20])
	for i := range again {
		again[i].IfExists = dispatch.IfExistsAgain
	}
	if _, err := s.Submit(t.Context(), 1, []dispatch.SourceGate{crashGate}, again); err != nil {
		return false, err
	}
	if err := succeed(t.Context(), s, 10); err != nil { // some of them
		return false, err
	}
	want, err := statesOf(t.Context(), s, items)
	if err != nil {
		return false, err
	}
	if full {
		d.Fail(disktest.Write, n, syscall.ENOSPC)
	} else {
		d.CutPower(n)
	}
	_, first := s.MakeSnapshot(t.Context())
	_, second := s.MakeSnapshot(t.Context())
	whole = first == nil && second == nil
	if full && second == nil { // it goes on
		got, err := statesOf(t.Context(), s, items)
		if err != nil || !slices.Equal(got, want) {
			return false, fmt.Errorf("after the failure of a snapshot: %v, want %v: %w", got, want, err)
		}
	}
	_ = s.Kill()
	d = d.Restart()
	s, err = openStore(t.Context(), config.On(d, smallSegments))
	if err != nil {
		return false, err
	}
	got, err := statesOf(t.Context(), s, items)
	if err != nil || !slices.Equal(got, want) {
		return false, fmt.Errorf("tasks are %v, want %v: %w", got, want, err)
	}
	return whole, errors.Join(append(s.Check(), s.Close())...)
}

// TestRuns_Damage refuses calls that need a block that is damaged, and names it; a check names it, and a repair gives up what was in it.
func TestRuns_Damage(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	s := open(t.Context(), t, storeConfig{Dir: path, SnapshotBytes: 1 << 40})
	var items []dispatch.Submission
	for n := range 4 {
		more, err := succeeded(t.Context(), s, 100*n, 100)
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, more...)
	}
	if err := s.file.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(path, "run-*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	change("run-", func(content []byte) []byte { content[100] ^= 1; return content })(t, path)
	if err := s.open(t.Context()); err != nil {
		t.Fatal("a start reads no block:", err)
	}
	refused := 0
	for i := range items {
		_, err := s.Submit(t.Context(), 1, []dispatch.SourceGate{crashGate}, items[i:i+1])
		if err != nil {
			fails(t, "submit of a task in the damaged block", err, dispatch.ErrStoreUnavailable, filepath.Base(files[0]), "block")
			refused++
		}
	}
	if refused == 0 || refused == len(items) {
		t.Errorf("%d of %d tasks are refused", refused, len(items))
	}
	if err := s.file.Kill(); err != nil {
		t.Fatal(err)
	}
	_, err = check(t.Context(), path)
	fails(t, "check", err, backend.ErrDamaged, filepath.Base(files[0]), "block")
	fixed, err := repair(t.Context(), path)
	if err != nil || fixed.Damage == "" || fixed.Lost != int64(refused) {
		t.Fatalf("repair: %+v, %v", fixed, err)
	}
	found, err := check(t.Context(), path)
	if err != nil || found.Stats.Counts.Done != int64(len(items)-refused) {
		t.Errorf("after a repair %d tasks are DONE, %v; want %d", found.Stats.Counts.Done, err, len(items)-refused)
	}
	if err := s.open(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestRuns_Backup backs up, restores and checks a store of which tasks are apart.
func TestRuns_Backup(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	s := open(t.Context(), t, storeConfig{Dir: filepath.Join(path, "a"), SnapshotBytes: 1 << 40})
	items, err := succeeded(t.Context(), s, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.file.MakeSnapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := slices.Clone(items[:10])
	for i := range again {
		again[i].IfExists = dispatch.IfExistsAgain
	}
	if _, err := s.Submit(t.Context(), 1, []dispatch.SourceGate{crashGate}, again); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(path, "backup")
	for name, do := range map[string]func() (report, error){
		"check":  func() (report, error) { return check(t.Context(), filepath.Join(path, "a")) },
		"backup": func() (report, error) { return backup(t.Context(), filepath.Join(path, "a"), file) },
	} {
		if found, err := do(); err != nil || found.Runs != 1 || found.Stats.Counts.Done != 90 || found.Stats.Counts.Ready != 10 {
			t.Errorf("%s: %+v, %v", name, found, err)
		}
	}
	if found, err := restore(t.Context(), file, filepath.Join(path, "b")); err != nil || found.Stats.Counts.Done != 90 {
		t.Errorf("restore: %+v, %v", found, err)
	}
	restored := open(t.Context(), t, storeConfig{Dir: filepath.Join(path, "b")})
	states, err := statesOf(t.Context(), restored, items)
	want := slices.Concat(slices.Repeat([]dispatch.State{dispatch.StateReady}, 10), slices.Repeat([]dispatch.State{dispatch.StateDone}, 90))
	if err != nil || !slices.Equal(states, want) {
		t.Errorf("restored tasks are %v, %v", states, err)
	}
}

// TestRuns_OlderSnapshot starts with the older snapshot and its runs, which the newest one has merged, when that is damaged.
func TestRuns_OlderSnapshot(t *testing.T) {
	t.Parallel()
	d := disktest.New(1)
	config, _ := onDisk(d)
	s := startOn(t, config)
	var items []dispatch.Submission
	for n := range 3 {
		more, err := succeeded(t.Context(), s, 100*n, 100)
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, more...)
		for range 1000 { // more than a segment: the log does not have what is in the runs
			if err := waits(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		if n == 2 { // what the newest one does not have in a run of its own
			continue
		}
		if _, err := s.MakeSnapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.MakeSnapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	names, err := d.List("/data")
	if err != nil {
		t.Fatal(err)
	}
	snapshots := slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, "snapshot-") })
	flip(d, "/data/"+snapshots[len(snapshots)-1], 100)
	s = startOn(t, config)
	states, err := statesOf(t.Context(), s, items)
	if n := len(slices.DeleteFunc(states, func(state dispatch.State) bool { return state == dispatch.StateDone })); err != nil || n > 0 {
		t.Errorf("of %d tasks %d are not DONE, %v", len(items), n, err)
	}
	if err := errors.Join(append(s.Check(), s.Close())...); err != nil {
		t.Error(err)
	}
}

// TestRuns_MergeRemovals merges the removals of tasks that an older run has, which is not merged: they are forgotten once, and stay so.
func TestRuns_MergeRemovals(t *testing.T) {
	t.Parallel()
	path, c := t.TempDir(), storetest.NewStillClock(start)
	s := open(t.Context(), t, storeConfig{Dir: path, SnapshotBytes: 1 << 40, Now: c.Now})
	if _, err := succeeded(t.Context(), s, 0, 10); err != nil {
		t.Fatal(err)
	}
	c.Advance(crashGate.Remember / 2)
	for n := range 5 {
		if _, err := succeeded(t.Context(), s, 1000+100*n, 100); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.file.MakeSnapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Advance(crashGate.Remember/2 + crashGate.Remember/10) // the first ones are over
	for n := range 4 {                                      // one has the removals, later ones merge them with what is new
		if _, err := succeeded(t.Context(), s, 2000+10*n, 10); err != nil {
			t.Fatal(err)
		}
		if _, err := s.file.MakeSnapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	found, err := check(t.Context(), path)
	if err != nil || found.Stats.Counts.Done != 10+500+40 || found.Runs < 2 || found.Runs > 4 {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestRuns_Missing refuses a store whose run is missing, and names it.
func TestRuns_Missing(t *testing.T) {
	t.Parallel()
	d := disktest.New(1)
	config, _ := onDisk(d)
	s := startOn(t, config)
	if _, err := succeeded(t.Context(), s, 0, 10); err != nil {
		t.Fatal(err)
	}
	for range 3 { // more than a segment each: the log does not have what is in the run
		if _, err := s.MakeSnapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 1000 {
			if err := waits(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	runs := runsIn(t, d)
	if len(runs) != 1 {
		t.Fatal(runs)
	}
	if err := d.Remove("/data/" + runs[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := openStore(t.Context(), config); !errors.Is(err, backend.ErrDamaged) {
		t.Errorf("a store without its run: %v", err)
	}
}

// TestRuns_Export: a snapshot that is made while the store is exported, which has tasks go from memory to a run, has none exported twice.
func TestRuns_Export(t *testing.T) {
	t.Parallel()
	config, _ := onDisk(disktest.New(1))
	s := startOn(t, config)
	items, err := succeeded(t.Context(), s, 0, 3000)
	if err != nil {
		t.Fatal(err)
	}
	exported, snapshot := make(map[dispatch.TaskID]int), make(chan error, 1)
	err = s.Export(t.Context(), func(b *dispatch.PortableBatch) error {
		if len(exported) == 0 && len(b.Tasks) > 0 {
			go func() {
				_, err := s.MakeSnapshot(t.Context())
				snapshot <- err
			}()
			time.Sleep(50 * time.Millisecond)
		}
		for i := range b.Tasks {
			exported[b.Tasks[i].Task.ID]++
		}
		return nil
	})
	if err := errors.Join(err, <-snapshot); err != nil {
		t.Fatal(err)
	}
	for id, times := range exported {
		if times != 1 {
			t.Errorf("%s was exported %d times", id, times)
		}
	}
	if len(exported) != len(items) {
		t.Errorf("%d of %d tasks were exported", len(exported), len(items))
	}
}

// TestRuns_RepairCut: a run that is cut off is named, and a repair has the number of tasks that were in it.
func TestRuns_RepairCut(t *testing.T) {
	t.Parallel()
	const n = 3000
	path := t.TempDir()
	s := open(t.Context(), t, storeConfig{Dir: path, SnapshotBytes: 1 << 40}.On(disk.OS{}, smallSegments))
	if _, err := succeeded(t.Context(), s, 0, n); err != nil {
		t.Fatal(err)
	}
	for range 2 { // both snapshots that are kept need the run
		if err := errors.Join(s.file.Close(), s.open(t.Context()), waits(t.Context(), s)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.file.Close(); err != nil {
		t.Fatal(err)
	}
	change("run-", func(b []byte) []byte { return b[:len(b)-100] })(t, path)
	_, err := check(t.Context(), path)
	fails(t, "check", err, backend.ErrDamaged, "run-")
	fixed, err := repair(t.Context(), path)
	if err != nil || fixed.Lost != n {
		t.Errorf("repaired: %+v, %v; want %d that are lost", fixed, err, n)
	}
	if found, err := check(t.Context(), path); err != nil || found.Stats.Counts.Done != 0 {
		t.Errorf("then %+v, %v; want none that is done", found, err)
	}
}
