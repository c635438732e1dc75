package redisstore_test

import (
	"math"
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Scores, as dispatch/scheduling.md and lua/lane.lua have them; and how many tasks the head
// of a lane has at most.
const (
	bandScore = 1 << 44 // of open sets and of ready tasks, one band or rank
	laterFrom = 1 << 49 // of tasks that are due later
	headSize  = 4
)

// place is where a task stands.
type place string

const (
	placeReady    place = "ready"
	placeLater    place = "later"
	placeLeased   place = "leased"
	placeOrphan   place = "orphan"
	placeDead     place = "dead"
	placeCanceled place = "canceled"
)

// scores are those that a task has in its lane: there may be one.
func (l *laneImage) scores(suffix string) []float64 {
	var all []float64
	for _, e := range l.head {
		if e.suffix == suffix {
			all = append(all, e.score)
		}
	}
	if score, ok := l.set[suffix]; ok {
		all = append(all, score)
	}
	return all
}

// tasks are all of the lane.
func (l *laneImage) tasks() []entry {
	all := slices.Clone(l.head)
	for suffix, score := range l.set {
		all = append(all, entry{score, suffix})
	}
	return all
}

// splitID gives the part of a task id that its lane knows, and the rest, which all
// tasks of the queue have in common.
func splitID(id dispatch.TaskID) (slot, suffix string) {
	slot, suffix, _ = strings.Cut(string(id), "-")
	return slot, suffix
}

// member is what the lease index has of a leased task, and orphan what it has of one that waits
// under a lock of nobody.
func (t *taskImage) member() string { return string(t.ID) + ":" + t.lane() }
func (t *taskImage) orphan() string { return "o" + t.member() }

// checkKeys holds that a shard has no other keys than those that are checked.
func (a *audit) checkKeys() {
	for _, name := range a.unknown {
		a.say("key %s is of no known kind", name)
	}
	for _, kind := range []string{"d", "h"} {
		for id := range a.hashes[kind] {
			if a.tasks[dispatch.TaskID(id)] == nil {
				a.say("%s:%s is of a task without a record", kind, id)
			}
		}
		for id := range a.strings[kind] {
			if a.tasks[dispatch.TaskID(id)] == nil {
				a.say("%s:%s is of a task without a record", kind, id)
			}
		}
	}
}

// checkTasks holds that every task stands once, where its state says: in its lane, in the
// lease index (as leased, or as an orphan), or among the settled ones; DONE ones that are kept
// for a time stand nowhere.
func (a *audit) checkTasks() {
	waiting, settled := []place{placeReady, placeLater, placeOrphan}, []place{placeCanceled}
	allowed := map[dispatch.State][]place{
		dispatch.StateScheduled: waiting, dispatch.StateReady: waiting, dispatch.StateLeased: {placeLeased},
		dispatch.StateDone: settled, dispatch.StateDead: {placeDead}, dispatch.StateCanceled: settled,
	}
	for id, t := range a.tasks {
		slot, suffix := splitID(id)
		if slot != slotText(t.Queue) {
			a.say("task %s of queue %s has not its slot, %s", id, t.Queue, slotText(t.Queue))
		}
		places := a.places(t, suffix)
		if len(places) == 0 && t.State == dispatch.StateDone {
			continue
		}
		if len(places) != 1 || !slices.Contains(allowed[t.State], places[0]) {
			a.say("task %s of lane %s is %v, and stands %q", id, t.lane(), t.State, places)
		}
	}
}

// places are all in which a task stands, with a score in its lane that is not the one which
// "The sets" of dispatch/scheduling.md gives it.
func (a *audit) places(t *taskImage, suffix string) (all []place) {
	ready, later := int64(t.rank())*bandScore+t.Due.UnixMilli(), laterFrom+t.Due.UnixMilli()*32+int64(t.rank())
	if l := a.lanes[t.lane()]; l != nil {
		for _, score := range l.scores(suffix) {
			switch score {
			case float64(ready):
				all = append(all, placeReady)
			case float64(later):
				all = append(all, placeLater)
			default:
				a.say("task %s, rank %d, due %d, has score %.0f", t.ID, t.rank(), t.Due.UnixMilli(), score)
			}
		}
	}
	for set, p := range map[string]place{"ld": placeDead, "lc": placeCanceled} {
		if _, ok := a.zsets[set][t.lane()][string(t.ID)]; ok {
			all = append(all, p)
		}
	}
	for member, p := range map[string]place{t.member(): placeLeased, t.orphan(): placeOrphan} {
		if _, ok := a.zset("leases")[member]; ok {
			all = append(all, p)
		}
	}
	return all
}

// checkLanes holds that lanes have tasks with records alone, and that a lane is what its value
// says: the head has its first tasks in their order, and the set the others.
func (a *audit) checkLanes() {
	for name, l := range a.lanes {
		q := a.queues[l.queue]
		switch _, own := a.strings["l"][name]; {
		case q == nil || own != q.wide:
			a.say("lane %s has a value of its own (%t), its queue is %+v", name, own, q)
		case own && len(l.head) == 0:
			a.say("lane %s of a wide queue is empty", name)
		}
		for _, e := range l.tasks() {
			if t := a.tasks[dispatch.TaskID(slotText(l.queue)+"-"+e.suffix)]; t == nil || t.lane() != name {
				a.say("lane %s has task %s, which has no record there", name, e.suffix)
			}
		}
		a.checkHead(l)
		a.checkStanding(l)
	}
	for name := range a.zsets["s"] {
		if a.lanes[name] == nil {
			a.say("tasks stand behind the head of lane %s, which has no value", name)
		}
	}
}

func (a *audit) checkHead(l *laneImage) {
	order := func(x, y entry) int {
		if x.score != y.score {
			return int(math.Copysign(1, x.score-y.score))
		}
		return strings.Compare(x.suffix, y.suffix)
	}
	if len(l.head) > headSize || len(l.head) == 0 && len(l.set) > 0 || !slices.IsSortedFunc(l.head, order) {
		a.say("lane %s has %d tasks behind the head %+v", l.name, len(l.set), l.head)
	}
	later := math.Inf(1)
	for suffix, score := range l.set {
		if len(l.head) > 0 && order(l.head[len(l.head)-1], entry{score, suffix}) > 0 {
			a.say("lane %s has task %s (%.0f) behind the head %+v", l.name, suffix, score, l.head)
		}
		if score >= laterFrom {
			later = min(later, score-laterFrom)
		}
	}
	if math.IsInf(later, 1) {
		later = 0
	}
	if l.more != float64(len(l.set)) || l.later != later {
		a.say("lane %s has %d tasks behind its head, the first that is due later %.0f; its value says %.0f, %.0f",
			l.name, len(l.set), later, l.more, l.later)
	}
}

// checkStanding holds that a lane with tasks stands in queue open or queue wait, or nobody
// would find it (P9), by its first task; the lanes of a deleted source stand nowhere once they
// are placed.
func (a *audit) checkStanding(l *laneImage) {
	s := a.source(l.source)
	switch {
	case len(l.head) == 0:
		if l.stands != standsNowhere || l.pool != "" {
			a.say("lane %s is empty, and stands in its queue: %+v", l.name, *l)
		}
		return
	case l.stands == standsNowhere || l.pool == "":
		if !s.deleted || l.pool != "" || l.stands != standsNowhere {
			a.say("lane %s stands nowhere, or in no pool: %+v", l.name, *l)
		}
		return
	}
	first, rank := l.head[0].score, int(l.head[0].score/bandScore)
	ready := first < laterFrom
	// The priority of its source may be another since it was placed.
	switch band := int(l.score / bandScore); {
	case l.stands == standsOpen && (!ready || band < bandOf(9, rank) || band > bandOf(0, rank)):
		a.say("lane %s is open with band %d, its first task has score %.0f", l.name, band, first)
	case l.stands == standsWait && !ready && l.score < math.Floor((first-laterFrom)/32):
		a.say("lane %s waits until %.0f, its first task has score %.0f", l.name, l.score, first)
	}
}

// bandOf is the band of a lane whose source has that priority, and whose first task that rank.
func bandOf(priority, rank int) int {
	if rank == 20 {
		return 10
	}
	return 9 - min(max(priority+4-rank/2, 0), 9)
}

// checkSettled holds that what has tasks is listed, and that settled ones are forgotten: a
// sweep finds the sets of settled tasks by the first of them.
func (a *audit) checkSettled() {
	listed := func(name string) bool {
		source, queue, _ := strings.Cut(name, ":")
		_, ok := a.zsets["lanes"][source][queue]
		return ok
	}
	for name, l := range a.lanes {
		if len(l.head) > 0 && !listed(name) {
			a.say("lane %s is not listed", name)
		}
	}
	for _, kind := range []string{"ld", "lc"} {
		for name, set := range a.zsets[kind] {
			if _, kept := a.zset("kept")[name]; !kept || !listed(name) {
				a.say("lane %s with settled tasks is kept: %t, is listed: %t", name, kept, listed(name))
			}
			for id, end := range set {
				at, ok := a.zset("forget")[a.prefix+kind+":"+name]
				if !math.IsInf(end, 1) && (!ok || at > end) {
					a.say("task %s of %s:%s ends at %.0f, the set is looked at at %.0f (%t)", id, kind, name, end, at, ok)
				}
				if t := a.tasks[dispatch.TaskID(id)]; math.IsInf(end, 1) && (t == nil || t.lane() != name) {
					a.say("%s:%s has task %s for good, which has no record there", kind, name, id)
				}
			}
		}
	}
	a.checkListed()
}

// checkListed holds that lists of lanes have no others than may have tasks.
func (a *audit) checkListed() {
	for source, queues := range a.zsets["lanes"] {
		for queue := range queues {
			name := source + ":" + queue
			if _, kept := a.zset("kept")[name]; !kept && a.lanes[name] == nil {
				a.say("lane %s is listed, and has no tasks", name)
			}
		}
	}
	ends := 0
	for queue, sources := range a.zsets["ends"] {
		for source := range sources {
			if _, kept := a.zset("kept")[source+":"+queue]; kept {
				ends++
			} else if !a.source(source).deleted { // or what waits of it is listed there
				a.say("queue %s lists source %s for its settled tasks, which has none", queue, source)
			}
		}
	}
	if ends != len(a.zset("kept")) {
		a.say("%d lanes have settled tasks, queues list %d", len(a.zset("kept")), ends)
	}
	for name := range a.zset("kept") {
		if len(a.zsets["ld"][name])+len(a.zsets["lc"][name]) == 0 {
			a.say("lane %s is kept for settled tasks, and has none", name)
		}
	}
}
