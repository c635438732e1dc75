package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/machine"
)

// anything is a backend that takes anything.
type anything struct{ backend.Backend }

func (anything) Room(int, int, bool) error                     { return nil }
func (anything) Commit(int, []byte, int) backend.Commit        { return nil }
func (anything) Until(context.Context, int) (time.Time, error) { return time.Time{}, nil }

// failing is a command that panics when it has changed something.
type failing struct{ machine.Unblock }

func (f failing) Run(s *machine.Shard) {
	f.Unblock.Run(s)
	panic("a fault of the program")
}

// TestBackend_CommandPanics ends the use of a store whose command ended in its middle: what the store has then is not what
// its backend gives, and goes into no snapshot.
func TestBackend_CommandPanics(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]Config{"kept": {Backend: anything{}}, "memory": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := newStore(1, config)
			if err != nil {
				t.Fatal(err)
			}
			func() {
				defer func() { _ = recover() }()
				_, err = s.shards[0].perform(&failing{})
				t.Errorf("the command returned %v", err)
			}()
			select {
			case <-s.Failed():
			default:
				t.Error("the owner does not learn of it")
			}
			for name, call := range map[string]func(context.Context) error{
				"a read":   func(ctx context.Context) error { _, err := s.Stats(ctx); return err },
				"a change": func(ctx context.Context) error { _, err := s.Unblock(ctx, "q"); return err },
				"a snapshot": func(context.Context) error {
					return s.Snapshot(backend.AllShards, backend.Snapshot{Write: func([]byte) error { return nil }})
				},
				"ping": s.Ping,
			} {
				if err := call(t.Context()); !errors.Is(err, dispatch.ErrStoreUnavailable) {
					t.Errorf("%s after it: %v", name, err)
				}
			}
		})
	}
}
