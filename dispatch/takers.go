package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// wanted is what collectors are looked for that take it: tasks of a pool; of a source and
// in a queue, where these are set.
type wanted struct{ pool, source, queue string }

func (w wanted) String() string {
	text := "tasks"
	if w.source != "" {
		text += fmt.Sprintf(" of source %q", w.source)
	}
	if w.queue != "" {
		text += fmt.Sprintf(" in queue %q", w.queue)
	}
	return fmt.Sprintf("%s of pool %q", text, w.pool)
}

// missing is what nobody takes tasks of: the pool, unless collectors take others of it.
func (w wanted) missing(who takers) (of HeldKind, name string) {
	switch {
	case !who.narrowed:
		return HeldPool, w.pool
	case w.source != "":
		return HeldSource, w.source
	default:
		return HeldQueue, w.queue
	}
}

// taking is how much a collector takes of what is wanted, as it tells.
type taking uint8

const (
	takesNone   taking = iota
	takesOthers        // of the pool, but of other sources or in other queues
	takesSome          // it narrows the pool by what the want leaves open
	takesAll
)

// takes reports how much the collector takes of what is wanted. Of one that tells no
// pools, as one that never beats, it is the pool of fetches that name none.
func (c *CollectorInfo) takes(w wanted) taking {
	switch {
	case len(c.Pools) == 0 && w.pool != DefaultPool, len(c.Pools) > 0 && !slices.Contains(c.Pools, w.pool):
		return takesNone
	case leavesOut(c.Sources, w.source), leavesOut(c.Queues, w.queue):
		return takesOthers
	case w.source == "" && len(c.Sources) > 0, w.queue == "" && len(c.Queues) > 0:
		return takesSome
	default:
		return takesAll
	}
}

// leavesOut reports whether who narrows its fetches to some leaves out the one that is
// asked about.
func leavesOut(narrow []string, asked string) bool {
	return len(narrow) > 0 && asked != "" && !slices.Contains(narrow, asked)
}

// takers is who takes what was wanted; the zero value: somebody does.
type takers struct {
	gate *Gate // nobody does; of several drains that keep all from it the one that ends last
	// narrowed: of the pool others take tasks of other sources or queues.
	narrowed bool
	// note is, where all take only some, who and which; and where cut is set, that there
	// are too many collectors to tell.
	note string
	cut  bool
}

// search is what was found so far of who takes what is wanted, while nobody takes all.
type search struct {
	drain        *Drain // of those who would
	some, others several
}

// several is the first of some collectors, and how many more there are.
type several struct {
	first *CollectorInfo
	more  int
}

func (c *several) add(info *CollectorInfo) {
	if c.first == nil {
		c.first = info
	} else {
		c.more++
	}
}

// Collectors are read page by page. The first is short, since one that takes what is
// wanted is mostly among the first.
const (
	collectorsAtFirst = 20
	collectorsPerLook = 200
	// collectorsLookedAt bounds how many that are there are looked at, and
	// readPerLookedAt, times that, how many are read with those that are away.
	collectorsLookedAt = 1000
	readPerLookedAt    = 10
)

// takers looks for collectors that are active and take what is wanted. What is not in
// its answer is taken, or not known to be.
func (d *Dispatcher) takers(ctx context.Context, wants []wanted, now time.Time) (map[wanted]takers, error) {
	return d.takersAmong(ctx, collectorsLookedAt, wants, now)
}

