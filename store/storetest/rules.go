package storetest

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func ruleCases() []testCase {
	return []testCase{
		{"Set_IsReadBackUnderANewVersion", ruleSet},
		{"Delete_NotFound", ruleDelete},
		{"Delete_OneOfSeveralForAQueue", ruleDeleteOfSeveral},
		{"Change_OnlyOfTheVersionThatWasSeen", ruleStale},
		{"Change_Repeated", ruleRepeated},
		{"LongestMatchHolds", ruleLongest},
		{"Defaults_HoldWithoutARule", ruleDefaults},
		{"Opening_LetsWaitingQueuesGo", ruleOpening},
		{"ShorterDelay_CountsAtOnce", ruleShorter},
		{"Mapping_SettingsAreTheQueues", ruleMapping},
		{"LaterSettings_HoldAtTheNextGrant", ruleLater},
	}
}

func (e *env) listRules() []dispatch.QueueRule {
	e.Helper()
	rules, version, err := e.Store.Rules(e.ctx)
	e.ok("rules", err)
	is(e, "version of the rules", version, e.rules)
	return rules
}

// ruleShorter lowers the delay of queues that wait for it, among others that wait for
// the due times of their tasks.
func ruleShorter(e *env) {
	e.rule("*", delayed(time.Hour, 1))
	g := source("a")
	delayedQueues := e.queues(130) // some pages of them
	for _, name := range delayedQueues {
		e.create(g, numbered(g, name, 2)...)
	}
	for _, name := range e.queues(630)[130:] {
		e.create(g, item(g, name, "later", func(s *dispatch.Submission) { s.Due = start.Add(30 * time.Minute) }))
	}
	for _, grant := range e.takeMany(len(delayedQueues)) {
		e.settle(done(&grant.Task))
	}
	e.advance(time.Minute)
	e.rule("*", delayed(time.Second, 1))
	e.takeNone()
	next := e.takeNone().Next
	if next.After(e.now().Add(time.Second + time.Millisecond)) {
		e.Errorf("the next grant is said to be at %v, more than a second after %v", next, e.now())
	}
	e.advance(time.Second + time.Millisecond)
	e.takeMany(len(delayedQueues))
	// A longer one counts from the next grant on.
	e.advance(time.Minute)
	e.rule("*", delayed(time.Hour, 1))
	e.takeNone()
}

func (e *env) deleteRule(pattern string) {
	e.Helper()
	version, err := e.Store.PutRule(e.ctx, pattern, nil, e.rules)
	e.ok("delete rule", err)
	if version <= e.rules {
		e.Fatalf("version %d of the rules did not rise above %d", version, e.rules)
	}
	e.rules = version
	e.syncRules()
}

func ruleSet(e *env) {
	is(e, "rules of a new store", e.listRules(), nil)
	rules := []dispatch.QueueRule{
		{Pattern: "*", Settings: delayed(time.Second, 3), By: "ops", Reason: "why", Time: start},
		{Pattern: "*.b.test", Settings: settings(func(s *dispatch.QueueSettings) {
			s.DelayFactor, s.MaxDelay, s.MaxBlock = 1.5, time.Minute, time.Hour
		}), Time: start},
		{Pattern: "a.test", Queue: "mapped.test", Settings: delayed(time.Millisecond, 1), Time: start},
	}
	last := e.rules
	for _, i := range []int{2, 0, 1} {
		e.setRule(rules[i])
		if e.rules <= last {
			e.Fatalf("version %d of the rules did not rise above %d", e.rules, last)
		}
		last = e.rules
	}
	is(e, "rules", e.listRules(), rules)
	rules[0].Settings.MaxInFlight = 4
	e.setRule(rules[0])
	is(e, "rules then", e.listRules(), rules)
}

func ruleDelete(e *env) {
	_, err := e.Store.PutRule(e.ctx, "a.test", nil, e.rules)
	e.fails("delete of none", err, dispatch.ErrRuleNotFound)
	e.rule("a.test", delayed(0, 1))
	e.deleteRule("a.test")
	is(e, "rules", e.listRules(), nil)
	_, err = e.Store.PutRule(e.ctx, "a.test", nil, e.rules)
	e.fails("delete again", err, dispatch.ErrRuleNotFound)
}

// ruleDeleteOfSeveral deletes one of the rules that map to one queue: its settings stay while another rule has them.
func ruleDeleteOfSeveral(e *env) {
	slow := delayed(time.Minute, 9)
	for _, pattern := range []string{"b.test", "a.test", "c.test"} {
		e.setRule(dispatch.QueueRule{Pattern: pattern, Queue: queue, Settings: slow, Time: start})
	}
	g := source("a")
	e.create(g, numbered(g, queue, 4)...)
	for _, pattern := range []string{"c.test", "a.test"} {
		e.deleteRule(pattern)
		grant := e.takeOne()
		e.settle(done(&grant.Task))
		is(e, "next after the delete of "+pattern, e.takeNone().Next, e.now().Add(time.Minute))
		e.advance(time.Minute + time.Millisecond)
	}
	e.setRule(dispatch.QueueRule{Pattern: "b.test", Queue: "other.test", Settings: slow, Time: start})
	grant := e.takeOne()
	e.settle(done(&grant.Task))
	is(e, "next by no rule", e.takeNone().Next, e.now().Add(dispatch.DefaultQueueSettings().MinDelay))
}

