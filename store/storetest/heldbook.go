package storetest

import (
	"maps"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/holdbook"
)

// heldBook keeps holds the naive way.
type heldBook struct {
	version int64
	holds   map[string]dispatch.Hold // by key
	// queues is until when shards were told that queues and patterns are held.
	queues map[string]time.Time
}

func newHeldBook() heldBook {
	return heldBook{holds: map[string]dispatch.Hold{}, queues: map[string]time.Time{}}
}

// change is what sets and lifts holds.
func (b *heldBook) change(now time.Time, set []dispatch.Hold, lift ...string) dispatch.HoldChange {
	change := dispatch.HoldChange{Set: set, Lift: lift, Queues: map[string]time.Time{}}
	for _, key := range lift {
		if queue := b.holds[key].Target.Queue; queue != "" {
			change.Queues[queue] = time.Time{}
		}
	}
	for _, hold := range set {
		if queue := hold.Target.Queue; queue != "" {
			change.Queues[queue] = time.Time{}
		}
	}
	on := make(map[string][]dispatch.Hold)
	for _, hold := range b.after(change) {
		on[hold.Target.Queue] = append(on[hold.Target.Queue], hold)
	}
	for queue := range change.Queues {
		change.Queues[queue] = holdbook.LastEnd(on[queue], now)
	}
	return change
}

// after are the holds after a change.
func (b *heldBook) after(change dispatch.HoldChange) map[string]dispatch.Hold {
	after := maps.Clone(b.holds)
	for _, key := range change.Lift {
		delete(after, key)
	}
	for _, hold := range change.Set {
		after[hold.Key()] = hold
	}
	return after
}

// put follows a change that gave a version, which must be the one of the contract.
func (b *heldBook) put(now time.Time, change dispatch.HoldChange, version int64) error {
	if want := max(b.version+1, now.UnixMilli()); version != want {
		return broken("a change of the holds of version %d gave version %d, want %d", b.version, version, want)
	}
	if b.holds = b.after(change); len(b.holds) > bounds.MaxHolds {
		return broken("%d holds stand", len(b.holds))
	}
	for queue, until := range change.Queues {
		if b.queues[queue] = until; until.IsZero() {
			delete(b.queues, queue)
		}
	}
	b.version = version
	return nil
}

// until is when the last hold on a queue ends that is told of; zero: it has none.
func (b *heldBook) until(queue string) (last time.Time) {
	for _, name := range settingsNames(queue) {
		if end := b.queues[name]; end.After(last) {
			last = end
		}
	}
	return last
}
