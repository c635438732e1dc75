package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func sourceHoldCases() []testCase {
	return []testCase{
		{"Holds_StopUntilTheLastEnds", sourceHeld},
		{"Gone_KeepsHoldsOfTheID", sourceGone},
		{"Gone_InTheVersionOfTheDelete", sourceGoneAtOnce},
		{"Gone_OfAnIDThatNoSourceHad", sourceGoneNew},
		{"Gone_IsCreatedAgainByVersion", sourceAgain},
		{"List_HeldInPages", sourceListHeld},
	}
}

// sourceHold is a hold of a source.
func sourceHold(id, name string, until time.Time) dispatch.Hold {
	return dispatch.Hold{Target: dispatch.HoldTarget{Source: id}, Name: name, By: "ops", Created: start, Until: until}
}

// heldSources lists the ids of those that have holds.
func (e *env) heldSources(filter dispatch.SourceFilter, after string, limit int) (ids []string, more bool) {
	e.Helper()
	filter.Held = true
	sources, more, err := e.Store.ListSources(e.ctx, filter, after, limit)
	e.ok("held sources", err)
	for _, s := range sources {
		ids = append(ids, s.ID)
	}
	return ids, more
}

// sourceHeld puts and lifts several holds of one source: it is held until the last of them
// ends.
func sourceHeld(e *env) {
	e.open()
	s := &dispatch.Source{ID: "a", UID: "uid-a", Spec: dispatch.SourceSpec{Pool: pool}}
	e.create(s.Gate(), item(s.Gate(), queue, "k"))
	minute, hour, forever := sourceHold("a", "m", start.Add(time.Minute)), sourceHold("a", "h", start.Add(time.Hour)), sourceHold("a", "f", time.Time{})
	put := func(holds ...dispatch.Hold) {
		s.Version++
		s.Holds = holds
		e.push(s.Gate())
	}
	put(hour, minute)
	is(e, "next", e.takeNone().Next, start.Add(time.Hour))
	put(forever, minute)
	e.takeHeld(time.Time{})
	put(minute)
	is(e, "next by one alone", e.takeNone().Next, start.Add(time.Minute))
	put(forever)
	e.advance(time.Minute)
	e.takeHeld(time.Time{})
	put(minute) // it is over
	e.takeOne()
}

// deletedSource keeps a source, and deletes it as version 2.
func (e *env) deletedSource(id string, holds ...dispatch.Hold) *dispatch.Source {
	e.Helper()
	s := registered(id)
	s.Holds = holds
	e.ok("create", e.Store.PutSource(e.ctx, s, 0))
	_, err := e.Store.MarkApplied(e.ctx, id, s.UID, 1, []dispatch.TaskID{item(source(id), queue, "seed").ID})
	e.ok("mark applied", err)
	s.Version, s.Deleted = 2, true
	e.ok("delete", e.Store.PutSource(e.ctx, s, 1))
	return s
}

// gone is what is left of a deleted source, as a version.
func gone(s *dispatch.Source, version int64) *dispatch.Source {
	return &dispatch.Source{
		ID: s.ID, UID: s.UID, Version: version, Applied: version, Deleted: true, Holds: s.Holds, Created: s.Created, Updated: s.Updated,
	}
}

func sourceGone(e *env) {
	s := e.deletedSource("a", sourceHold("a", "h", time.Time{}))
	is(e, "gone before", e.source("a").Gone(), false)
	is(e, "pending before", e.pending(), []string{"a"})
	left := gone(s, 3)
	for range 2 {
		e.ok("make it gone", e.Store.PutSource(e.ctx, left, 2))
	}
	is(e, "source", e.source("a"), left)
	is(e, "pending", e.pending(), nil)
	e.fails("make it gone by an older version", e.Store.PutSource(e.ctx, gone(s, 4), 2), dispatch.ErrEtagMismatch)
	// Its holds change as ever.
	left.Version, left.Applied = 4, 4
	left.Holds = append(left.Holds, sourceHold("a", "more", start.Add(time.Hour)))
	e.ok("put a hold", e.Store.PutSource(e.ctx, left, 3))
	is(e, "source with another hold", e.source("a"), left)
	held, _ := e.heldSources(dispatch.SourceFilter{}, "", 9)
	is(e, "held", held, []string{"a"})
	is(e, "removed", e.mark("uid-a", 4), true)
	is(e, "source then", e.source("a"), nil)
	held, _ = e.heldSources(dispatch.SourceFilter{}, "", 9)
	is(e, "held then", held, nil)
	e.ok("create anew", e.Store.PutSource(e.ctx, registered("a"), 0))
}