// ruleStale changes rules that somebody else has changed since they were read, each by
// each: nothing of it holds.
func ruleStale(e *env) {
	calm := dispatch.QueueRule{Pattern: "*", Settings: delayed(time.Second, 3), Time: start}
	e.setRule(calm)
	seen := e.rules
	slow := dispatch.QueueRule{Pattern: queue, Settings: delayed(time.Minute, 9), By: "eve", Time: start}
	e.setRule(slow)
	calm.Settings.MaxInFlight++
	other := slow
	other.Settings.MinDelay = 0
	for _, r := range []dispatch.QueueRule{calm, other, {Pattern: "new.test", Settings: delayed(0, 1), Time: start}} {
		for _, version := range []int64{seen, 0, e.rules + 1} {
			_, err := e.Store.PutRule(e.ctx, r.Pattern, &r, version)
			e.fails("set of "+r.Pattern, err, dispatch.ErrEtagMismatch)
		}
	}
	_, err := e.Store.PutRule(e.ctx, queue, nil, seen)
	e.fails("delete", err, dispatch.ErrEtagMismatch)
	calm.Settings.MaxInFlight--
	is(e, "rules", e.listRules(), []dispatch.QueueRule{calm, slow})
	g := source("a")
	e.create(g, numbered(g, queue, 2)...)
	e.takeOne()
	is(e, "next", e.takeNone().Next, start.Add(time.Minute))
	seen = e.rules
	e.deleteRule(queue)
	e.setRule(calm)
	_, err = e.Store.PutRule(e.ctx, queue, nil, seen)
	e.fails("delete of what is gone", err, dispatch.ErrEtagMismatch)
}

// ruleRepeated sends changes again whose answers were lost.
func ruleRepeated(e *env) {
	r := dispatch.QueueRule{Pattern: "a.test", Queue: "group", Settings: delayed(time.Second, 3), Time: start}
	from := e.rules
	again := func(answer int64, err error) {
		e.Helper()
		e.ok("repeated", err)
		is(e, "version", answer, e.rules)
	}
	e.setRule(r)
	again(e.Store.PutRule(e.ctx, r.Pattern, &r, from))
	r.Queue, from = "", e.rules
	e.setRule(r)
	again(e.Store.PutRule(e.ctx, r.Pattern, &r, from))
	is(e, "rules", e.listRules(), []dispatch.QueueRule{r})
	from = e.rules
	e.deleteRule(r.Pattern)
	again(e.Store.PutRule(e.ctx, r.Pattern, nil, from))
	is(e, "rules", e.listRules(), nil)
}

func ruleLongest(e *env) {
	for i, pattern := range []string{"*", "*.c.test", "*.b.c.test", "b.c.test", "a.b.c.test:81"} {
		e.rule(pattern, delayed(0, i+10))
	}
	g := source("a")
	for name, want := range map[string]struct {
		pattern  string
		inFlight int
	}{
		"x.test": {"*", 10}, "c.test": {"*", 10}, "x.c.test": {"*.c.test", 11}, "b.c.test": {"b.c.test", 13},
		"b.c.test:81": {"b.c.test", 13}, "a.b.c.test": {"*.b.c.test", 12}, "z.a.b.c.test": {"*.b.c.test", 12},
		"a.b.c.test:81": {"a.b.c.test:81", 14}, "a.b.c.test:82": {"*.b.c.test", 12}, "localhost": {"*", 10},
	} {
		e.create(g, item(g, name, "k"))
		q := e.info(name)
		is(e, "settings of "+name, q.Settings.MaxInFlight, want.inFlight)
		is(e, "name of the settings of "+name, q.SettingsName, want.pattern)
	}
}

func ruleDefaults(e *env) {
	g := source("a")
	e.create(g, numbered(g, queue, 2)...)
	q := e.info(queue)
	is(e, "settings", q.Settings, dispatch.DefaultQueueSettings())
	is(e, "name of the settings", q.SettingsName, "")
	e.settle(retry(e.takeTask(), 0))
	is(e, "next", e.takeNone().Next, start.Add(dispatch.DefaultQueueSettings().MinDelay))
}

// ruleOpening raises a limit that holds many queues: every
// queue goes on, none waits for an end that does not come.
func ruleOpening(e *env) {
	e.rule("*", delayed(0, 1))
	g := source("a")
	names := e.queues(250)
	var items []dispatch.Submission
	for _, name := range names {
		items = append(items, item(g, name, "1"), item(g, name, "2"))
	}
	e.create(g, items...)
	e.takeMany(len(names))
	is(e, "wait", e.takeNone().Wait, dispatch.WaitThrottled)
	e.rule("*", delayed(0, 2))
	e.takeMany(len(names))
	e.takeNone()
}

func ruleMapping(e *env) {
	e.setRule(dispatch.QueueRule{Pattern: "*.mirrors.test", Queue: "mirrors", Settings: delayed(0, 7)})
	g := source("a")
	e.create(g, item(g, "mirrors", "k"), item(g, "x.mirrors.test", "k"))
	is(e, "in flight of the queue", e.info("mirrors").Settings.MaxInFlight, 7)
	is(e, "name of its settings", e.info("mirrors").SettingsName, "mirrors")
	is(e, "in flight of a host", e.info("x.mirrors.test").Settings.MaxInFlight, dispatch.DefaultQueueSettings().MaxInFlight)
}

func ruleLater(e *env) {
	e.rule("*", delayed(time.Minute, 9))
	g := source("a")
	e.create(g, numbered(g, queue, 4)...)
	e.takeOne()
	e.rule("*", delayed(10*time.Second, 9))
	e.advance(time.Minute)
	e.takeOne()
	is(e, "next", e.takeNone().Next, e.now().Add(10*time.Second))
}
