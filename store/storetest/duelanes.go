package storetest

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// dueLanes looks for lanes; what was found first comes by id, since the order of shards
// is that of the queues' slots.
func (e *env) dueLanes(filter dispatch.TaskFilter, limit int) dispatch.DueLanes {
	e.Helper()
	found, err := e.Store.DueLanes(e.ctx, filter, limit)
	e.ok("look for due lanes", err)
	slices.SortFunc(found.Lanes, func(a, b dispatch.DueLane) int { return strings.Compare(string(a.First), string(b.First)) })
	return found
}

func dueLanes(e *env) {
	e.open()
	g, other := source("a"), source("b")
	names := e.queues(4)
	hour, day := start.Add(time.Hour), start.Add(24*time.Hour)
	due := []dispatch.Submission{
		item(g, names[0], "low", withPriority(3, start)), item(g, names[0], "first", withPriority(7, start)),
		item(g, names[0], "later", withPriority(9, day)), item(g, names[1], "day", withPriority(5, day)),
		item(g, names[2], "hour", withPriority(5, hour)), item(g, names[3], "leased"),
	}
	e.create(g, due...)
	e.create(other, item(other, names[0], "others"))
	e.takeTask(func(w *dispatch.Want) { w.Queues = []string{names[3]} })

	want := dispatch.DueLanes{Lanes: []dispatch.DueLane{{First: due[1].ID, Due: 2}}, Due: 1, Next: due[4].ID}
	for _, limit := range []int{10, 0} {
		of := e.dueLanes(dispatch.TaskFilter{SourceUID: g.UID}, limit)
		// A store may keep the lane in which nothing waits.
		is(e, "lanes that were read", of.Looked == of.All && (of.All == 3 || of.All == 4), true)
		want.Looked, want.All = of.Looked, of.All
		want.Lanes = want.Lanes[:min(limit, 1)]
		is(e, "of the source", of, want)
	}
	of := e.dueLanes(dispatch.TaskFilter{Queue: names[0]}, 10)
	is(e, "of the queue", []int64{of.Due, of.Looked, of.All, int64(len(of.Lanes))}, []int64{2, 2, 2, 2})

	e.advance(time.Hour) // nothing has looked at the lane since
	of = e.dueLanes(dispatch.TaskFilter{SourceUID: g.UID}, 10)
	is(e, "an hour later", []int64{of.Due, int64(len(of.Lanes))}, []int64{2, 2})
	is(e, "due is the one of an hour", slices.Contains(of.Lanes, dispatch.DueLane{First: due[4].ID, Due: 1}), true)
	is(e, "next is that of a day", of.Next, due[3].ID)
	is(e, "of a source that is not there", e.dueLanes(dispatch.TaskFilter{SourceUID: "none"}, 10), dispatch.DueLanes{})
	for _, filter := range []dispatch.TaskFilter{{}, {SourceUID: g.UID, Queue: names[0]}} {
		if _, err := e.Store.DueLanes(e.ctx, filter, 1); !errors.Is(err, dispatch.ErrInvalid) {
			e.Errorf("of %+v: %v", filter, err)
		}
	}
}

func dueLanesBounds(e *env) {
	e.open()
	g := source("a")
	var items []dispatch.Submission
	for _, name := range e.queues(bounds.MaxLaneLooks + 100) {
		items = append(items, item(g, name, "k"))
	}
	for page := range slices.Chunk(items, bounds.MaxSubmissions) {
		e.create(g, page...)
	}
	found := e.dueLanes(dispatch.TaskFilter{SourceUID: g.UID}, 5)
	is(e, "lanes", []int64{int64(len(found.Lanes)), found.Due, found.Looked, found.All},
		[]int64{5, bounds.MaxLaneLooks, bounds.MaxLaneLooks, int64(len(items))})
}
