package store

import (
	"context"
	"errors"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/machine"
)

// anything is a journal that takes anything.
type anything struct{}

func (anything) Reserve(int, bool) error   { return nil }
func (anything) Append([]byte, int) Commit { return nil }

// failing is a command that panics when it has changed something.
type failing struct{ machine.Unblock }

func (f failing) Run(s *machine.Shard) {
	f.Unblock.Run(s)
	panic("a fault of the program")
}

// TestJournal_CommandPanics ends the use of a store whose command ended in its middle: what the store has then is not what
// its journal gives.
func TestJournal_CommandPanics(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Journal: anything{}})
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() { _ = recover() }()
		_, err = s.shards[0].perform(&failing{})
		t.Errorf("the command returned %v", err)
	}()
	for name, call := range map[string]func(context.Context) error{
		"a read":   func(ctx context.Context) error { _, err := s.Stats(ctx); return err },
		"a change": func(ctx context.Context) error { _, err := s.Unblock(ctx, "q"); return err },
		"ping":     s.Ping,
	} {
		if err := call(t.Context()); !errors.Is(err, dispatch.ErrStoreUnavailable) {
			t.Errorf("%s after it: %v", name, err)
		}
	}
}
