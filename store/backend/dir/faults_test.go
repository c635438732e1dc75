package dir_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/dir"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk/disktest"
	"github.com/waggle-crawl/waggle/store/storetest"
)

// onDisk is the config of a store on a simulated disk, whose warnings are kept.
func onDisk(d *disktest.Disk) (storeConfig, *observer.ObservedLogs) {
	core, logs := observer.New(zapcore.WarnLevel)
	return storeConfig{Dir: "/data", SnapshotBytes: 1 << 40, Logger: zap.New(core)}.On(d, smallSegments), logs
}

// start opens a store that must open.
func startOn(t *testing.T, config storeConfig) *fileStore {
	t.Helper()
	s, err := openStore(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fails checks an error and its text.
func fails(t *testing.T, what string, err, want error, texts ...string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s: the error lacks %q: %v", what, text, err)
		}
	}
}

// claimOne claims a task, if there is one.
func claimOne(ctx context.Context, s dispatch.Store, token string) ([]dispatch.Grant, error) {
	reply, err := s.Claim(ctx, 0, "default", 0, []dispatch.Want{{
		Poll: dispatch.Poll{Collector: "c", Session: "s", ClientToken: token, Call: "1"}, Max: 1, MaxBytes: manyBytes, Lease: time.Hour,
	}}, nil)
	if err != nil {
		return nil, err
	}
	return reply.Grants[0], nil
}

// operated is an operator of a store, with what to hold: first a source that has a seed, which is held.
func operated(t *testing.T, s dispatch.Store) (*operate.Operator, []dispatch.HoldTarget) {
	t.Helper()
	d, err := engine.New(engine.Config{Store: s, ID: "d1"})
	if err != nil {
		t.Fatal(err)
	}
	o := operate.New(d)
	if _, err := o.CreateSource(t.Context(), "held", dispatch.SourceSpec{Seeds: []dispatch.Seed{{URL: "https://held.test/"}}}); err != nil {
		t.Fatal(err)
	}
	targets := []dispatch.HoldTarget{{Source: "held"}, {Pool: "held"}, {Queue: "*.held.test"}, {Queue: "held.test"}, {Collector: "held"}}
	if _, err := o.SetHolds(t.Context(), targets[:1], operate.HoldOrder{Name: dispatch.HoldDefault}); err != nil {
		t.Fatal(err)
	}
	return o, targets
}

