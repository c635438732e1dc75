package redisstore_test

import (
	"encoding/json"
	"maps"
	"math"

	"github.com/waggle-crawl/waggle/dispatch"
)

// source is what the shard holds of a source, one that is not known where it has
// nothing: then it counts as deleted (lua/prelude/lane.lua).
func (a *audit) source(uid string) *sourceImage {
	if s := a.sources[uid]; s != nil {
		return s
	}
	return &sourceImage{uid: uid, deleted: true}
}

// checkSources holds that the counts by state of each source, and of the shard, are
// how many tasks stand in the sets of their lanes, and that as many one-shot tasks are
// out, which the source's limit counts, as records say.
func (a *audit) checkSources() {
	sums, out := make(map[string]map[string]int), make(map[string]int)
	for _, l := range a.lanes {
		for _, of := range []string{l.uid, ""} {
			if sums[of] == nil {
				sums[of] = make(map[string]int)
			}
			sums[of]["ready"] += len(l.ready) + l.count(placeOrphan)
			sums[of]["scheduled"] += l.count(placeLater)
			sums[of]["leased"] += l.count(placeLeased)
			sums[of]["dead"] += len(l.dead)
			sums[of]["canceled"] += len(l.canceled) - a.keptDone(l)
		}
	}
	for _, t := range a.tasks {
		if l := a.lanes[t.lane]; l != nil && !t.Recurring && (t.waits() || t.State == dispatch.StateLeased) {
			out[l.uid]++
		}
	}
	for uid, s := range a.sources {
		a.checkCounts("source "+uid, s.counts, sums[uid])
		if s.counts["out"] != out[uid] {
			a.say("source %s has %d tasks out, records say %d", uid, s.counts["out"], out[uid])
		}
	}
	counts, err := unpackCounts(a.hashes["shard"][""]["counts"], "scheduled", "ready", "leased", "done", "dead", "canceled",
		"granted", "settled", "expired", "orphaned", "dropped", "lane")
	if err != nil {
		a.say("the shard: %v", err)
	}
	a.checkCounts("the shard", counts, sums[""])
}

func (a *audit) checkCounts(of string, counts, sums map[string]int) {
	for _, field := range []string{"scheduled", "ready", "leased", "dead", "canceled"} {
		if counts[field] != sums[field] {
			a.say("%s counts %d %s, its lanes have %d", of, counts[field], field, sums[field])
		}
	}
}

// keptDone is how many DONE tasks are kept with their source: they stand among the
// canceled ones, but are not counted as such.
func (a *audit) keptDone(l *laneImage) int {
	n := 0
	for suffix, end := range l.canceled {
		t := a.tasks[dispatch.TaskID(l.slot+"-"+suffix)]
		if math.IsInf(end, 1) && t != nil && t.State == dispatch.StateDone {
			n++
		}
	}
	return n
}

// checkKept holds that the sources of a home shard are listed, and those among them with a
// version that is pending, and with holds.
func (a *audit) checkKept() {
	lists := map[string]func(*dispatch.Source) bool{
		"sources":     func(*dispatch.Source) bool { return true },
		"pending":     func(s *dispatch.Source) bool { return s.Applied < s.Version },
		"heldsources": func(s *dispatch.Source) bool { return len(s.Holds) > 0 },
	}
	for list, of := range lists {
		want := make(zset)
		for id, raw := range a.strings["source"] {
			var src dispatch.Source
			if err := json.Unmarshal([]byte(raw), &src); err != nil {
				a.say("source %s is kept as %q: %v", id, raw, err)
			}
			if of(&src) {
				want[id] = 0
			}
		}
		if !maps.Equal(a.zset(list), want) {
			a.say("%s lists %v, want %v", list, a.zset(list), want)
		}
	}
}

// checkNamed holds to "Named sources" of dispatch/scheduling.md: each lane of such a
// source that stands in its queue stands in one of source open and source wait, as it
// does there or put aside; and other sources have neither. A lane whose source was
// moved to another pool may still be where it was: it is placed when it is met.
func (a *audit) checkNamed() {
	for _, kind := range []string{"so", "sw"} {
		for uid, set := range a.zsets[kind] {
			s := a.source(uid)
			for number := range set {
				l := a.lanes[number]
				if !s.named || l == nil || l.uid != uid {
					a.say("%s of source %s, named %t, has lane %s, which is not to be listed there", kind, uid, s.named, number)
				}
			}
		}
	}
	for number, l := range a.lanes {
		if s := a.source(l.uid); s.listed && !s.deleted && s.pool == l.pool {
			a.checkListed(number, l)
		}
	}
}

// checkListed holds a lane of a source that is listed in whole against its queue.
func (a *audit) checkListed(number string, l *laneImage) {
	inOpen, isOpen := a.standing(queueOpen, l)
	inWait, isWait := a.standing(queueWait, l)
	open, listedOpen := a.zsets["so"][l.uid][number]
	wait, listedWait := a.zsets["sw"][l.uid][number]
	_, aside := a.zsets["qa"][l.pool+":"+l.queue][number]
	switch {
	case isOpen && listedOpen && !listedWait && open == inOpen:
	case isOpen && listedWait && !listedOpen && (aside || !math.IsInf(wait, 1)): // put aside, and found again
	case isWait && listedWait && !listedOpen && wait == inWait:
	case !isOpen && !isWait && !listedOpen && !listedWait:
	default:
		a.say("lane %s stands in its queue at open %.0f (%t) wait %.0f (%t), for its source at open %.0f (%t) wait %.0f (%t), aside %t",
			number, inOpen, isOpen, inWait, isWait, open, listedOpen, wait, listedWait, aside)
	}
}
