package operate

import (
	"context"
	"fmt"
	"slices"
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

// holds are the gates of what is wanted: of the pool, unless collectors take others of it.
func (w wanted) holds(who takers) []Hold {
	of, name := HeldPool, w.pool
	switch {
	case !who.narrowed:
	case w.source != "":
		of, name = HeldSource, w.source
	default:
		of, name = HeldQueue, w.queue
	}
	holds := make([]Hold, len(who.gates))
	for i, gate := range who.gates {
		holds[i] = Hold{Gate: gate, Of: of, Name: name, beside: i > 0}
	}
	return holds
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
		drains := book.All(c.ID, c.Labels)
		for w, s := range unmet {
			if s.meet(c, w, drains) {
				delete(unmet, w)
			}
		}
		if len(c.Pools) == 0 && len(drains) == 0 && !c.Draining {
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