// TestStore_DiskFull fills the disk: submits and grants are refused before they take effect, leases go on and end, and
// when there is room again all goes on.
func TestStore_DiskFull(t *testing.T) {
	t.Parallel()
	d := disktest.New(1)
	config, _ := onDisk(d)
	s := startOn(t, config)
	o, targets := operated(t, s)
	d.SetCapacity(3 * smallSegments)
	var held []dispatch.Grant
	submitted := 0
	var err error
	for ; err == nil; submitted++ {
		if err = submit(t.Context(), s, fmt.Sprintf("q%d.test", submitted), "1"); err == nil && submitted%10 == 0 {
			var grants []dispatch.Grant
			grants, err = claimOne(t.Context(), s, fmt.Sprint(submitted))
			held = append(held, grants...)
		}
		if submitted > 100_000 {
			t.Fatal("the disk does not get full")
		}
	}
	fails(t, "submit to a full disk", err, dispatch.ErrStoreFull, "the disk is full")
	_, err = claimOne(t.Context(), s, "full")
	fails(t, "claim from a full disk", err, dispatch.ErrStoreFull)
	stats, err := s.Stats(t.Context())
	if n := stats.Counts; err != nil || !stats.Full || n.Leased != int64(len(held)) {
		t.Errorf("stats of a full store: %+v, %v; want %d leased", stats, err, len(held))
	}
	for _, g := range held {
		renewed, err := s.Renew(t.Context(), []dispatch.Renewal{{ID: g.Task.ID, Token: g.Token}})
		if err != nil || renewed[0].Lost != dispatch.LostNone {
			t.Errorf("renewal on a full disk: %+v, %v", renewed, err)
		}
	}
	if _, err := s.Apply(t.Context(), []dispatch.Transition{done(held[0])}); err != nil {
		t.Errorf("report on a full disk: %v", err)
	}
	if did, err := o.SetHolds(t.Context(), targets, operate.HoldOrder{Name: dispatch.HoldDefault}); err != nil || len(did.Changed) != len(targets)-1 {
		t.Errorf("SetHolds on a full disk: %+v, %v", did, err)
	}
	_, _, err = o.UpdateSource(t.Context(), "held", 0, func(s *dispatch.SourceSpec) error { s.DisplayName = "H"; return nil }, false)
	fails(t, "a changed source on a full disk", err, dispatch.ErrStoreFull)
	if did, err := o.LiftHolds(t.Context(), targets, dispatch.HoldDefault, false); err != nil || len(did.Changed) != len(targets) {
		t.Errorf("LiftHolds on a full disk: %+v, %v", did, err)
	}
	d.SetCapacity(0)
	for limit := time.Now().Add(10 * time.Second); ; {
		if err = submit(t.Context(), s, "q", "after"); err == nil {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("there is room again, but: %v", err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// done is the report of a lease.
func done(g dispatch.Grant) dispatch.Transition {
	return dispatch.Transition{
		ID: g.Task.ID, Token: g.Token.Digest(), Revision: g.Task.Revision, Result: dispatch.ResultSucceeded, State: dispatch.StateDone, Settled: true,
		Remember: time.Hour, Queue: dispatch.QueueEffect{Kind: dispatch.QueueUntouched},
	}
}

// TestStore_SyncFails fails two syncs, since the allocation of the next segment may take one of them: nothing is acknowledged
// after that, though later ones would succeed, and reads show nothing of what may be lost. Opened anew, the store has what it
// acknowledged.
func TestStore_SyncFails(t *testing.T) {
	t.Parallel()
	d := disktest.New(2)
	config, logs := onDisk(d)
	s := startOn(t, config)
	if err := submit(t.Context(), s, "q", "acknowledged"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		d.Fail(disktest.Sync, 0, syscall.EIO)
	}
	fails(t, "submit", submit(t.Context(), s, "q", "lost"), dispatch.ErrStoreUnavailable, "input/output error")
	for range 3 {
		fails(t, "a submit later", submit(t.Context(), s, "q", "later"), dispatch.ErrStoreUnavailable)
		_, _, err := s.Tasks(t.Context(), []dispatch.TaskID{dispatch.NewTaskID(dispatch.Identity{Scope: "u", Queue: "q", Key: "lost"})}, false)
		fails(t, "a read of what may be lost", err, dispatch.ErrStoreUnavailable)
		fails(t, "ping", s.Ping(t.Context()), dispatch.ErrStoreUnavailable, "input/output error")
	}
	if logs.FilterMessageSnippet("nothing is acknowledged").Len() != 1 {
		t.Errorf("logged: %v", logs.All())
	}
	_ = s.Close()
	config, _ = onDisk(d.Restart())
	s = startOn(t, config)
	if stats, err := s.Stats(t.Context()); err != nil || stats.Counts.Ready < 1 {
		t.Errorf("opened anew: %+v, %v", stats.Counts, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestStore_SnapshotFails cannot write a snapshot: the store goes on, and the next start uses what there was before.
func TestStore_SnapshotFails(t *testing.T) {
	t.Parallel()
	d := disktest.New(3)
	config, logs := onDisk(d)
	s := startOn(t, config)
	for n := range 10 {
		if err := submit(t.Context(), s, "q", fmt.Sprint(n)); err != nil {
			t.Fatal(err)
		}
	}
	d.Fail(disktest.Rename, 0, syscall.EIO)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if logs.FilterMessageSnippet("made no snapshot").Len() != 1 {
		t.Errorf("logged: %v", logs.All())
	}
	s = startOn(t, config)
	if stats, err := s.Stats(t.Context()); err != nil || stats.Counts.Ready != 10 {
		t.Errorf("opened anew: %+v, %v", stats.Counts, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// damagedStore is a store with two snapshots and a log after them, of ten tasks each.
func damagedStore(t *testing.T) (d *disktest.Disk, config storeConfig, logs *observer.ObservedLogs, snapshots, segments []string) {
	t.Helper()
	d = disktest.New(4)
	config, logs = onDisk(d)
	s := startOn(t, config)
	for n := range 30 {
		if err := submit(t.Context(), s, "q", fmt.Sprint(n)); err != nil {
			t.Fatal(err)
		}
		if n == 9 || n == 19 {
			if _, err := s.MakeSnapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	names, err := d.List("/data")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "snapshot-"):
			snapshots = append(snapshots, "/data/"+name)
		case strings.HasPrefix(name, "log-0"):
			segments = append(segments, "/data/"+name)
		}
	}
	if len(snapshots) != 2 || len(segments) != 1 {
		t.Fatal(names)
	}
	return d, config, logs, snapshots, segments
}

// flip changes a byte of a file.
func flip(d *disktest.Disk, path string, at int) {
	content := d.ReadFile(path)
	content[at] ^= 0x10
	d.WriteFile(path, content)
}

// TestStore_Damaged opens stores of which a part is damaged or missing, of another store or release: what is older and
// the log replace a snapshot; anything else ends the start with an error that names it, and changes nothing.
func TestStore_Damaged(t *testing.T) {
	t.Parallel()
	other := func() *disktest.Disk {
		d, _, _, _, _ := damagedStore(t)
		return d
	}
	for name, c := range map[string]struct {
		damage func(d *disktest.Disk, snapshots, segments []string)
		want   error // nil: all is there
		texts  []string
	}{
		"newest snapshot": {func(d *disktest.Disk, snapshots, _ []string) { flip(d, snapshots[1], 200) }, nil, []string{"a snapshot cannot be read"}},
		"newest snapshot is cut off": {func(d *disktest.Disk, snapshots, _ []string) {
			d.WriteFile(snapshots[1], d.ReadFile(snapshots[1])[:300])
		}, nil, []string{"a snapshot cannot be read"}},
		"both snapshots": {func(d *disktest.Disk, snapshots, _ []string) {
			flip(d, snapshots[0], 200)
			flip(d, snapshots[1], 200)
		}, nil, []string{"a snapshot cannot be read"}}, // the one segment goes back to the first entry
		"log":         {func(d *disktest.Disk, _, segments []string) { flip(d, segments[0], 1500) }, backend.ErrDamaged, []string{"log-0", "offset"}},
		"log is gone": {func(d *disktest.Disk, _, segments []string) { d.WriteFile(segments[0], nil) }, backend.ErrDamaged, []string{"a snapshot and no log"}},
		"snapshot of another store": {func(d *disktest.Disk, snapshots, _ []string) {
			d.WriteFile(snapshots[1], other().ReadFile(snapshots[1]))
		}, dispatch.ErrStoreMismatch, []string{"belongs to store"}},
		"snapshot of a newer release": {func(d *disktest.Disk, snapshots, _ []string) {
			content := d.ReadFile(snapshots[1])
			content[8] = 99
			dir.SealSnapshot(content)
			d.WriteFile(snapshots[1], content)
		}, dispatch.ErrStoreMismatch, []string{"format 99", "use the release that wrote it"}},
		"not ours":  {func(d *disktest.Disk, _, _ []string) { d.WriteFile("/data/store.json", nil) }, dispatch.ErrStoreMismatch, []string{"is no store"}},
		"identity":  {func(d *disktest.Disk, _, _ []string) { d.WriteFile("/data/store.json", []byte("{}")) }, dispatch.ErrStoreMismatch, []string{"has format 0"}},
		"read-only": {func(d *disktest.Disk, _, _ []string) { d.SetReadOnly(true) }, syscall.EROFS, []string{"read-only"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, config, logs, snapshots, segments := damagedStore(t)
			c.damage(d, snapshots, segments)
			s, err := openStore(t.Context(), config)
			if c.want != nil {
				fails(t, "open", err, c.want, append(c.texts, "/data")...)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if logs.FilterMessageSnippet(c.texts[0]).Len() == 0 {
				t.Errorf("logged: %v", logs.All())
			}
			if stats, err := s.Stats(t.Context()); err != nil || stats.Counts.Ready != 30 {
				t.Errorf("%d tasks, want 30: %v", stats.Counts.Ready, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestStore_EachDamage changes a byte of the log of a store that was killed, cuts the file there, or has zeros from there on:
// the store has all that it acknowledged, or does not start and names the file.
func TestStore_EachDamage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := disktest.New(6)
		config, _ := onDisk(d)
		config = config.On(d, 4<<10).Booted(atOnce)
		s := startOn(t, config)
		for n := range 5 {
			if err := submit(t.Context(), s, "q", fmt.Sprint(n)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second) // until the next mark
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		path := fmt.Sprintf("/data/log-%020d.waggle", 1)
		whole, mark := d.ReadFile(path), d.ReadFile(markPath)
		used := len(bytes.TrimRight(whole, "\x00"))
		refused := map[string]int{}
		for at := range used + 100 {
			flipped, zeroed := bytes.Clone(whole), bytes.Clone(whole)
			flipped[at] ^= 0x10
			clear(zeroed[at:])
			for damage, content := range map[string][]byte{"flipped": flipped, "cut": whole[:at], "zeros": zeroed} {
				d.WriteFile(path, content)
				d.WriteFile(markPath, mark)
				s, err := openStore(t.Context(), config)
				if err != nil {
					refused[damage]++
					fails(t, fmt.Sprintf("%s at %d", damage, at), err, backend.ErrDamaged, path)
					continue
				}
				if stats, err := s.Stats(t.Context()); err != nil || stats.Counts.Ready != 5 {
					t.Errorf("%s at %d of %d: %d tasks, %v; want 5", damage, at, used, stats.Counts.Ready, err)
				}
				if err := s.Kill(); err != nil {
					t.Error(err)
				}
			}
		}
		d.WriteFile(path, nil)
		_, err := openStore(t.Context(), config)
		fails(t, "without its log", err, backend.ErrDamaged)
		// What ends the log, and the zeros behind it, may change, and zeros may become zeros.
		if n := used - 36; refused["flipped"] != n || refused["cut"] != used+100 || refused["zeros"] < n-16 || refused["zeros"] > n {
			t.Errorf("refused %v, of %d bytes", refused, used)
		}
	})
}

// TestStore_ClockSteppedBack starts with a clock that is behind the last command: that is logged, and work goes on.
func TestStore_ClockSteppedBack(t *testing.T) {
	t.Parallel()
	d, c := disktest.New(5), storetest.NewStillClock(start)
	config, logs := onDisk(d)
	config.Now = c.Now
	s := startOn(t, config)
	if err := submit(t.Context(), s, "q", "1"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c.Advance(-time.Hour)
	s = startOn(t, config)
	if logs.FilterMessageSnippet("the clock of this machine is behind").Len() != 1 {
		t.Errorf("logged: %v", logs.All())
	}
	if err := submit(t.Context(), s, "q2", "2"); err != nil {
		t.Fatal(err)
	}
	if grants, err := claimOne(t.Context(), s, "1"); err != nil || len(grants) != 1 {
		t.Errorf("granted %v, %v", grants, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestStore_InUse opens a directory twice, also after somebody has removed the file that names its holder.
func TestStore_InUse(t *testing.T) {
	t.Parallel()
	config := storeConfig{Dir: t.TempDir()}
	open(t.Context(), t, config)
	_, err := openStore(t.Context(), config)
	fails(t, "open", err, backend.ErrInUse, "by process")
	if err := os.Remove(filepath.Join(config.Dir, "lock")); err != nil {
		t.Fatal(err)
	}
	_, err = openStore(t.Context(), config)
	fails(t, "open", err, backend.ErrInUse)
	_, err = repair(t.Context(), config.Dir)
	fails(t, "repair", err, backend.ErrInUse)
}

// TestStore_MovedIdle has somebody move the directory of a store that only reads: it ends soon.
func TestStore_MovedIdle(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "data")
	s := startOn(t, storeConfig{Dir: path})
	if err := os.Rename(path, path+"-old"); err != nil {
		t.Fatal(err)
	}
	var err error
	for limit := time.Now().Add(10 * time.Second); err == nil && time.Now().Before(limit); _, err = s.Stats(t.Context()) {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
	fails(t, "a read", err, dispatch.ErrStoreUnavailable, "moved or removed")
	_ = s.Close()
}

// TestStore_Moved has somebody move or remove the directory of a store, and another store begin under its path: the first
// acknowledges nothing more, and leaves the files of the other alone.
func TestStore_Moved(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(dir string) error{
		"moved":   func(dir string) error { return os.Rename(dir, dir+"-old") },
		"removed": os.RemoveAll,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, dir := t.Context(), filepath.Join(t.TempDir(), "data")
			config := storeConfig{Dir: dir}
			first := startOn(t, config)
			if _, err := first.BindCollector(ctx, "a", "token:a", time.Hour); err != nil {
				t.Fatal(err)
			}
			if err := take(dir); err != nil {
				t.Fatal(err)
			}
			other := startOn(t, config)
			if _, err := other.BindCollector(ctx, "b", "token:b", time.Hour); err != nil {
				t.Fatal(err)
			}
			_, err := first.BindCollector(ctx, "c", "token:c", time.Hour)
			fails(t, "a command", err, dispatch.ErrStoreUnavailable, "moved or removed")
			_ = first.Close()
			if err := other.Close(); err != nil {
				t.Fatal(err)
			}
			if err := startOn(t, config).Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
