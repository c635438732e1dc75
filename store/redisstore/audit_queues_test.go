package redisstore_test

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
)

// slotText begins the ids of the tasks of a queue.
func slotText(queue string) string { return strconv.Itoa(dispatch.SlotOf(queue)) }

// checkQueues holds that a queue counts what it has, since by these counts it is full, idle
// and gone; that it is where it is looked for; and that one without a value has nothing
// ("Empty and gone" in dispatch/scheduling.md).
func (a *audit) checkQueues() {
	waiting, leased := make(map[string]int), make(map[string]int)
	for _, t := range a.tasks {
		waiting[t.Queue] += count(t.waits())
		leased[t.Queue] += count(t.State == dispatch.StateLeased)
		if a.queues[t.Queue] == nil && (t.waits() || t.State == dispatch.StateLeased) {
			a.say("queue %s has no value, but task %s", t.Queue, t.ID)
		}
	}
	names := a.zset("queues")
	for name, q := range a.queues {
		if q.inFlight != leased[name] || q.waiting != waiting[name] {
			a.say("queue %s counts %d in flight, %d waiting, there are %d and %d", name, q.inFlight, q.waiting, leased[name], waiting[name])
		}
		if waiting[name] > 0 && strconv.Itoa(q.slot) != slotText(name) {
			a.say("queue %s has slot %d, want %s", name, q.slot, slotText(name))
		}
		if _, ok := names[reversedLabels(name)]; !ok {
			a.say("queue %s is not listed", name)
		}
		a.checkIdle(q)
		for _, p := range q.parts {
			a.checkPart(q, p)
		}
		a.checkMembers(q)
	}
	if len(names) > len(a.queues) {
		a.say("%d queues are listed, there are %d", len(names), len(a.queues))
	}
}

func reversedLabels(name string) string {
	labels := strings.Split(name, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".")
}

// checkIdle holds that a sweep finds the queues that are gone at some time, and no
// others; one that is empty is no longer wide.
func (a *audit) checkIdle(q *queueImage) {
	end := max(q.nextGrant, q.block)
	at, listed := a.zset("idle")[q.name]
	idle := q.inFlight == 0 && q.waiting == 0
	if listed != idle || idle && (at != end || q.wide) {
		a.say("queue %s, %d in flight, %d waiting, wide %t, ends at %.0f, and is listed as idle to %.0f (%t)",
			q.name, q.inFlight, q.waiting, q.wide, end, at, listed)
	}
}

// checkPart holds that a queue stands somewhere in each pool where it has lanes, at the score
// that its value has, and in the band of its first lane.
func (a *audit) checkPart(q *queueImage, p *partImage) {
	if p.opens+p.waits > 0 != (p.stands != standsNowhere) || p.stands == standsOpen && p.opens == 0 || p.stands == standsFull && p.opens == 0 {
		a.say("queue %s has %d open lanes in pool %s, %d wait, and stands %d", q.name, p.opens, p.pool, p.waits, p.stands)
	}
	for kind, stands := range map[string]bool{"po": p.stands == standsOpen, "pw": p.stands == standsWait} {
		if score, found := a.zsets[kind][p.pool][q.name]; found != stands || found && score != p.score {
			a.say("queue %s stands in %s:%s at %.0f (%t), not as its value says: %+v", q.name, kind, p.pool, score, found, *p)
		}
	}
	first := math.Inf(1)
	for _, l := range a.lanesOf(q, p.pool) {
		if l.stands == standsOpen {
			first = min(first, l.score)
		}
	}
	if p.stands == standsOpen && math.Floor(p.score/bandScore) != min(math.Floor(first/bandScore), 9) {
		a.say("queue %s stands in pool %s at %.0f, its first lane at %.0f: the bands differ", q.name, p.pool, p.score, first)
	}
	// Who is put aside is brought back when the queue is placed sooner.
	if aside := a.zsets["qa"][p.pool+":"+q.name]; len(aside) > 0 && (!p.aside || p.stands == standsOpen) {
		a.say("queue %s has %d lanes of pool %s aside (noted %t), stands %d", q.name, len(aside), p.pool, p.aside, p.stands)
	}
}

// lanesOf are the lanes of a queue that stand in a pool.
func (a *audit) lanesOf(q *queueImage, pool string) (lanes []*laneImage) {
	for _, l := range a.lanes {
		if l.queue == q.name && l.pool == pool {
			lanes = append(lanes, l)
		}
	}
	return lanes
}

