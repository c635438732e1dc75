package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func collectorCases() []testCase {
	return []testCase{
		{"Beat_IsReadBack", collectorBeat},
		{"Beat_CarriesOutcomes", collectorOutcomes},
		{"Beat_AfterTheGoodbye", collectorAfterGoodbye},
		{"Goodbye_OfAnotherSession", collectorStrayGoodbye},
		{"Poll_MakesARecord", collectorPoll},
		{"ByID_OfTheCurrentSession", collectorsByID},
		{"Held_CountsLeases", collectorHeld},
		{"Present_SinceAnInstant", collectorsPresent},
		{"List_ByIDInPages", collectorList},
		{"Forget_TheSilent", collectorForget},
		{"Forget_Named", collectorForgetNamed},
		{"Silent_IsForgotten", collectorSilent},
	}
}

func (e *env) beat(infos ...dispatch.CollectorInfo) []dispatch.PollState {
	e.Helper()
	states := make([]dispatch.PollState, len(infos))
	for i, info := range infos {
		var err error
		states[i], err = e.Store.Beat(e.ctx, info)
		e.ok("beat", err)
	}
	return states
}

func (e *env) collectors(after string, limit int) []*dispatch.CollectorRecord {
	e.Helper()
	records, err := e.Store.ListCollectors(e.ctx, dispatch.CollectorFilter{}, after, limit)
	e.ok("list collectors", err)
	return records
}

func collectorBeat(e *env) {
	info := dispatch.CollectorInfo{
		ID: "c1", Session: "s1", Version: "1.2", Hostname: "h", Labels: map[string]string{"region": "eu"},
		Pools: []string{pool, "browser"}, Sources: []string{"a", "b"}, Queues: []string{"a.example"}, Slots: 8, Stopping: true, StuckSlots: 3, Problem: "no page is taken", ProblemDuration: time.Minute,
		Client: "waggle-go/0.1.0",
	}
	e.beat(info)
	e.advance(time.Minute)
	info.Slots, info.StuckSlots, info.Ended = 4, 0, true
	e.beat(info)
	records := e.collectors("", 10)
	is(e, "collectors", len(records), 1)
	is(e, "collector", *records[0], dispatch.CollectorRecord{Info: info, First: start, Seen: start.Add(time.Minute)})
	e.advance(time.Minute)
	info.Session, info.Ended = "s2", false
	e.beat(info)
	is(e, "first of the new session", e.collectors("", 10)[0].First, start.Add(2*time.Minute))
	info.Session = "s1"
	is(e, "replaced", e.beat(info)[0].Replaced, true)
	is(e, "session", e.collectors("", 10)[0].Info.Session, "s2")
}

// collectorOutcomes: those of the last beat are kept, whole, until the next one or another session; a poll changes nothing.
func collectorOutcomes(e *env) {
	info := dispatch.CollectorInfo{ID: "c1", Session: "s1"}
	kept := func(what string, want *dispatch.Outcomes) {
		info.Outcomes = want
		is(e, what, e.collectors("", 10)[0].Info, info)
	}
	all := &dispatch.Outcomes{
		Answered: 3, Failed: map[dispatch.FailureReason]int{101: 4, 201: 5}, Released: 6, OwnInRow: 7, ReleasedInRow: 8, Silent: 2,
		Since: start.Add(-time.Minute), LastError: &dispatch.Failure{
			Result: dispatch.ResultFailed, Reason: 201, Message: "no space: \"/é\"", HTTPStatus: 200, Time: start.Add(-time.Second),
		},
	}
	for i, outcomes := range []*dispatch.Outcomes{all, {Answered: 1}, nil, all} {
		info.Outcomes = outcomes
		e.beat(info)
		kept(fmt.Sprintf("of beat %d", i), outcomes)
	}
	info.Outcomes = all
	e.beat(info)
	e.poll("c1", "s1", "t", "1")
	kept("after a poll", all)
	info.Session = "s2"
	e.poll("c1", "s2", "t", "2")
	kept("of the next session", nil)
}

