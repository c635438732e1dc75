package operate

import (
	"slices"
	"time"
)

// SourceCounts count all sources, each once.
type SourceCounts struct {
	// Health counts those with a success, or that were not due yet; Never the others.
	Health map[SourceHealth]int
	Never  int
	// Holds on sources, and when the oldest of them without an end was set; zero: there is none.
	Holds      int
	OldestHold time.Time
}

// count adds a source.
func (c *SourceCounts) count(v *SourceView, kind FindingKind) {
	if kind == findNever {
		c.Never++
	} else {
		if c.Health == nil {
			c.Health = make(map[SourceHealth]int)
		}
		c.Health[v.Health]++
	}
	c.Holds += len(v.Source.Holds)
	for i := range v.Source.Holds {
		if h := &v.Source.Holds[i]; h.Until.IsZero() && (c.OldestHold.IsZero() || h.Created.Before(c.OldestHold)) {
			c.OldestHold = h.Created
		}
	}
}

// sourceCounts are those of the last look at all sources.
func (o *Operator) sourceCounts() SourceCounts {
	if seen := o.seen.Load(); seen != nil {
		return seen.counts
	}
	return SourceCounts{}
}

const (
	// slowSources is how long a look at all sources takes when those who ask get the last one, of up to seenFor before.
	slowSources = 50 * time.Millisecond
	seenFor     = 2 * time.Minute
)

// keepSeen keeps what a look at all sources has found.
func (l *look) keepSeen(took time.Duration) {
	out := &Findings{Sources: l.out.Sources, SourcesOK: l.out.SourcesOK, NextDue: l.out.NextDue, Whole: true}
	l.seen.Store(&look{out: out, sources: l.sources, next: l.next, released: l.released, counts: l.counts, begun: time.Now(), took: took})
}

// takeSeen takes what the last look at all sources has found, if to look again would take long.
func (l *look) takeSeen() bool {
	seen := l.seen.Load()
	if l.prefixes != nil || seen == nil || seen.took < slowSources || time.Since(seen.begun) > seenFor {
		return false
	}
	l.takeFrom(seen)
	return true
}

// takeFrom takes what another look has found of the sources.
func (l *look) takeFrom(other *look) {
	l.sources, l.next, l.released = other.sources, other.next, slices.Clone(other.released)
	seen := other.out
	l.out.Sources, l.out.SourcesOK, l.out.NextDue, l.out.Whole = seen.Sources, seen.SourcesOK, seen.NextDue, seen.Whole
}
