package operate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
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

// taking is how much a collector takes of what is wanted, as it tells.
type taking uint8

const (
	takesNone   taking = iota
	takesOthers        // of the pool, but of other sources or in other queues
	takesSome          // it narrows the pool by what the want leaves open
	takesAll
)

// takesOf reports how much the collector takes of what is wanted. Of one that tells no
// pools, as one that never beats, it is the pool of fetches that name none.
func takesOf(c *dispatch.CollectorInfo, w wanted) taking {
	switch {
	case len(c.Pools) == 0 && w.pool != dispatch.DefaultPool, len(c.Pools) > 0 && !slices.Contains(c.Pools, w.pool):
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

// takers looks for collectors that are active and take what is wanted. What is not in
// its answer is taken, or not known to be.
func (o *Operator) takers(ctx context.Context, wants []wanted, now time.Time) (map[wanted]takers, error) {
	return o.takersAmong(ctx, collectorsLookedAt, wants, now)
}

// takersAmong is takers that looks at most collectors that are there. Where there are more,
// what none of those takes is cut.
func (o *Operator) takersAmong(ctx context.Context, most int, wants []wanted, now time.Time) (map[wanted]takers, error) {
	book, err := o.d.Holds(ctx)
	if err != nil {
		return nil, err
	}
	unmet := make(map[wanted]*search, len(wants))
	for _, w := range wants {
		unmet[w] = &search{}
	}
	var silent several // of their pools
	all, err := o.eachPresent(ctx, most, now, func(c *dispatch.CollectorInfo) bool {
		holds := book.Collector(c.ID, c.Labels)
		for w, s := range unmet {
			if s.meet(c, w, holds) {
				delete(unmet, w)
			}
		}
		if len(c.Pools) == 0 && len(holds) == 0 && !c.Stopping {
			silent.add(c)
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
			found[w] = takers{cut: true, note: fmt.Sprintf("none of the first %s takes all %s; those after them were not looked at", counted(int64(most), "active collector"), w)}
		}
	}
	return found, nil
}

// takers is who takes what was wanted; the zero value: somebody does.
type takers struct {
	// gates, where nobody does, is why. Of holds on collectors it is holdsTold at most, each of which
	// keeps somebody from it. The first is the one with whose end somebody takes it.
	gates []dispatch.Gate
	// narrowed: of the pool others take tasks of other sources or queues.
	narrowed bool
	// note is, where all take only some, who and which; of more holds than are told, how
	// many; and where cut is set, that there are too many collectors to tell.
	note string
	cut  bool
}

// holdsTold bounds the holds on collectors that are told one by one.
const holdsTold = 5

// search is what was found so far of who takes what is wanted, while nobody takes all.
type search struct {
	// holds are those on collectors who would, each once.
	holds []*dispatch.Hold
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

// meet notes what an active collector with these holds on it takes
// of what is wanted, and reports whether it takes all.
func (s *search) meet(c *dispatch.CollectorInfo, w wanted, holds []*dispatch.Hold) bool {
	much := takesOf(c, w)
	switch {
	case much == takesNone:
	case len(holds) > 0:
		if much != takesOthers {
			s.held(holds)
		}
	case c.Stopping:
	case much == takesOthers:
		s.others.add(c)
	case much == takesSome:
		s.some.add(c)
	default:
		return true
	}
	return false
}

// held notes the holds on a collector, of which the last to end comes first.
func (s *search) held(holds []*dispatch.Hold) {
	if s.first == nil || s.first.End().After(holds[0].End()) {
		s.first = holds[0]
	}
	for _, d := range holds {
		if !slices.Contains(s.holds, d) {
			s.holds = append(s.holds, d)
		}
	}
}

// result is what was found after all collectors were looked at.
func (s *search) result(w wanted, silent *several) takers {
	switch {
	case s.some.first != nil:
		note := fmt.Sprintf("not all %s are taken: %s", w, s.some.narrow())
		if len(s.holds) > 0 {
			note += fmt.Sprintf("; others are kept from them by %s, which ListHolds lists", counted(int64(len(s.holds)), "hold"))
		}
		return takers{note: note}
	case s.first != nil:
		return s.heldGates(w)
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

// heldGates are the holds that were found, where they keep all from what is wanted.
func (s *search) heldGates(w wanted) takers {
	who := takers{narrowed: s.others.first != nil}
	what := w
	if !who.narrowed {
		what = wanted{pool: w.pool}
	}
	s.holds = slices.DeleteFunc(s.holds, func(d *dispatch.Hold) bool { return d == s.first })
	for _, d := range slices.Concat([]*dispatch.Hold{s.first}, s.holds[:min(len(s.holds), holdsTold-1)]) {
		gate := d.Gate()
		gate.Reason = cmp.Or(gate.Reason, fmt.Sprintf("the active collectors that take %s are held", what))
		who.gates = append(who.gates, gate)
	}
	if more := len(s.holds) + 1 - len(who.gates); more > 0 {
		who.note = fmt.Sprintf("others that would take %s are kept from them by %s, which ListHolds lists", what, counted(int64(more), "more hold"))
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

// counted is a number of things.
func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