// collectorAfterGoodbye: a beat that was overtaken by the last one does not bring its
// session back.
func collectorAfterGoodbye(e *env) {
	info := dispatch.CollectorInfo{ID: "c1", Session: "s1", Slots: 4, Stopping: true}
	last := info
	last.Slots, last.Ended = 0, true
	e.beat(info)
	e.beat(last)
	e.advance(time.Second)
	is(e, "answer to the late beat", e.beat(info)[0], dispatch.PollState{})
	is(e, "told", e.collectors("", 10)[0].Info, last)
	e.poll("c1", "s1", "t", "1")
	is(e, "told after a poll", e.collectors("", 10)[0].Info, last)
	is(e, "two", e.beat(last, info), make([]dispatch.PollState, 2))
	is(e, "told after both", e.collectors("", 10)[0].Info, last)
	info.Session, info.Stopping = "s2", false
	e.beat(info)
	is(e, "told by the next session", e.collectors("", 10)[0].Info, info)
	e.beat(info)
	is(e, "told by it again", e.collectors("", 10)[0].Info, info)
}

// collectorStrayGoodbye: one that is the first thing heard of a session replaces no other.
func collectorStrayGoodbye(e *env) {
	info := dispatch.CollectorInfo{ID: "c1", Session: "s2", Slots: 4}
	e.beat(info)
	before := *e.collectors("", 10)[0]
	e.advance(time.Second)
	stray := dispatch.CollectorInfo{ID: "c1", Session: "s1", Ended: true}
	is(e, "answer to the goodbye", e.beat(stray)[0], dispatch.PollState{})
	is(e, "collector", *e.collectors("", 10)[0], before)
	is(e, "answer to the live session", e.beat(info)[0], dispatch.PollState{})
	e.advance(dispatch.CollectorMemory)
	is(e, "answer where no session is known", e.beat(stray)[0], dispatch.PollState{})
	is(e, "told then", e.collectors("", 10)[0].Info, stray)
}

func collectorPoll(e *env) {
	e.poll("c1", "s1", "t", "1")
	e.advance(time.Second)
	e.poll("c1", "s1", "u", "2")
	records := e.collectors("", 10)
	is(e, "collectors", len(records), 1)
	is(e, "id", records[0].Info.ID, "c1")
	is(e, "session", records[0].Info.Session, "s1")
	is(e, "first", records[0].First, start)
	is(e, "seen", records[0].Seen, start.Add(time.Second))

	e.advance(dispatch.PollNoted - time.Millisecond)
	e.poll("c1", "s1", "v", "3")
	if age := e.now().Sub(e.collectors("", 10)[0].Seen); age >= dispatch.PollNoted {
		e.Errorf("a poll just now left the collector unseen for %v, want less than %v", age, dispatch.PollNoted)
	}
}

// collectorsByID: what a session tells goes with it.
func collectorsByID(e *env) {
	e.poll("c1", "s1", "t", "1")
	told := dispatch.CollectorInfo{ID: "c2", Session: "s1", Labels: map[string]string{"region": "eu"}, Slots: 2}
	e.beat(told)
	records := func(ids ...string) []*dispatch.CollectorRecord {
		e.Helper()
		records, err := e.Store.ListCollectors(e.ctx, dispatch.CollectorFilter{IDs: append([]string{}, ids...)}, "c9", 1)
		e.ok("list collectors", err)
		return records
	}
	polls := &dispatch.CollectorRecord{Info: dispatch.CollectorInfo{ID: "c1", Session: "s1"}, First: start, Seen: start, OnlyPolls: true}
	beats := &dispatch.CollectorRecord{Info: told, First: start, Seen: start}
	is(e, "records", records("c2", "c1", "nobody", "c2"), []*dispatch.CollectorRecord{beats, polls, nil, beats})
	e.advance(time.Second)
	e.poll("c2", "s2", "t", "1")
	polls = &dispatch.CollectorRecord{Info: dispatch.CollectorInfo{ID: "c2", Session: "s2"}, First: e.now(), Seen: e.now(), OnlyPolls: true}
	is(e, "of another session", records("c2"), []*dispatch.CollectorRecord{polls})
	told.Session = "s2"
	e.beat(told)
	beats = &dispatch.CollectorRecord{Info: told, First: e.now(), Seen: e.now()}
	is(e, "then", records("c2"), []*dispatch.CollectorRecord{beats})
	is(e, "listed", e.collectors("", 9)[1], beats)
	e.advance(dispatch.CollectorMemory)
	is(e, "of the forgotten", records("c2", "c1"), make([]*dispatch.CollectorRecord, 2))
	is(e, "of none", len(records()), 0)
}

