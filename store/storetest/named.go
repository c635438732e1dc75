package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func namedCases() []testCase {
	return []testCase{
		{"Source_OfManyQueues_P9", namedMany},
		{"Source_OfManyHeldQueues_P9", namedHeld},
		{"Source_EachQueueHasTurns", namedTurns},
		{"Source_HighPriorityFirst", namedPriority},
		{"Sources_TakeTurns", namedTwo},
		{"Source_LanesOfOneQueueComeBack_P9", namedAside},
		{"Source_MovedAndHeld", namedMoved},
		{"Source_MovedThereAndBack_P9", namedMovedBack},
		{"Source_NamedLongAgo", namedLongAgo},
		{"Again_IsTheEndOfAGate", namedAgain},
		{"Again_OfAPoolWithoutTasks", namedNothing},
		{"InAQueue_BehindManyThatAreDue_P9", namedBehind},
		{"Hint_WhenAHeldQueueIsFree_P9", namedHint},
		{"Hint_WhenALaneOfAnOpenQueueIs_P9", namedHintBeside},
		{"Hint_WhenAHeldQueueIsFreeSooner_P9", namedHintSooner},
	}
}

// naming narrows a want to sources.
func naming(sources ...dispatch.SourceGate) func(*dispatch.Want) {
	return func(w *dispatch.Want) {
		w.SourceUIDs = nil
		for _, g := range sources {
			w.SourceUIDs = append(w.SourceUIDs, g.UID)
		}
	}
}

// takeFrom claims up to limit tasks of the sources, as often as there is more, and
// answers them with the last reply.
func (e *env) takeFrom(limit int, sources ...dispatch.SourceGate) ([]dispatch.Grant, dispatch.ClaimReply) {
	e.Helper()
	var grants []dispatch.Grant
	for range 100 {
		reply := e.claim(e.want(limit-len(grants), naming(sources...)))
		grants = append(grants, reply.Grants[0]...)
		if len(grants) == limit || !reply.More {
			return grants, reply
		}
	}
	e.Fatalf("claims for %d sources do not end", len(sources))
	return nil, dispatch.ClaimReply{}
}

func dueIn(d time.Duration) func(*dispatch.Submission) {
	return func(s *dispatch.Submission) { s.Due = start.Add(d) }
}

// namedMany has work in the last of many queues alone. What was listed once is found
// by the next claim, wherever it is.
func namedMany(e *env) {
	g := source("a")
	names := e.queues(1200)
	last := names[len(names)-1]
	items := make([]dispatch.Submission, 0, len(names))
	for _, name := range names[:len(names)-1] {
		items = append(items, item(g, name, "later", dueIn(time.Hour)))
	}
	e.create(g, append(items, item(g, last, "last"))...)
	grants, _ := e.takeFrom(2, g)
	is(e, "granted", keys(grants), []string{"last"})
	for _, i := range []int{700, 0, 1100} {
		e.create(g, item(g, names[i], "now"))
		is(e, "queue", e.takeTask(naming(g)).Queue, names[i])
		reply := e.takeNone(naming(g))
		is(e, "more", reply.More, false)
		is(e, "again", reply.Again, start.Add(time.Hour))
	}
}

// namedHeld has work in many queues that a delay holds. They are looked at once, and
// when it is over all give what they have.
func namedHeld(e *env) {
	e.rule("*", delayed(time.Hour, 10))
	g := source("a")
	names := e.queues(1001)
	var items []dispatch.Submission
	for _, name := range names[:1000] {
		items = append(items, numbered(g, name, 2)...)
	}
	e.create(g, items...)
	first, _ := e.takeFrom(1000, g)
	is(e, "granted", len(first), 1000)
	none, reply := e.takeFrom(1, g)
	is(e, "granted beside delays", keys(none), []string{})
	is(e, "again", reply.Again, e.now().Add(time.Hour))
	e.create(g, item(g, names[1000], "free"))
	is(e, "granted at once", e.takeTask(naming(g)).Queue, names[1000])
	e.advance(time.Hour)
	rest, _ := e.takeFrom(1001, g)
	is(e, "granted after the delay", len(rest), 1000)
}

func namedTurns(e *env) {
	e.open()
	g := source("a")
	var items []dispatch.Submission
	names := e.queues(12)
	for _, name := range names {
		items = append(items, numbered(g, name, 3)...)
	}
	e.create(g, items...)
	got := map[string]int{}
	for range 2 * len(names) {
		e.advance(time.Second)
		got[e.takeTask(naming(g)).Queue]++
	}
	for _, name := range names {
		is(e, "tasks of "+name, got[name], 2)
	}
}

