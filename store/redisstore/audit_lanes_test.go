package redisstore_test

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Scores, as dispatch/scheduling.md and lua/prelude/lane.lua have them.
const (
	bandScore  = 1 << 44 // of open sets and of lane ready, one rank or priority
	laterFrom  = 1 << 49 // of a lane's set, behind lane ready, lane later
	leasedFrom = 1 << 50 // there, leases by deadline
	orphanFrom = 1 << 51 // there, tasks under a lock of nobody
)

// place is where a task stands in its lane.
type place string

const (
	nowhere       place = "nowhere"
	placeReady    place = "ready"
	placeLater    place = "later"
	placeLeased   place = "leased"
	placeOrphan   place = "orphan"
	placeDead     place = "dead"
	placeCanceled place = "canceled"
)

// places are all in which a task of the lane stands: there may be one.
func (l *laneImage) places(suffix string) []place {
	var all []place
	if _, ok := l.ready[suffix]; ok {
		all = append(all, placeReady)
	}
	if score, ok := l.later[suffix]; ok {
		all = append(all, placeOfLater(score))
	}
	if _, ok := l.dead[suffix]; ok {
		all = append(all, placeDead)
	}
	if _, ok := l.canceled[suffix]; ok {
		all = append(all, placeCanceled)
	}
	return all
}

// splitLane parts the set of a lane: what is ready, and what is not, of that lane later
// with the scores that dispatch/scheduling.md gives it.
func splitLane(set zset) (ready, later zset) {
	ready, later = make(zset), make(zset)
	for suffix, score := range set {
		switch {
		case score < laterFrom:
			ready[suffix] = score
		case score < leasedFrom:
			later[suffix] = score - laterFrom
		default:
			later[suffix] = score
		}
	}
	return ready, later
}

// placeOfLater is what the score of a task that is not ready means.
func placeOfLater(score float64) place {
	switch {
	case score >= orphanFrom:
		return placeOrphan
	case score >= leasedFrom:
		return placeLeased
	}
	return placeLater
}

// count is how many of its tasks that are not ready stand in a place.
func (l *laneImage) count(p place) int {
	n := 0
	for _, score := range l.later {
		if placeOfLater(score) == p {
			n++
		}
	}
	return n
}

// waiting is how many of its tasks wait: that can be picked now or later.
func (l *laneImage) waiting() int { return len(l.ready) + l.count(placeLater) }

// front is the rank of the first task of lane ready, and the score of the first of lane
// later, +Inf where there is none.
func (l *laneImage) front() (rank, due float64) {
	rank, due = math.Inf(1), math.Inf(1)
	for _, score := range l.ready {
		rank = min(rank, math.Floor(score/bandScore))
	}
	for _, score := range l.later {
		if placeOfLater(score) == placeLater {
			due = min(due, score)
		}
	}
	return rank, due
}

// firstLease is the first of its leases by their scores, +Inf where it has none.
func (l *laneImage) firstLease() float64 {
	first := math.Inf(1)
	for _, score := range l.later {
		if placeOfLater(score) == placeLeased {
			first = min(first, score-leasedFrom)
		}
	}
	return first
}

// splitID gives the part of a task id that its lane knows, and the rest, which all
// tasks of the lane have in common.
func splitID(id dispatch.TaskID) (slot, suffix string) {
	slot, suffix, _ = strings.Cut(string(id), "-")
	return slot, suffix
}

// checkTasks holds that every task stands once in the lane that its record names,
// where its state says; DONE ones that are kept for a time stand nowhere.
func (a *audit) checkTasks() {
	allowed := map[dispatch.State][]place{
		dispatch.StateScheduled: {placeReady, placeLater, placeOrphan},
		dispatch.StateReady:     {placeReady, placeLater, placeOrphan},
		dispatch.StateLeased:    {placeLeased},
		dispatch.StateDone:      {nowhere, placeCanceled},
		dispatch.StateDead:      {placeDead},
		dispatch.StateCanceled:  {placeCanceled},
	}
	for id, t := range a.tasks {
		l := a.lanes[t.lane]
		if l == nil {
			a.say("task %s is of lane %s, which has no record", id, t.lane)
			continue
		}
		slot, suffix := splitID(id)
		if slot != l.slot {
			a.say("task %s is of lane %s, which has slot %s", id, t.lane, l.slot)
		}
		places := l.places(suffix)
		if len(places) == 0 {
			places = []place{nowhere}
		}
		if len(places) > 1 || !slices.Contains(allowed[t.State], places[0]) {
			a.say("task %s is %v, but stands %v in lane %s", id, t.State, places, t.lane)
		}
		a.checkScore(l, suffix, t)
	}
}