func collectorHeld(e *env) {
	e.open()
	g := source("a")
	var items []dispatch.Submission
	for i := range 12 {
		items = append(items, item(g, fmt.Sprintf("host%d.test", i), "k"))
	}
	e.create(g, items...)
	held := func() (held []int64) {
		e.Helper()
		for _, filter := range []dispatch.CollectorFilter{{IDs: []string{"c1", "c2"}, Held: true}, {Held: true}} {
			records, err := e.Store.ListCollectors(e.ctx, filter, "", 9)
			e.ok("list collectors", err)
			for _, r := range records {
				held = append(held, r.Held)
			}
		}
		return held
	}
	e.beat(dispatch.CollectorInfo{ID: "c1", Session: "s1"}, dispatch.CollectorInfo{ID: "c2", Session: "s1"})
	is(e, "held", held(), []int64{0, 0, 0, 0})
	var grants []dispatch.Grant
	for shard := range e.Store.Shards() {
		reply, err := e.Store.Claim(e.ctx, shard, pool, e.held.version, []dispatch.Want{e.want(100)}, nil)
		e.ok("claim", err)
		grants = append(grants, reply.Grants[0]...)
	}
	is(e, "held", held(), []int64{12, 0, 12, 0})
	is(e, "held where nobody asks", e.collectors("", 9)[0].Held, 0)
	e.settle(done(&grants[0].Task))
	e.settle(retry(&grants[1].Task, 0))
	is(e, "held then", held(), []int64{10, 0, 10, 0})
}

func collectorsPresent(e *env) {
	present := func(since time.Time, limit int) []string {
		e.Helper()
		records, err := e.Store.ListCollectors(e.ctx, dispatch.CollectorFilter{Since: since}, "", limit)
		e.ok("list collectors", err)
		var ids []string
		for _, r := range records {
			is(e, "a record of the id alone", *r, dispatch.CollectorRecord{Info: dispatch.CollectorInfo{ID: r.Info.ID}})
			ids = append(ids, r.Info.ID)
		}
		slices.Sort(ids)
		return ids
	}
	var infos []dispatch.CollectorInfo
	for i := range 9 {
		infos = append(infos, dispatch.CollectorInfo{ID: fmt.Sprintf("c%d", i), Session: "s"})
	}
	e.beat(infos...)
	first := e.now()
	e.advance(time.Minute)
	infos[4].Ended = true
	e.beat(infos[4], infos[7])
	e.poll("p", "s", "t", "1")
	e.poll("c4", "s", "t", "1")
	is(e, "since the first instant", len(present(first, 100)), 9)
	is(e, "after it", present(first.Add(time.Millisecond), 100), []string{"c7", "p"})
	is(e, "now", present(e.now(), 100), []string{"c7", "p"})
	is(e, "later", len(present(e.now().Add(time.Millisecond), 100)), 0)
	is(e, "some", len(slices.Compact(present(first, 4))), 4)
	is(e, "none", len(present(first, 0)), 0)
	infos[4].Session, infos[4].Ended = "s2", false
	e.beat(infos[4])
	is(e, "with another session", present(e.now(), 100), []string{"c4", "c7", "p"})
	infos[7].Ended = true
	e.beat(infos[7])
	e.advance(dispatch.CollectorMemory - time.Minute)
	_, err := e.Store.Forget(e.ctx, nil, e.now().Add(-dispatch.CollectorMemory), 100)
	e.ok("forget", err)
	is(e, "of those not forgotten", present(first, 100), []string{"c4", "p"})
	e.advance(time.Second)
	forgotten, err := e.Store.Forget(e.ctx, nil, e.now(), 100)
	e.ok("forget", err)
	is(e, "forgotten, the ended one too", forgotten, 3)
	is(e, "known", len(e.collectors("", 100)), 0)
}

