package redisstore_test

import (
	"encoding/json"
	"maps"
	"math"
	"strconv"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
)

// source is what the shard holds of a source, one that is not known where it has
// nothing: then it counts as deleted (lua/source.lua).
func (a *audit) source(number string) *sourceImage {
	if s := a.sources[number]; s != nil {
		return s
	}
	return &sourceImage{deleted: true}
}

// sums are how many tasks there are by state, of each source and, under "", of the shard; and
// how many of a source are out.
func (a *audit) sums() map[string]map[string]int {
	sums := map[string]map[string]int{"": {}}
	add := func(source, state string, n int) {
		if sums[source] == nil {
			sums[source] = make(map[string]int)
		}
		sums[source][state] += n
		sums[""][state] += n
	}
	for _, l := range a.lanes {
		for _, e := range l.tasks() {
			add(l.source, "ready", count(e.score < laterFrom))
			add(l.source, "scheduled", count(e.score >= laterFrom))
		}
	}
	for kind, state := range map[string]string{"ld": "dead", "lc": "canceled"} {
		for name, set := range a.zsets[kind] {
			source, _, _ := strings.Cut(name, ":")
			add(source, state, len(set))
		}
	}
	for _, t := range a.tasks {
		_, orphan := a.zset("leases")[t.orphan()]
		_, kept := a.zsets["lc"][t.lane()][string(t.ID)]
		add(t.source, "ready", count(orphan))
		add(t.source, "leased", count(t.State == dispatch.StateLeased))
		add(t.source, "done", count(t.State == dispatch.StateDone))
		add(t.source, "canceled", -count(t.State == dispatch.StateDone && kept)) // stands there, and counts as done
		add(t.source, "out", count(!t.Recurring && (t.waits() || t.State == dispatch.StateLeased)))
	}
	return sums
}

// checkSources holds that the counts of each source, and of the shard, are how many tasks
// there are, and that as many one-shot tasks are out, which the source's limit counts; that a
// source has one number; and that nothing is kept for one that is not known.
func (a *audit) checkSources() {
	sums := a.sums()
	a.checkCounts("the shard", a.counts, sums[""])
	for number, s := range a.sources {
		a.checkCounts("source "+number, s.counts, sums[number])
		if s.counts["out"] != sums[number]["out"] {
			a.say("source %s has %d tasks out, records say %d", number, s.counts["out"], sums[number]["out"])
		}
		kept := 0
		for lane := range a.zset("kept") {
			kept += count(strings.HasPrefix(lane, number+":"))
		}
		if s.counts["kept"] != kept {
			a.say("source %s counts %d lanes with settled tasks, there are %d", number, s.counts["kept"], kept)
		}
		if at := a.strings["uid"][s.uid]; at != number {
			a.say("source %s has number %q, its gate is under %s", s.uid, at, number)
		}
		if n, err := strconv.Atoi(number); err != nil || n < 1 || n > a.counts["sources"] {
			a.say("source %s has another number than those up to %d", number, a.counts["sources"])
		}
	}
	if len(a.strings["uid"]) != len(a.sources) {
		a.say("%d sources have numbers, there are %d", len(a.strings["uid"]), len(a.sources))
	}
	for number := range a.strings["counts"] {
		a.checkOfSource("counts", number)
	}
	for _, kind := range []string{"filtered", "named"} {
		for number := range a.hash(kind) {
			a.checkOfSource(kind, number)
		}
	}
	for number := range a.hashes["drop"] {
		a.checkOfSource("drop", number)
	}
}

func (a *audit) checkOfSource(kind, number string) {
	if a.sources[number] == nil {
		a.say("%s is kept of source %s, which is not known", kind, number)
	}
}

// checkCounts leaves out how many are done: of those that are forgotten no set tells.
func (a *audit) checkCounts(of string, counts, sums map[string]int) {
	for _, field := range []string{"scheduled", "ready", "leased", "dead", "canceled"} {
		if counts[field] != sums[field] {
			a.say("%s counts %d %s, there are %d", of, counts[field], field, sums[field])
		}
	}
	if counts["done"] < sums["done"] {
		a.say("%s counts %d done, there are %d", of, counts["done"], sums["done"])
	}
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
		for number, set := range a.zsets[kind] {
			for queue := range set {
				if l := a.lanes[number+":"+queue]; !a.source(number).named || l == nil || len(l.head) == 0 {
					a.say("%s of source %s, named %t, has queue %s, which is not to be listed there", kind, number, a.source(number).named, queue)
				}
			}
		}
	}
	for _, l := range a.lanes {
		if s := a.source(l.source); s.listed && !s.deleted && s.pool == l.pool {
			a.checkNamedLane(l)
		}
	}
}

// checkNamedLane holds a lane of a source that is listed in whole against its queue.
func (a *audit) checkNamedLane(l *laneImage) {
	open, listedOpen := a.zsets["so"][l.source][l.queue]
	wait, listedWait := a.zsets["sw"][l.source][l.queue]
	_, aside := a.zsets["qa"][l.pool+":"+l.queue][l.source]
	switch {
	case l.stands == standsOpen && listedOpen && !listedWait && open == l.score:
	case l.stands == standsOpen && listedWait && !listedOpen && (aside || !math.IsInf(wait, 1)): // put aside, and found again
	case l.stands == standsWait && listedWait && !listedOpen && wait == l.score:
	case l.stands == standsNowhere && !listedOpen && !listedWait:
	default:
		a.say("lane %s stands in its queue %d at %.0f, for its source at open %.0f (%t) wait %.0f (%t), aside %t",
			l.name, l.stands, l.score, open, listedOpen, wait, listedWait, aside)
	}
}
