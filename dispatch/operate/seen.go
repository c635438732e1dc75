package operate

import (
	"context"
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
	out := &Findings{Sources: l.out.Sources, SourcesOK: l.out.SourcesOK, NextDue: l.out.NextDue}
	l.seen.Store(&look{out: out, sources: l.sources, next: l.next, released: l.released, counts: l.counts, begun: time.Now(), took: took})
}

// takeSeen takes what the last look at all sources has found, if to look again would take long.
func (l *look) takeSeen() bool {
	seen := l.seen.Load()
	if l.prefixes != nil || seen == nil || seen.took < slowSources || time.Since(seen.begun) > seenFor {
		return false
	}
	l.sources, l.next, l.released = seen.sources, seen.next, slices.Clone(seen.released)
	l.out.Sources, l.out.SourcesOK, l.out.NextDue, l.out.Whole = seen.out.Sources, seen.out.SourcesOK, seen.out.NextDue, true
	return true
}

// lookOn goes on with a look at all sources for a while, or begins one. It returns nil when that has seen all.
func (o *Operator) lookOn(ctx context.Context, pass *sourcePass) (*sourcePass, error) {
	at, err := o.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	if pass == nil {
		pass = &sourcePass{look: &look{out: &Findings{Now: at.now}, sources: make(map[sourceCause]*sourceCount)}}
	}
	pass.snapshot = at
	for begun := time.Now(); ; {
		found, next, err := o.ListSources(ctx, SourceQuery{Gates: true, Moves: true}, pass.after, lookPage)
		if err != nil {
			return nil, err
		}
		for _, v := range found {
			pass.takeSource(v)
		}
		pass.after = next
		if took := time.Since(begun); next == "" {
			pass.keepSeen(pass.spent + took)
			return nil, nil
		} else if took >= passTime {
			pass.spent += took
			return pass, nil
		}
	}
}

// passTime is how long a pass over the sources goes on at a time, beside other work.
const passTime = 100 * time.Millisecond

// sourcePass is a look at all sources, some at a time.
type sourcePass struct {
	*look
	after string        // the last one that was looked at
	spent time.Duration // so far
}