func collectorList(e *env) {
	var infos []dispatch.CollectorInfo
	for i := range 25 {
		infos = append(infos, dispatch.CollectorInfo{ID: fmt.Sprintf("c%02d", (i*7)%25), Session: "s"})
	}
	e.beat(infos...)
	seen := 0
	for after := ""; ; {
		records := e.collectors(after, 4)
		if len(records) == 0 {
			break
		}
		for _, record := range records {
			is(e, "id", record.Info.ID, fmt.Sprintf("c%02d", seen))
			seen++
			after = record.Info.ID
		}
	}
	is(e, "collectors", seen, 25)
}

// collectorForgetNamed: of those that are named, the silent ones are forgotten; in all shards.
func collectorForgetNamed(e *env) {
	var ids []string
	for i := range 12 {
		ids = append(ids, fmt.Sprint("c", i))
		e.beat(dispatch.CollectorInfo{ID: ids[i], Session: "s1", Labels: map[string]string{"region": "eu"}})
	}
	e.advance(time.Minute)
	e.poll("c3", "s1", "t", "1")
	n, err := e.Store.Forget(e.ctx, append(ids[:8:8], "nobody"), e.now(), 100)
	e.ok("forget", err)
	is(e, "forgotten", n, 7)
	left := []string{}
	for _, r := range e.collectors("", 100) {
		left = append(left, r.Info.ID)
	}
	is(e, "left", left, []string{"c10", "c11", "c3", "c8", "c9"})
	n, err = e.Store.Forget(e.ctx, []string{}, e.now(), 100)
	e.ok("forget", err)
	is(e, "forgotten of none", n, 0)
	is(e, "as new", e.beat(dispatch.CollectorInfo{ID: "c0", Session: "s2"})[0], dispatch.PollState{})
}

func collectorForget(e *env) {
	e.beat(dispatch.CollectorInfo{ID: "c1", Session: "s"}, dispatch.CollectorInfo{ID: "c2", Session: "s"})
	e.advance(time.Minute)
	e.beat(dispatch.CollectorInfo{ID: "c2", Session: "s"}, dispatch.CollectorInfo{ID: "c3", Session: "s"})
	n, err := e.Store.Forget(e.ctx, nil, e.now(), 10)
	e.ok("forget", err)
	is(e, "forgotten", n, 1)
	records := e.collectors("", 10)
	is(e, "collectors", len(records), 2)
	is(e, "first", records[0].Info.ID, "c2")
	e.advance(time.Minute)
	n, err = e.Store.Forget(e.ctx, nil, e.now(), 1)
	e.ok("forget", err)
	is(e, "forgotten by a limit of one", n, 1)
	is(e, "collectors then", len(e.collectors("", 10)), 1)
}

func collectorSilent(e *env) {
	e.beat(dispatch.CollectorInfo{ID: "c1", Session: "s"})
	e.advance(dispatch.CollectorMemory - time.Second)
	e.beat(dispatch.CollectorInfo{ID: "c2", Session: "s"})
	is(e, "collectors", len(e.collectors("", 10)), 2)
	e.advance(2 * time.Second)
	records := e.collectors("", 10)
	is(e, "collectors then", len(records), 1)
	is(e, "collector", records[0].Info.ID, "c2")
}
