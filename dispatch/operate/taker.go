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

// wanted is a set of tasks that a collector is searched for: those of a pool, and of a source and
// in a queue if these are set.
type wanted struct{ pool, source, queue string }

// wantedOf is the set that a task of a source belongs to; of any of its tasks if t is nil.
func wantedOf(source *dispatch.Source, t *dispatch.Task) wanted {
	w := wanted{pool: source.Spec.Pool, source: source.ID}
	if t != nil {
		w.queue = t.Queue
	}
	return w
}

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

// holds are the gates of what is wanted: of its pool, unless collectors take other tasks of that.
func (w wanted) holds(who takers) []Held {
	of, name := HeldPool, w.pool
	switch {
	case !who.narrowed:
	case w.source != "":
		of, name = HeldSource, w.source
	default:
		of, name = HeldQueue, w.queue
	}
	holds := make([]Held, len(who.gates))
	for i, gate := range who.gates {
		holds[i] = Held{Gate: gate, Of: of, Name: name, beside: i > 0}
	}
	return holds
}

// taking is how much of what is wanted a collector takes.
type taking uint8

const (
	takesNone   taking = iota
	takesOthers        // of the pool, but of other sources or in other queues
	takesSome          // only some sources or queues, where no particular one is wanted
	takesAll
)

// takesOf compares what a collector reports with what is wanted. A collector that reports no pools
// takes tasks of the default pool.
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

// leavesOut reports whether a list that narrows fetches leaves out the wanted name.
func leavesOut(narrow []string, name string) bool {
	return len(narrow) > 0 && name != "" && !slices.Contains(narrow, name)
}

// takers are the collectors that take what is wanted. The zero value: there is one.
type takers struct {
	// gates are why there is none. Of holds on collectors these are at most holdsListed; some
	// collector goes on when the first of them ends.
	gates []dispatch.Gate
	// narrowed: others take tasks of the pool, of other sources or queues.
	narrowed bool
	note     string // what gates leave out
	// cut: there are too many collectors to find out.
	cut bool
}

// holdsListed bounds the holds on collectors that are gates.
const holdsListed = 5

// takers searches the first most active collectors for some that take what is wanted. Its result
// has no entry for what one of them takes.
func (s *snapshot) takers(ctx context.Context, most int, wants []wanted) (map[wanted]takers, error) {
	unmet := make(map[wanted]*search, len(wants))
	for _, w := range wants {
		unmet[w] = &search{}
	}
	all, err := s.eachPresent(ctx, most, s.now, func(c *dispatch.CollectorInfo) bool {
		holds := s.book.Collector(c.ID, c.Labels)
		for w, one := range unmet {
			if one.meet(c, w, holds) {
				delete(unmet, w)
			}
		}
		return len(unmet) > 0
	})
	if err != nil {
		return nil, err
	}
	found := make(map[wanted]takers, len(unmet))
	for w, one := range unmet {
		if found[w] = one.result(w); !all {
			note := fmt.Sprintf("none of the first %d active collectors takes all %s; the others were not examined", most, w)
			found[w] = takers{cut: true, note: note}
		}
	}
	return found, nil
}

// search is the state of a search while no collector takes all that is wanted.
type search struct {
	// holds are those on collectors that would take it, each once.
	holds []*dispatch.Hold
	// first is the hold whose end lets the first of these collectors go on.
	first        *dispatch.Hold
	some, others []*dispatch.CollectorInfo // narrowed ones
	stuck        []*dispatch.CollectorInfo // that would take it
}

// meet examines an active collector and the holds on it. It reports whether the collector takes all
// that is wanted.
func (s *search) meet(c *dispatch.CollectorInfo, w wanted, holds []*dispatch.Hold) bool {
	much := takesOf(c, w)
	switch {
	case much == takesNone:
	case len(holds) > 0:
		if much != takesOthers {
			s.addHolds(holds)
		}
	case c.Stopping:
	case c.Stuck():
		if much != takesOthers {
			s.stuck = append(s.stuck, c)
		}
	case much == takesOthers:
		s.others = append(s.others, c)
	case much == takesSome:
		s.some = append(s.some, c)
	default:
		return true
	}
	return false
}

// addHolds adds the holds on one collector. The last of them to end comes first.
func (s *search) addHolds(holds []*dispatch.Hold) {
	if s.first == nil || s.first.End().After(holds[0].End()) {
		s.first = holds[0]
	}
	for _, h := range holds {
		if !slices.Contains(s.holds, h) {
			s.holds = append(s.holds, h)
		}
	}
}

// result is the outcome after all collectors were examined.
func (s *search) result(w wanted) takers {
	who := takers{narrowed: len(s.others) > 0}
	what := w
	if !who.narrowed {
		what = wanted{pool: w.pool}
	}
	switch {
	case len(s.some) > 0:
		return takers{note: fmt.Sprintf("not all %s are taken: %s", w, narrows(s.some))}
	case s.first != nil:
		first := slices.Index(s.holds, s.first)
		s.holds[0], s.holds[first] = s.holds[first], s.holds[0]
		for _, h := range s.holds[:min(len(s.holds), holdsListed)] {
			gate := h.Gate()
			gate.Reason = cmp.Or(gate.Reason, fmt.Sprintf("the active collectors that take %s are held", what))
			who.gates = append(who.gates, gate)
		}
		if more := len(s.holds) - holdsListed; more > 0 {
			who.note = counted(int64(more), "more hold") + " on other collectors; ListHolds lists them"
		}
		return who
	}
	var why []string
	if who.narrowed {
		why = append(why, narrows(s.others))
	}
	if len(s.stuck) > 0 {
		why = append(why, stuck(s.stuck))
	}
	reason := fmt.Sprintf("no active collector takes %s", what)
	if len(why) > 0 {
		reason += ": " + strings.Join(why, "; ")
	}
	who.gates = []dispatch.Gate{{Kind: dispatch.GateNoCollector, Reason: reason}}
	return who
}

// narrows names the first of some collectors that narrow their fetches, and counts the others.
func narrows(collectors []*dispatch.CollectorInfo) string {
	c := collectors[0]
	text := fmt.Sprintf("%q takes only tasks", c.ID)
	if n := len(c.Sources); n > 0 {
		text += " of " + counted(int64(n), "source")
	}
	if n := len(c.Queues); n > 0 {
		text += " in " + counted(int64(n), "queue")
	}
	if more := len(collectors) - 1; more > 0 {
		text += ", and " + counted(int64(more), "more collector") + " only some"
	}
	return text
}

// stuck names the first of some collectors whose slots are all stuck, and counts the others.
func stuck(collectors []*dispatch.CollectorInfo) string {
	c := collectors[0]
	text := fmt.Sprintf("%q has %s", c.ID, stuckSlots(c))
	switch more := len(collectors) - 1; more {
	case 0:
	case 1:
		text += ", and 1 more collector is stuck"
	default:
		text += fmt.Sprintf(", and %d more collectors are stuck", more)
	}
	return text
}

// problem is what a collector reports of itself, and how long that had lasted then.
func problem(c *dispatch.CollectorInfo) string {
	return fmt.Sprintf("for %v: %s", c.ProblemDuration.Truncate(time.Second), c.Problem)
}

// stuckSlots counts the stuck slots of a collector, and all of its slots.
func stuckSlots(c *dispatch.CollectorInfo) string {
	return fmt.Sprintf("%s of %d", counted(int64(c.StuckSlots), "stuck slot"), c.Slots)
}
