package wal_test

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/store/filestore/internal/disk"
	"github.com/waggle-crawl/waggle/store/filestore/internal/wal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// options are those of most tests: small segments, each batch synced.
func options(fs disk.FS) wal.Options {
	return wal.Options{FS: fs, StoreID: [16]byte{1, 2, 3}, SegmentBytes: 16 << 10, Logger: zap.NewNop()}
}

// opened opens a log and returns it with the entries that were replayed, by sequence.
func opened(t *testing.T, dir string, opts wal.Options, after uint64) (*wal.Log, map[uint64]string) {
	t.Helper()
	entries := map[uint64]string{}
	l, err := wal.Open(dir, opts, after, collect(entries, after))
	if err != nil {
		t.Fatal(err)
	}
	return l, entries
}

// collect stores replayed entries by sequence and fails if one is missing or comes twice.
func collect(entries map[uint64]string, after uint64) func(uint64, []byte) error {
	return func(seq uint64, entry []byte) error {
		if want := after + uint64(len(entries)) + 1; seq != want {
			return fmt.Errorf("entry %d was replayed, want %d", seq, want)
		}
		entries[seq] = string(entry)
		return nil
	}
}

// add appends an entry without waiting.
func add(t *testing.T, l *wal.Log, entry string) *wal.Commit {
	t.Helper()
	if err := l.Reserve(len(entry), true); err != nil {
		t.Fatal(err)
	}
	return l.Append([]byte(entry), len(entry))
}

func closed(t *testing.T, l *wal.Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestLog_AppendAndReplay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	opts := options(disk.OS{})
	for round := range 4 {
		l, entries := opened(t, dir, opts, 0)
		if len(entries) != round*100 || l.Sequence() != uint64(round*100) {
			t.Fatalf("round %d: %d entries, sequence %d", round, len(entries), l.Sequence())
		}
		for seq, entry := range entries {
			if want := text(seq); entry != want {
				t.Fatalf("entry %d is %q, want %q", seq, entry, want)
			}
		}
		for range 100 {
			c := add(t, l, text(l.Sequence()+1))
			if l.Sequence()%7 == 0 {
				if err := c.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		closed(t, l)
	}
}

// text is the entry with a sequence: sometimes empty, sometimes long.
func text(seq uint64) string {
	switch {
	case seq%10 == 0:
		return ""
	case seq%11 == 0:
		return fmt.Sprintf("%d-%01000d", seq, seq)
	default:
		return fmt.Sprintf("entry %d", seq)
	}
}
