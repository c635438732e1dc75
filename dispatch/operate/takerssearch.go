package operate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
)

// takers is who takes what was wanted; the zero value: somebody does.
type takers struct {
	// gates, where nobody does, is why. Of drains it is drainsTold at most, each of which
	// keeps somebody from it. The first is the one with whose end somebody takes it.
	gates []dispatch.Gate
	// narrowed: of the pool others take tasks of other sources or queues.
	narrowed bool
	// note is, where all take only some, who and which; of more drains than are told, how
	// many; and where cut is set, that there are too many collectors to tell.
	note string
	cut  bool
}

// drainsTold bounds the drains that are told one by one.
const drainsTold = 5

// search is what was found so far of who takes what is wanted, while nobody takes all.
type search struct {
	// drains are those of collectors who would, each once.
	drains []*dispatch.Hold
	// first is the one with whose end the first of these collectors takes it.
	first        *dispatch.Hold
	some, others several
}

// several is the first of some collectors, and how many more there are.
type several struct {
	first *dispatch.CollectorInfo
	more  int
}

func (c *several) add(info *dispatch.CollectorInfo) {
	if c.first == nil {
		c.first = info
	} else {
		c.more++
	}
}

// meet notes what an active collector with these drains, as [drainBook.all] has them, takes
// of what is wanted, and reports whether it takes all.
func (s *search) meet(c *dispatch.CollectorInfo, w wanted, drains []*dispatch.Hold) bool {
	much := takesOf(c, w)
	switch {
	case much == takesNone:
	case len(drains) > 0:
		if much != takesOthers {
			s.drained(drains)
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

// drained notes the drains of a collector, of which the last to end comes first.
func (s *search) drained(drains []*dispatch.Hold) {
	if s.first == nil || s.first.Outlasts(drains[0]) {
		s.first = drains[0]
	}
	for _, d := range drains {
		if !slices.Contains(s.drains, d) {
			s.drains = append(s.drains, d)
		}
	}
}

// result is what was found after all collectors were looked at.
func (s *search) result(w wanted, silent *several) takers {
	switch {
	case s.some.first != nil:
		note := fmt.Sprintf("not all %s are taken: %s", w, s.some.narrow())
		if len(s.drains) > 0 {
			note += fmt.Sprintf("; others are kept from them by %s, which ListDrains lists", counted(int64(len(s.drains)), "drain"))
		}
		return takers{note: note}
	case s.first != nil:
		return s.drainGates(w)
	case s.others.first != nil:
		reason := fmt.Sprintf("no active collector takes %s: %s", w, s.others.narrow())
		return takers{gates: []dispatch.Gate{{Kind: dispatch.GateNoCollector, Reason: reason}}, narrowed: true}
	}
	w = wanted{pool: w.pool}
	reason := fmt.Sprintf("no active collector takes %s", w)
	if silent.first != nil {
		who := fmt.Sprintf("%q tells no pools, and takes what its FetchTask names", silent.first.ID)
		if silent.more > 0 {
			who = fmt.Sprintf("%q and %d more tell no pools, and take what their FetchTask names", silent.first.ID, silent.more)
		}
		reason = fmt.Sprintf("no active collector tells that it takes %s; %s", w, who)
	}
	return takers{gates: []dispatch.Gate{{Kind: dispatch.GateNoCollector, Reason: reason}}}
}

// drainGates are the drains that were found, where they keep all from what is wanted.
func (s *search) drainGates(w wanted) takers {
	who := takers{narrowed: s.others.first != nil}
	what := w
	if !who.narrowed {
		what = wanted{pool: w.pool}
	}
	s.drains = slices.DeleteFunc(s.drains, func(d *dispatch.Hold) bool { return d == s.first })
	for _, d := range slices.Concat([]*dispatch.Hold{s.first}, s.drains[:min(len(s.drains), drainsTold-1)]) {
		gate := d.AsGate()
		gate.Reason = cmp.Or(gate.Reason, fmt.Sprintf("the active collectors that take %s are drained", what))
		who.gates = append(who.gates, gate)
	}
	if more := len(s.drains) + 1 - len(who.gates); more > 0 {
		who.note = fmt.Sprintf("others that would take %s are kept from them by %s, which ListDrains lists", what, counted(int64(more), "more drain"))
	}
	return who
}

// narrow says to what the first collector narrows its fetches, and how many more do. What
// has no room is counted instead of named, so that a reason or note with it, and with what
// is wanted, keeps to MaxMessageLength.
func (c *several) narrow() string {
	const room = 360
	var named, numbers []string
	for _, by := range []struct {
		preposition, what string
		values            []string
	}{{"of", "source", c.first.Sources}, {"in", "queue", c.first.Queues}} {
		if len(by.values) == 0 {
			continue
		}
		text := fmt.Sprintf(" %s %s %q", by.preposition, by.what, by.values[0])
		if more := len(by.values) - 1; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		named = append(named, text)
		numbers = append(numbers, fmt.Sprintf(" %s %s", by.preposition, counted(int64(len(by.values)), by.what)))
	}
	text := strings.Join(named, "")
	if len(c.first.ID)+len(text) > room {
		text = strings.Join(numbers, "")
	}
	text = fmt.Sprintf("%q takes only those%s", c.first.ID, text)
	if c.more > 0 {
		text += fmt.Sprintf("; %d more narrow theirs, too", c.more)
	}
	return text
}