// takersAmong is takers that looks at most collectors that are there. Where there are more,
// what none of those takes is cut.
func (d *Dispatcher) takersAmong(ctx context.Context, most int, wants []wanted, now time.Time) (map[wanted]takers, error) {
	book, err := d.drains.current(ctx)
	if err != nil {
		return nil, err
	}
	unmet := make(map[wanted]*search, len(wants))
	for _, w := range wants {
		unmet[w] = &search{}
	}
	var silent several // of their pools
	present := 0
	all, err := d.eachCollector(ctx, most*readPerLookedAt, func(c *CollectorRecord) bool {
		if c.Away(now) {
			return true
		}
		if present++; present > most {
			return false
		}
		drain := book.of(c.Info.ID, &c.Info)
		for w, s := range unmet {
			if s.meet(&c.Info, w, drain) {
				delete(unmet, w)
			}
		}
		if len(c.Info.Pools) == 0 && drain == nil && !c.Info.Draining {
			silent.add(&c.Info)
		}
		return len(unmet) > 0
	})
	if err != nil {
		return nil, err
	}
	found := make(map[wanted]takers, len(unmet))
	for w, s := range unmet {
		if all {
			found[w] = s.result(w, &silent)
		} else {
			found[w] = takers{cut: true, note: fmt.Sprintf("none of the first %s takes all %s; those after them were not looked at", counted(int64(min(present, most)), "active collector"), w)}
		}
	}
	return found, nil
}

// eachCollector visits the collectors that are remembered, by id, page by page, until
// most were looked at, or visit wants no more. all tells that it came to the end.
func (d *Dispatcher) eachCollector(ctx context.Context, most int, visit func(*CollectorRecord) (more bool)) (all bool, err error) {
	after, size := "", collectorsAtFirst
	for looked := 0; looked < most; {
		page, err := d.store.ListCollectors(ctx, after, size)
		if err != nil {
			return false, fmt.Errorf("list collectors: %w", err)
		}
		for _, c := range page {
			if !visit(c) {
				return false, nil
			}
		}
		if len(page) < size {
			return true, nil
		}
		looked += size
		after, size = page[len(page)-1].Info.ID, collectorsPerLook
	}
	return false, nil
}

// meet notes what an active collector, drained by of unless that is nil, takes of what is
// wanted, and reports whether it takes all.
func (s *search) meet(c *CollectorInfo, w wanted, of *Drain) bool {
	much := c.takes(w)
	switch {
	case much == takesNone:
	case of != nil:
		if much != takesOthers && (s.drain == nil || s.drain.outlasts(of)) {
			s.drain = of
		}
	case c.Draining:
	case much == takesOthers:
		s.others.add(c)
	case much == takesSome:
		s.some.add(c)
	default:
		return true
	}
	return false
}

// result is what was found after all collectors were looked at.
func (s *search) result(w wanted, silent *several) takers {
	switch {
	case s.some.first != nil:
		return takers{note: fmt.Sprintf("not all %s are taken: %s", w, s.some.narrow())}
	case s.drain != nil:
		gate, what := s.drain.Gate, w
		if s.others.first == nil {
			what = wanted{pool: w.pool}
		}
		gate.Reason = cmp.Or(gate.Reason, fmt.Sprintf("the active collectors that take %s are drained", what))
		return takers{gate: &gate}
	case s.others.first != nil:
		reason := fmt.Sprintf("no active collector takes %s: %s", w, s.others.narrow())
		return takers{gate: &Gate{Kind: GateNoCollector, Reason: reason}, narrowed: true}
	}
	w = wanted{pool: w.pool}
	if silent.first == nil {
		return takers{gate: &Gate{Kind: GateNoCollector, Reason: fmt.Sprintf("no active collector takes %s", w)}}
	}
	who := fmt.Sprintf("%q tells no pools, and takes what its FetchTask names", silent.first.ID)
	if silent.more > 0 {
		who = fmt.Sprintf("%q and %d more tell no pools, and take what their FetchTask names", silent.first.ID, silent.more)
	}
	return takers{gate: &Gate{Kind: GateNoCollector, Reason: fmt.Sprintf("no active collector tells that it takes %s; %s", w, who)}}
}

// narrow says to what the first collector narrows its fetches, and how many more do.
func (c *several) narrow() string {
	text := fmt.Sprintf("%q takes only those", c.first.ID)
	for _, by := range []struct {
		what   string
		values []string
	}{{"of source", c.first.Sources}, {"in queue", c.first.Queues}} {
		if len(by.values) == 0 {
			continue
		}
		text += fmt.Sprintf(" %s %q", by.what, by.values[0])
		if more := len(by.values) - 1; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
	}
	if c.more > 0 {
		text += fmt.Sprintf("; %d more narrow theirs, too", c.more)
	}
	return text
}
