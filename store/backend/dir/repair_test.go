package dir_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk"
)

// TestRepair damages a store of ten tasks in a snapshot and twenty in the log after it. It starts once its loss is accepted,
// with all up to the damage, and goes on.
func TestRepair(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage      func(t *testing.T, dir string)
		least, most int64 // tasks that are left
	}{
		"log is cut off":    {change("log-0", func(b []byte) []byte { return b[:len(b)-1] }), 10, 10},
		"byte in the log":   {change("log-0", func(b []byte) []byte { b[3000] ^= 1; return b }), 11, 29},
		"header of the log": {change("log-0", func(b []byte) []byte { b[40] ^= 1; return b }), 10, 10},
		"log is gone":       {change("log-0", func([]byte) []byte { return nil }), 10, 10},
		"snapshot, byte in the log": {func(t *testing.T, dir string) {
			t.Helper()
			change("snapshot-", func(b []byte) []byte { b[100] ^= 1; return b })(t, dir)
			change("log-0", func(b []byte) []byte { b[3000] ^= 1; return b })(t, dir)
		}, 11, 29},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := storeConfig{Dir: t.TempDir()}.On(disk.OS{}, smallSegments)
			thirtyTasks(t, config)
			c.damage(t, config.Dir)
			_, damage := check(t.Context(), config.Dir)
			_, err := openStore(t.Context(), config)
			fails(t, "open", err, backend.ErrDamaged)
			fails(t, "check", damage, backend.ErrDamaged)
			report, err := repair(t.Context(), config.Dir)
			if err != nil || !strings.HasSuffix(damage.Error(), report.Damage) || report.Damage == "" {
				t.Fatalf("repaired: %+v, %v; damage %v", report, err, damage)
			}
			if kept, err := (disk.OS{}).List(report.Aside); err != nil || len(kept) == 0 {
				t.Errorf("kept %v, %v", kept, err)
			}
			s := startOn(t, config)
			stats, err := s.Stats(t.Context())
			if err != nil || stats.Counts.Ready < c.least || stats.Counts.Ready > c.most {
				t.Errorf("%d tasks are left, %v; want %d to %d", stats.Counts.Ready, err, c.least, c.most)
			}
			if err := submit(t.Context(), s, "q", "after"); err != nil {
				t.Error(err)
			}
			if err := s.Kill(); err != nil {
				t.Error(err)
			}
			if report, err := repair(t.Context(), config.Dir); err != nil || report.Damage != "" || report.Stats.Counts.Ready != stats.Counts.Ready+1 {
				t.Errorf("repaired again: %+v, %v", report, err)
			}
		})
	}
}

// TestRepair_notNeeded damages a snapshot alone: the log has all, so that a check finds nothing lost and a repair gives
// nothing up.
func TestRepair_notNeeded(t *testing.T) {
	t.Parallel()
	config := storeConfig{Dir: t.TempDir()}.On(disk.OS{}, smallSegments)
	thirtyTasks(t, config)
	change("snapshot-", func(b []byte) []byte { b[100] ^= 1; return b })(t, config.Dir)
	for name, read := range map[string]func() (report, error){
		"check":  func() (report, error) { return check(t.Context(), config.Dir) },
		"repair": func() (report, error) { return repair(t.Context(), config.Dir) },
		"backup": func() (report, error) {
			return backup(t.Context(), config.Dir, filepath.Join(t.TempDir(), "backup"))
		},
	} {
		report, err := read()
		if err != nil || report.Unread == "" || report.Damage != "" || report.Stats.Counts.Ready != 30 {
			t.Errorf("%s: %+v, %v", name, report, err)
		}
	}
}

// thirtyTasks makes a store of ten tasks in a snapshot and twenty in the log after it, whose process is killed.
func thirtyTasks(t *testing.T, config storeConfig) {
	t.Helper()
	s := startOn(t, config)
	for n := range 30 {
		if n == 10 {
			if _, err := s.MakeSnapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := submit(t.Context(), s, "q", fmt.Sprint(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
}

// change replaces the content of the only file of a store whose name begins so; nil removes it.
func change(prefix string, content func([]byte) []byte) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(dir, prefix+"*.waggle"))
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		b, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		if b = content(b); b == nil {
			err = os.Remove(files[0])
		} else {
			err = os.WriteFile(files[0], b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestRepair_nothingLeft refuses to make an empty store of one of which nothing can be read.
func TestRepair_nothingLeft(t *testing.T) {
	t.Parallel()
	config := storeConfig{Dir: t.TempDir()}.On(disk.OS{}, smallSegments)
	s := startOn(t, config)
	if err := submit(t.Context(), s, "q", "1"); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	change("log-0", func(b []byte) []byte { b[100] ^= 1; return b })(t, config.Dir)
	_, err := repair(t.Context(), config.Dir)
	fails(t, "repair", err, backend.ErrDamaged, "nothing of it can be read")
	if names, err := (disk.OS{}).List(config.Dir); err != nil || !strings.Contains(fmt.Sprint(names), "log-0") {
		t.Errorf("files %v, %v", names, err)
	}
}