// checkMembers holds that a wide queue has its lanes in its sets, as many as its value says,
// at the scores that their values have; and a flat one no sets.
func (a *audit) checkMembers(q *queueImage) {
	for _, p := range q.parts {
		want := map[standing]zset{standsOpen: {}, standsWait: {}}
		if q.wide {
			for _, l := range a.lanesOf(q, p.pool) {
				want[l.stands][l.source] = l.score
			}
			if p.opens != len(want[standsOpen]) || p.waits != len(want[standsWait]) {
				a.say("queue %s counts %d open lanes in pool %s, %d that wait, there are %v", q.name, p.opens, p.pool, p.waits, want)
			}
		}
		for kind, stands := range map[string]standing{"qo": standsOpen, "qw": standsWait} {
			if set := a.zsets[kind][p.pool+":"+q.name]; !sameSet(set, want[stands]) {
				a.say("queue %s has in %s of pool %s %v, its lanes say %v", q.name, kind, p.pool, set, want[stands])
			}
		}
	}
	for _, l := range a.lanes {
		if l.queue == q.name && l.pool != "" && q.parts[l.pool] == nil {
			a.say("lane %s stands in pool %s, its queue knows nothing of it", l.name, l.pool)
		}
	}
}

// sameSet compares sets, of which an empty one has no key.
func sameSet(x, y zset) bool {
	if len(x) != len(y) {
		return false
	}
	for member, score := range x {
		if other, ok := y[member]; !ok || score != other {
			return false
		}
	}
	return true
}

// checkSettings holds that a queue keeps the settings and the end of the holds which are filed
// for it, once it has their version.
func (a *audit) checkSettings() {
	version := 0.0
	for _, of := range []string{"rules", "holds"} {
		n, _ := strconv.ParseFloat(a.strings["version"][of], 64) // none is 0
		version += n
	}
	if a.settings.version == version && a.settings.filed != a.hash("settings")[a.settings.name] {
		a.say("the settings that were needed last are %+v, under that name are filed %q", a.settings, a.hash("settings")[a.settings.name])
	}
	for name, q := range a.queues {
		if q.version > version {
			a.say("queue %s has version %.0f of rules and holds, the shard %.0f", name, q.version, version)
		}
		if q.version != version {
			continue
		}
		settings, held := "", 0.0
		for _, n := range slices.Backward(dispatch.SettingsNames(name)) {
			if _, ok := a.hash("settings")[n]; ok {
				settings = n
			}
			if end, ok := a.hash("heldqueues")[n]; ok {
				ms, err := strconv.ParseFloat(end, 64)
				if err != nil {
					a.say("%s is held until %q: %v", n, end, err)
				}
				held = max(held, min(ms, float64(dispatch.Forever.UnixMilli())))
			}
		}
		if q.settings != settings || q.held != held {
			a.say("queue %s has the settings of %q and is held until %.0f, want %q, %.0f", name, q.settings, q.held, settings, held)
		}
	}
}

// checkPools holds that no set of queues or lanes is of a queue that knows nothing of it, that
// each pool is listed (Stats goes by the list), and that as many queues as are counted stand
// in neither set of a pool.
func (a *audit) checkPools() {
	for _, kind := range []string{"po", "pw"} {
		for pool, set := range a.zsets[kind] {
			for name := range set {
				a.checkKnown(kind, pool, name)
			}
		}
	}
	for _, kind := range []string{"qo", "qw", "qa"} {
		for rest := range a.zsets[kind] {
			pool, name, _ := strings.Cut(rest, ":")
			a.checkKnown(kind, pool, name)
		}
	}
	closed := make(map[string]int)
	kinds := map[standing]string{standsHeld: "held:", standsFull: "full:", standsLater: "later:"}
	for _, q := range a.queues {
		for pool, p := range q.parts {
			if kind, ok := kinds[p.stands]; ok {
				closed[kind+pool]++
			}
			if _, ok := a.zset("pools")[pool]; !ok && p.stands != standsNowhere {
				a.say("pool %s is not listed", pool)
			}
		}
	}
	for field, text := range a.hash("closed") {
		if n, err := strconv.Atoi(text); err != nil || n != closed[field] {
			a.say("closed queues %s are counted as %s, there are %d", field, text, closed[field])
		}
		delete(closed, field)
	}
	for field, n := range closed {
		a.say("%d closed queues %s are not counted", n, field)
	}
}

func (a *audit) checkKnown(kind, pool, name string) {
	if q := a.queues[name]; q == nil || q.parts[pool] == nil {
		a.say("%s of pool %s has queue %s, which knows nothing of it", kind, pool, name)
	}
}
