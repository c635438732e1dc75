package engine

import (
	"maps"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// activity notes when collectors that send beats to this dispatcher last fetched or reported here, or had a reason not to. So a new
// owner of the store begins to count with the first beat that it gets.
type activity struct {
	mu    sync.Mutex // guards the rest
	last  map[string]time.Time
	swept time.Time // when silent ones were last forgotten
}

func newActivity() *activity { return &activity{last: make(map[string]time.Time)} }

// note notes that a known collector fetches or reports.
func (a *activity) note(collector string) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.last[collector]; known {
		a.last[collector] = now
	}
}

// beat notes a beat. The collector is excused if it could not fetch at that moment, or waits in a fetch.
func (a *activity) beat(collector string, excused bool) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.last[collector]; known && !excused {
		return
	}
	if len(a.last) >= maxTallies && now.Sub(a.swept) >= outcomePeriod {
		a.swept = now
		maps.DeleteFunc(a.last, func(_ string, last time.Time) bool { return now.Sub(last) >= dispatch.CollectorMemory })
	}
	if len(a.last) < maxTallies {
		a.last[collector] = now
	}
}

// forget forgets what an older session of a collector did.
func (a *activity) forget(collector string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.last, collector)
}

// noteBeat notes a beat of a collector that holds so many leases.
func (d *Dispatcher) noteBeat(info *dispatch.CollectorInfo, leases int, held bool) {
	busy := leases >= max(info.Slots-info.StuckSlots, 1)
	d.activity.beat(info.ID, held || busy || info.Stopping || info.Ended || d.pump.Waits(info.ID))
}

// IdleSince is when a collector last fetched or reported at this dispatcher; or when it last said in a beat that it could not fetch,
// since a hold stopped it, it stopped, or all its slots were busy. Zero: not known, or a fetch of it waits.
func (d *Dispatcher) IdleSince(collector string) time.Time {
	if d.pump.Waits(collector) {
		return time.Time{}
	}
	d.activity.mu.Lock()
	defer d.activity.mu.Unlock()
	return d.activity.last[collector]
}