// sourceGoneAtOnce makes a deleted source gone and changes nothing else of it.
func sourceGoneAtOnce(e *env) {
	s := e.deletedSource("a", sourceHold("a", "h", time.Time{}))
	s.Applied = 2
	e.ok("make it gone", e.Store.PutSource(e.ctx, s, 2))
	is(e, "source", e.source("a"), s)
	is(e, "pending", e.pending(), nil)
}

// sourceGoneNew holds an id before there is a source.
func sourceGoneNew(e *env) {
	s := &dispatch.Source{ID: "a", UID: "uid-a", Version: 1, Applied: 1, Deleted: true, Holds: []dispatch.Hold{sourceHold("a", "h", time.Time{})}}
	for range 2 {
		e.ok("hold", e.Store.PutSource(e.ctx, s, 0))
	}
	is(e, "source", e.source("a"), s)
	is(e, "pending", e.pending(), nil)
	held, _ := e.heldSources(dispatch.SourceFilter{}, "", 9)
	is(e, "held", held, []string{"a"})
	made := registered("a")
	made.UID, made.Version, made.Holds = "uid-made", 2, s.Holds
	e.fails("create as new", e.Store.PutSource(e.ctx, made, 0), dispatch.ErrSourceExists)
	e.ok("create", e.Store.PutSource(e.ctx, made, 1))
	is(e, "source then", e.source("a"), made)
	is(e, "pending then", e.pending(), []string{"a"})
}

// sourceAgain creates sources under the ids of some that are gone, which only works by
// their version, and of one that is being deleted, which does not.
func sourceAgain(e *env) {
	old := e.deletedSource("a", sourceHold("a", "h", time.Time{}))
	again := registered("a")
	again.UID, again.Version, again.Holds = "uid-again", 3, old.Holds
	e.fails("create while it is being deleted", e.Store.PutSource(e.ctx, again, 2), dispatch.ErrEtagMismatch)
	e.ok("make it gone", e.Store.PutSource(e.ctx, gone(old, 3), 2))
	again.Version = 4
	e.fails("create as new", e.Store.PutSource(e.ctx, again, 0), dispatch.ErrSourceExists)
	e.fails("create by an older version", e.Store.PutSource(e.ctx, again, 2), dispatch.ErrEtagMismatch)
	for range 2 {
		e.ok("create", e.Store.PutSource(e.ctx, again, 3))
	}
	is(e, "source", e.source("a"), again) // nothing is applied of it, and it has no seeds
	is(e, "pending", e.pending(), []string{"a"})
	is(e, "applied of the one before", e.mark("uid-a", 4), false)
	is(e, "applied", e.mark("uid-again", 4), true)
	again.UID, again.Version = "uid-third", 5
	e.fails("create over one that lives", e.Store.PutSource(e.ctx, again, 4), dispatch.ErrEtagMismatch)
}

func sourceListHeld(e *env) {
	for i, id := range []string{"c", "a", "e", "b", "d"} {
		s := registered(id)
		s.Holds = []dispatch.Hold{sourceHold(id, "h", start.Add(time.Duration(i)*time.Second))} // those that are over, too
		e.ok("create", e.Store.PutSource(e.ctx, s, 0))
		free := registered(fmt.Sprint("free", i))
		free.Holds = nil
		e.ok("create", e.Store.PutSource(e.ctx, free, 0))
	}
	for _, page := range []struct {
		after string
		limit int
		want  []string
		more  bool
	}{
		{"", 2, []string{"a", "b"}, true},
		{"b", 2, []string{"c", "d"}, true},
		{"bb", 1, []string{"c"}, true},
		{"d", 2, []string{"e"}, false},
		{"e", 2, nil, false},
	} {
		ids, more := e.heldSources(dispatch.SourceFilter{}, page.after, page.limit)
		is(e, "held after "+page.after, ids, page.want)
		is(e, "more after "+page.after, more, page.more)
	}
	ids, _ := e.heldSources(dispatch.SourceFilter{Prefix: "d"}, "", 9)
	is(e, "held with a prefix", ids, []string{"d"})
	e.mark("uid-a", 1)
	ids, _ = e.heldSources(dispatch.SourceFilter{Pending: true}, "", 9)
	is(e, "held and pending", ids, []string{"b", "c", "d", "e"})
	next := registered("c")
	next.Version, next.Holds = 2, nil
	e.ok("lift", e.Store.PutSource(e.ctx, next, 1))
	ids, _ = e.heldSources(dispatch.SourceFilter{}, "", 9)
	is(e, "held then", ids, []string{"a", "b", "d", "e"})
}