func namedPriority(e *env) {
	e.open()
	g := source("a")
	names := e.queues(10)
	e.create(g, item(g, names[0], "low", withPriority(1, start)))
	e.advance(time.Second)
	for _, name := range names[1:] {
		e.create(g, item(g, name, "high", withPriority(9, start)))
	}
	got := []string{}
	for range names {
		got = append(got, e.takeTask(naming(g)).Key)
	}
	// Every eighth turn goes to the longest wait.
	is(e, "order", got, []string{"high", "high", "high", "high", "high", "high", "high", "low", "high", "high"})
}

func namedTwo(e *env) {
	e.open()
	a, b, other := source("a"), source("b"), source("c")
	names := e.queues(6)
	for _, g := range []dispatch.SourceGate{a, b, other} {
		for _, name := range names {
			e.create(g, numbered(g, name, 2)...)
		}
	}
	got := map[string]int{}
	for range 12 {
		e.advance(time.Second)
		got[e.takeTask(naming(b, a)).SourceUID]++
	}
	is(e, "of the sources", got, map[string]int{a.UID: 6, b.UID: 6})
	grants, _ := e.takeFrom(100, b, a)
	is(e, "rest", len(grants), 12)
}

// namedAside has more sources wait for one queue than come back at once.
func namedAside(e *env) {
	e.rule("*", delayed(0, 1))
	var sources []dispatch.SourceGate
	for i := range 120 {
		g := source(fmt.Sprint("s", i))
		sources = append(sources, g)
		e.create(g, item(g, queue, "k"))
	}
	holder := e.takeTask()
	for _, g := range sources {
		if g.UID != holder.SourceUID {
			e.takeNone(naming(g))
		}
	}
	e.settle(done(holder))
	missing := 0
	for _, g := range sources {
		if g.UID == holder.SourceUID {
			continue
		}
		if grants, _ := e.takeFrom(1, g); len(grants) == 1 {
			e.settle(done(&grants[0].Task))
		} else {
			missing++
		}
	}
	if missing > 20 {
		e.Errorf("%d sources had nothing of a free queue", missing)
	}
	e.advance(time.Second)
	for _, g := range sources {
		if grants, _ := e.takeFrom(1, g); len(grants) == 1 {
			e.settle(done(&grants[0].Task))
			missing--
		}
	}
	is(e, "sources that had nothing a second later", missing, 0)
}

func namedMoved(e *env) {
	e.open()
	g := source("a")
	names := e.queues(3)
	for _, name := range names {
		e.create(g, item(g, name, name))
	}
	e.takeTask(naming(g))
	g.Version, g.Pool = 2, "other"
	e.push(g)
	e.takeNone(naming(g))
	is(e, "granted in the new pool", len(e.claimFrom("other", e.want(1, naming(g))).Grants[0]), 1)
	g.Version, g.Pool, g.HeldUntil = 3, pool, e.now().Add(time.Minute)
	e.push(g)
	is(e, "again while held", e.takeNone(naming(g)).Again, e.now().Add(time.Minute))
	e.advance(time.Minute)
	e.takeTask(naming(g))
}

// namedMovedBack names a source first while its lane does not stand in its pool yet, to
// which it comes back.
func namedMovedBack(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k"))
	there := source("b", func(g *dispatch.SourceGate) { g.Pool = "other" })
	e.create(there, item(there, queue, "later", dueIn(time.Hour)))
	g.Version, g.Pool = 2, "other"
	e.submitOne(g, item(g, queue, "k"), dispatch.SubmitExists)
	is(e, "granted before it is placed", len(e.claimFrom("other", e.want(1, naming(g))).Grants[0]), 0)
	g.Version, g.Pool = 3, pool
	e.push(g)
	e.takeTask(naming(g))
}

// namedLongAgo names a source, lets its lanes move long after, and names it again.
func namedLongAgo(e *env) {
	e.open()
	g := source("a")
	names := e.queues(3)
	e.create(g, item(g, names[0], "first"))
	e.takeTask(naming(g))
	e.advance(48 * time.Hour)
	for _, name := range names[1:] {
		e.create(g, item(g, name, name))
	}
	grants, _ := e.takeFrom(9, g)
	is(e, "granted", len(grants), 2)
}

