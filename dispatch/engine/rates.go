package engine

import (
	"maps"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Limits of what has rates: beyond them those in which nothing has ended for two hours are forgotten, once a minute, and no others
// are added.
const (
	maxRatedPools   = 1000
	maxRatedSources = 100_000
)

// Rates are how many leases have ended in the last minute and hour. They are of this process: one that takes the store over begins
// with none.
type Rates struct {
	// Settled tasks, and cycles that succeeded.
	SettledMinute, SettledHour int64
	// Failed are attempts that failed or ran out.
	FailedMinute, FailedHour int64

	perSecond float64 // settled
}

// leastSettled in a minute are enough for a rate of that minute; with fewer the hour counts.
const leastSettled = 10

// ToGo is how long so many tasks take at this rate; 0: there is no rate, or nothing to do.
func (r *Rates) ToGo(tasks int64) time.Duration {
	if tasks <= 0 || r.perSecond <= 0 {
		return 0
	}
	const longest = 1000 * 24 * time.Hour
	return time.Duration(min(float64(tasks)/r.perSecond, longest.Seconds()) * float64(time.Second))
}

// window counts in spans of equal length: the last full one counts as much as of it is less than a span ago.
type window struct {
	span            uint32 // the current one, in spans since 1970
	current, before uint32
}

func (w *window) turn(span uint32) {
	switch span - w.span {
	case 0:
		return
	case 1:
		w.before = w.current
	default:
		w.before = 0
	}
	w.span, w.current = span, 0
}

func (w *window) add(span uint32) {
	w.turn(span)
	w.current++
}

// spans are those that an instant is in.
type spans struct{ minute, hour uint32 }

func spansOf(now time.Time) spans {
	at := now.Unix()
	return spans{uint32(at / 60), uint32(at / 3600)} //nolint:gosec // minutes and hours
}

// count is how many came in the last length of time, about.
func (w window) count(now time.Time, length time.Duration) float64 {
	at := now.UnixNano()
	w.turn(uint32(at / int64(length))) //nolint:gosec // minutes and hours
	return float64(w.current) + float64(w.before)*(1-float64(at%int64(length))/float64(length))
}

// tempo is what is counted of a pool, queue or source.
type tempo struct {
	begun                                                int64 // counting, in ms since 1970
	settledMinute, settledHour, failedMinute, failedHour window
}

func (t *tempo) note(end *End, at spans) {
	if end.Settled {
		t.settledMinute.add(at.minute)
		t.settledHour.add(at.hour)
	}
	if end.Result == dispatch.ResultFailed || end.Result == dispatch.ResultExpired {
		t.failedMinute.add(at.minute)
		t.failedHour.add(at.hour)
	}
}

func (t *tempo) rates(now time.Time) Rates {
	minute, hour := t.settledMinute.count(now, time.Minute), t.settledHour.count(now, time.Hour)
	return Rates{
		SettledMinute: int64(minute + .5), SettledHour: int64(hour + .5), perSecond: perSecond(minute, hour, now.Sub(time.UnixMilli(t.begun))),
		FailedMinute: int64(t.failedMinute.count(now, time.Minute) + .5), FailedHour: int64(t.failedHour.count(now, time.Hour) + .5),
	}
}

// perSecond is how many tasks settle in a second, by the last minute and hour of what was counted for so long.
func perSecond(minute, hour float64, age time.Duration) float64 {
	if minute >= leastSettled {
		return minute / min(max(age, time.Second), time.Minute).Seconds()
	}
	return hour / min(max(age, time.Minute), time.Hour).Seconds()
}

// idle reports whether nothing has ended for so long that nothing is shown.
func (t *tempo) idle(now time.Time) bool {
	return t.settledHour.count(now, time.Hour)+t.failedHour.count(now, time.Hour) == 0
}

// rates count how leases end, in the memory of the owner.
type rates struct {
	mu             sync.Mutex // guards all fields, and what they point to
	all            tempo
	pools, sources tempos
}

func newRates() *rates {
	return &rates{
		all:     tempo{begun: time.Now().UnixMilli()},
		pools:   tempos{most: maxRatedPools, of: make(map[string]*tempo)},
		sources: tempos{most: maxRatedSources, of: make(map[string]*tempo)},
	}
}

// tempos are those of things of one kind, by name.
type tempos struct {
	most  int
	of    map[string]*tempo
	swept time.Time
}

// find is the tempo of a name, which is made if there is room; nil: there is none.
func (t *tempos) find(name string, now time.Time) *tempo {
	found := t.of[name]
	if found == nil {
		if len(t.of) >= t.most && now.Sub(t.swept) >= time.Minute {
			t.swept = now
			maps.DeleteFunc(t.of, func(_ string, t *tempo) bool { return t.idle(now) })
		}
		if len(t.of) >= t.most || name == "" {
			return nil
		}
		found = &tempo{begun: now.UnixMilli()}
		t.of[name] = found
	}
	return found
}

func (r *rates) note(ends []End, now time.Time) {
	at := spansOf(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	var before *End
	var of [2]*tempo
	for i := range ends {
		end := &ends[i]
		if !end.Settled && end.Result == dispatch.ResultReleased {
			continue
		}
		// Most reports of a call are of one pool, and many of one source.
		if before == nil || before.Pool != end.Pool {
			of[0] = r.pools.find(end.Pool, now)
		}
		if before == nil || before.Source != end.Source {
			of[1] = r.sources.find(end.Source, now)
		}
		before = end
		r.all.note(end, at)
		for _, t := range of {
			if t != nil {
				t.note(end, at)
			}
		}
	}
}

func (r *rates) find(in *tempos, name string) Rates {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := in.of[name]; t != nil {
		return t.rates(time.Now())
	}
	return Rates{}
}

// AllRates are those of everything.
func (d *Dispatcher) AllRates() Rates {
	d.rates.mu.Lock()
	defer d.rates.mu.Unlock()
	return d.rates.all.rates(time.Now())
}

// PoolRates are those of all pools in which something has ended lately, by name.
func (d *Dispatcher) PoolRates() map[string]Rates {
	d.rates.mu.Lock()
	defer d.rates.mu.Unlock()
	now, all := time.Now(), make(map[string]Rates, len(d.rates.pools.of))
	for name, t := range d.rates.pools.of {
		if !t.idle(now) {
			all[name] = t.rates(now)
		}
	}
	return all
}

// RatesOf are those of a queue, by its last hour.
func RatesOf(hour *dispatch.QueueHour, now time.Time) Rates {
	r := Rates{SettledMinute: hour.SettledMinute, FailedMinute: hour.FailedMinute}
	for i := range hour.Intervals {
		of := &hour.Intervals[i]
		r.SettledHour += of.Settled
		r.FailedHour += of.Expired
		for _, failed := range of.Failed {
			r.FailedHour += failed
		}
	}
	r.perSecond = perSecond(float64(r.SettledMinute), float64(r.SettledHour), now.Sub(hour.Since))
	return r
}

// SourceRates are those of a source, of which 100,000 are counted.
func (d *Dispatcher) SourceRates(id string) Rates { return d.rates.find(&d.rates.sources, id) }