// checkScore holds that a task has the score that "The sets" of
// dispatch/scheduling.md gives it, and a lease none after its deadline, or no sweep
// would find it in time (P5).
func (a *audit) checkScore(l *laneImage, suffix string, t *taskImage) {
	rank := (9 - t.Priority) * 2
	if !t.Recurring {
		rank++
	}
	due := t.Due.UnixMilli()
	if score, ok := l.ready[suffix]; ok && score != float64(int64(rank)*bandScore+due) {
		a.say("task %s, rank %d, due %d, has score %.0f in lane ready", t.ID, rank, due, score)
	}
	score, ok := l.later[suffix]
	switch {
	case !ok:
	case t.State == dispatch.StateLeased && score > float64(leasedFrom+t.Lease.Deadline.UnixMilli()):
		a.say("task %s, leased to %d, has score %.0f", t.ID, t.Lease.Deadline.UnixMilli(), score-leasedFrom)
	case placeOfLater(score) == placeLater && score != float64(due*32+int64(rank)):
		a.say("task %s, rank %d, due %d, has score %.0f in lane later", t.ID, rank, due, score)
	}
}

// checkLanes holds that lanes name no task without a record, and are where their
// source and queue look for them.
func (a *audit) checkLanes() {
	for number, l := range a.lanes {
		for _, set := range []zset{l.ready, l.later} {
			for suffix := range set {
				if t := a.tasks[dispatch.TaskID(l.slot+"-"+suffix)]; t == nil || t.lane != number {
					a.say("lane %s has task %s, which has no record there", number, suffix)
				}
			}
		}
		if len(l.dead)+len(l.canceled) > 0 && !l.settled {
			a.say("lane %s has settled tasks, and is not marked as such", number)
		}
		if l.count(placeOrphan) > 0 && !l.orphaned {
			a.say("lane %s has orphans, and is not marked as such", number)
		}
		if rank, due := l.front(); rank != l.rank || due != l.due {
			a.say("lane %s begins with rank %.0f, later %.0f, its record says %.0f and %.0f", number, rank, due, l.rank, l.due)
		}
		a.checkLaneListed(l)
	}
	for _, kind := range []string{"lt", "ld", "lc"} {
		for number := range a.zsets[kind] {
			if a.lanes[number] == nil {
				a.say("set %s is of lane %s, which has no record", kind, number)
			}
		}
	}
}

// checkLaneListed holds that a lane is listed by its source and its queue alike, for as
// long as the source lives.
func (a *audit) checkLaneListed(l *laneImage) {
	ofSource, bySource := a.zsets["lanes"][l.uid][l.queue]
	_, byQueue := a.zsets["ql"][l.queue][l.number]
	bySource = bySource && strconv.FormatFloat(ofSource, 'f', 0, 64) == l.number
	if bySource != byQueue || !bySource && !a.source(l.uid).deleted {
		a.say("lane %s is listed by its source %t, by its queue %t", l.number, bySource, byQueue)
	}
}

// checkForget holds that what is remembered for a time is forgotten: a sweep finds the
// sets of settled tasks by the first of them, and nothing that a task has besides its
// record outlives that.
func (a *audit) checkForget() {
	forget := a.zset("forget")
	for number, l := range a.lanes {
		for kind, set := range map[string]zset{"ld": l.dead, "lc": l.canceled} {
			name := kind + ":" + number
			for suffix, end := range set {
				if at, ok := forget[a.prefix+name]; !math.IsInf(end, 1) && (!ok || at > end) {
					a.say("task %s of %s ends at %.0f, the set is looked at at %.0f (%t)", suffix, name, end, at, ok)
				}
			}
		}
	}
	for _, kind := range []string{"d", "h"} {
		for id := range a.strings[kind] {
			if a.tasks[dispatch.TaskID(id)] == nil {
				a.say("%s:%s is of a task without a record", kind, id)
			}
		}
	}
}