// namedAgain asks what a claim tells a narrowed want while the pool has work for
// others.
func namedAgain(e *env) {
	e.rule("*", delayed(5*time.Second, 10))
	names := e.queues(3)
	g, other := source("a"), source("b")
	e.create(g, numbered(g, names[0], 2)...)
	e.create(g, item(g, names[1], "later", dueIn(8*time.Second)))
	e.create(other, item(other, names[1], "k"), item(other, names[2], "k"))
	byQueue := func(w *dispatch.Want) { w.Queues = names[:1] }
	byBoth := func(w *dispatch.Want) { w.SourceUIDs, w.Queues = []string{g.UID}, names[1:2] }
	e.takeTask(naming(g))
	for _, c := range []struct {
		name   string
		narrow func(*dispatch.Want)
		want   time.Duration
	}{{"source", naming(g), 5 * time.Second}, {"queue", byQueue, 5 * time.Second}, {"source and queue", byBoth, 8 * time.Second}} {
		reply := e.takeNone(c.narrow)
		is(e, c.name+": next", reply.Next, e.now())
		is(e, c.name+": again", reply.Again, start.Add(c.want))
	}
	e.advance(5 * time.Second)
	e.takeTask(naming(g))
	e.advance(3 * time.Second)
	is(e, "due by then", e.takeTask(naming(g)).Key, "later")
}

// namedNothing asks for a held source in a pool where no task waits any more: the end
// of the hold would bring nothing.
func namedNothing(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.takeTask(naming(g))
	g.Version, g.HeldUntil = 2, e.now().Add(time.Minute)
	e.push(g)
	is(e, "again", e.takeNone(naming(g)).Again, time.Time{})
}

// namedBehind has a lane become due behind more lanes of its queue than a turn promotes.
func namedBehind(e *env) {
	e.open()
	for i := range 500 {
		other := source(fmt.Sprintf("other%d", i))
		e.create(other, item(other, queue, "k", dueIn(time.Second)))
	}
	g := source("a")
	e.create(g, item(g, queue, "last", dueIn(2*time.Second)))
	e.advance(3 * time.Second)
	for range 20 {
		reply := e.claim(e.want(1, naming(g), func(w *dispatch.Want) { w.Queues = []string{queue} }))
		if len(reply.Grants[0]) == 1 {
			return
		}
		is(e, "more", reply.More, true)
	}
	e.Fatalf("claims do not come to what is due")
}

// namedHint has the one lease of a queue end, while the queue that can be granted from
// first is another.
func namedHint(e *env) {
	e.rule("*", delayed(5*time.Second, 1))
	names := e.queues(2)
	g, other := source("a"), source("b")
	e.create(g, numbered(g, names[0], 2)...)
	held := e.takeTask(naming(g))
	e.create(other, item(other, names[1], "sooner", dueIn(time.Second)))
	for name, narrow := range map[string]func(*dispatch.Want){
		"source": naming(g), "queue": func(w *dispatch.Want) { w.Queues = names[:1] },
	} {
		is(e, name+": again", e.takeNone(narrow).Again, time.Time{})
	}
	given := e.hints()
	e.settle(done(held))
	e.await(given, "the queue", func(h dispatch.Hint) bool { return h.Kind == dispatch.HintReady && h.In >= 5*time.Second })
}

// namedHintBeside has a task come into a queue that others have work in, for those who
// name its source, and those who name the queue too.
func namedHintBeside(e *env) {
	e.open()
	other := source("other")
	e.create(other, item(other, queue, "other"))
	for _, queues := range [][]string{nil, {queue}} {
		g := source(fmt.Sprint("a", len(queues)))
		narrow := func(w *dispatch.Want) { w.SourceUIDs, w.Queues = []string{g.UID}, queues }
		e.create(g, item(g, queue, "k"))
		e.takeTask(narrow)
		e.takeNone(narrow)
		given := e.hints()
		e.create(g, item(g, queue, "new"))
		e.await(given, "the task", func(h dispatch.Hint) bool { return h.Kind == dispatch.HintReady && h.In == 0 })
	}
}

// namedHintSooner has a task come that is due sooner than the others of its queue, though
// later than those of another queue.
func namedHintSooner(e *env) {
	e.open()
	names := e.queues(2)
	g, other := source("a"), source("b")
	e.create(other, item(other, names[1], "first", dueIn(time.Second)))
	e.create(g, item(g, names[0], "late", dueIn(time.Hour)))
	reply := e.takeNone(func(w *dispatch.Want) { w.Queues = names[:1] })
	is(e, "again", reply.Again, start.Add(time.Hour))
	given := e.hints()
	e.create(g, item(g, names[0], "soon", dueIn(2*time.Second)))
	e.await(given, "the task", func(h dispatch.Hint) bool { return h.Kind == dispatch.HintReady && h.In <= 2*time.Second })
}
