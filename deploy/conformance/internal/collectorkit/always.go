package collectorkit

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/deploy/conformance/internal/verdict"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// The rules that every scenario keeps, unless its script excuses them.
const (
	ruleIdentity    = "identity"
	ruleFreeSlots   = "free slots"
	ruleTokens      = "client tokens"
	ruleOutcomes    = "one outcome"
	ruleNamesAll    = "beats name all"
	ruleBeatsInTime = "beats in time"
	ruleBeatRate    = "beat rate"
)

// checkAlways judges all that was seen, once the script is over.
func (k *kit) checkAlways(excused []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, rule := range []struct {
		name  string
		check func()
	}{
		{ruleIdentity, k.checkIdentity},
		{ruleFreeSlots, k.checkFreeSlots},
		{ruleTokens, k.checkTokens},
		{ruleOutcomes, k.checkOutcomes},
		{ruleNamesAll, k.checkNamesAll},
		{ruleBeatsInTime, k.checkBeatsInTime},
		{ruleBeatRate, k.checkBeatRate},
	} {
		if !slices.Contains(excused, rule.name) {
			rule.check()
		}
	}
}

// checkIdentity: one collector_id and one session, a UUID, in each call; labels and pools as they were given.
func (k *kit) checkIdentity() {
	var session string
	for _, c := range k.calls {
		var id, of string
		switch {
		case c.fetch != nil:
			id, of = c.fetch.GetCollectorId(), c.fetch.GetSession()
			verdict.Want(c.fetch.GetLabels()["zone"] == "a", "a fetch came without the collector's labels")
		case c.beat != nil:
			id, of = c.beat.GetCollector().GetId(), c.beat.GetCollector().GetSession()
			verdict.Want(c.beat.GetCollector().GetLabels()["zone"] == "a", "a heartbeat came without the collector's labels")
		case c.report != nil:
			id, of = c.report.GetCollectorId(), c.report.GetSession()
		default:
			continue
		}
		verdict.Want(id == k.config.CollectorID, "%s has the collector_id %q, want %q", c.method, id, k.config.CollectorID)
		_, err := uuid.Parse(of)
		verdict.Want(err == nil, "%s has the session %q, want a UUID", c.method, of)
		session = cmp.Or(session, of)
		verdict.Want(session == of, "%s has another session than the calls before", c.method)
	}
}

// checkFreeSlots: a fetch asks for no more tasks than there are slots without a handler.
func (k *kit) checkFreeSlots() {
	for _, c := range k.calls {
		if c.fetch == nil || k.isRepeat(c) {
			continue
		}
		running, which := 0, ""
		for _, l := range k.leases {
			started, finished := k.event("started", l.work.id), k.event("finished", l.work.id)
			// What came within the slack may be seen in the wrong order.
			if started != nil && started.at.Before(c.at.Add(-slack)) && (finished == nil || finished.at.After(c.at.Add(slack))) {
				running++
				which += fmt.Sprintf("; %s since %s", l.work.id, c.at.Sub(started.at).Round(time.Millisecond))
				if finished != nil {
					which += fmt.Sprintf(", and for another %s", finished.at.Sub(c.at).Round(time.Millisecond))
				}
			}
		}
		asked := max(int(c.fetch.GetMaxTasks()), 1)
		verdict.Want(running+asked <= k.config.Slots, "a fetch asked for %d tasks while %d of %d slots were taken%s", asked, running, k.config.Slots, which)
	}
}

// isRepeat reports whether an earlier fetch had the same client token.
func (k *kit) isRepeat(c *call) bool {
	for _, earlier := range k.calls {
		if earlier == c {
			return false
		}
		if earlier.fetch != nil && earlier.fetch.GetClientToken() == c.fetch.GetClientToken() {
			return true
		}
	}
	return false
}

// checkTokens: a fetch has a client token, and once it was answered the next fetch has another.
func (k *kit) checkTokens() {
	answered := map[string]*call{}
	for _, c := range k.calls {
		if c.fetch == nil {
			continue
		}
		token := c.fetch.GetClientToken()
		verdict.Want(token != "", "a fetch came without a client token")
		earlier := answered[token]
		verdict.Want(earlier == nil || earlier.answered.After(c.at.Add(-slack)), "a fetch has the client token of one that was answered")
		if c.hasArrived() {
			answered[token] = c
		}
	}
}

// checkOutcomes: all reports of a lease have the same outcome, and none comes once the lease is lost or the report answered.
func (k *kit) checkOutcomes() {
	for _, l := range k.leases {
		for i, one := range l.reports {
			if i > 0 {
				verdict.Want(proto.Equal(one.report.GetOutcome(), l.reports[0].report.GetOutcome()), "task %s was reported again with another outcome", l.work.id)
			}
			verdict.Want(l.told.IsZero() || one.at.Before(l.told.Add(slack)), "task %s was reported %s after its lease was said to be lost",
				l.work.id, one.at.Sub(l.told).Round(time.Millisecond))
			if i > 0 {
				last := l.reports[i-1]
				isAnswered := last.call.hasArrived() && last.code < wagglev1.ReportCode_REPORT_CODE_STORE_FULL
				verdict.Want(!isAnswered || last.call.answered.After(one.at.Add(-slack)), "task %s was reported again although the report was answered", l.work.id)
			}
		}
	}
}

// checkNamesAll: a beat names each lease that is neither reported nor lost nor over.
func (k *kit) checkNamesAll() {
	for _, c := range k.calls {
		// A beat without any lease may be the last one, or one for the cursor of a single task.
		if c.beat == nil || len(c.beat.GetLeases()) == 1 && c.stream == nil || c.beat.GetCollector().GetEnded() {
			continue
		}
		for _, l := range k.leases {
			over := l.deadline.Add(-margin(l.duration))
			held := !l.answered.IsZero() && l.answered.Before(c.at.Add(-slack)) && len(l.reports) == 0 && l.told.IsZero() && c.at.Before(over.Add(-slack))
			verdict.Want(!held || names(c, l.work.id), "a heartbeat did not name task %s, which was held", l.work.id)
		}
	}
}

// margin is how long before its deadline work on a lease must stop.
func margin(duration time.Duration) time.Duration { return min(duration/10, 2*time.Second) }

// checkBeatsInTime: no more than half of a lease passes from one beat that names it to the next; a third is the rule.
func (k *kit) checkBeatsInTime() {
	end := time.Now()
	for _, l := range k.leases {
		if l.answered.IsZero() {
			continue
		}
		last, until := l.answered, end
		if e := k.event("exit", ""); e != nil {
			until = e.at
		}
		for _, one := range l.reports {
			until = earlier(until, one.at)
		}
		if !l.told.IsZero() {
			until = earlier(until, l.told)
		}
		limit := l.duration/2 + slack/2
		for _, c := range k.calls {
			if c.beat == nil || !names(c, l.work.id) || c.at.Before(last) || c.at.After(until) {
				continue
			}
			verdict.Want(c.at.Sub(last) <= limit, "a beat for a lease of %s came %s after the last, want a third of the lease",
				l.duration, c.at.Sub(last).Round(time.Millisecond))
			last = c.at
		}
		verdict.Want(until.Sub(last) <= limit, "no beat for a lease of %s came for %s, want one after a third of the lease",
			l.duration, until.Sub(last).Round(time.Millisecond))
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// checkBeatRate: at most 10 beats a second.
func (k *kit) checkBeatRate() {
	var beats []time.Time
	for _, c := range k.calls {
		if c.beat != nil {
			beats = append(beats, c.at)
		}
	}
	const most = 20 // in a second: an answer that was lost or a new lease may double it for a moment
	for i := most; i < len(beats); i++ {
		verdict.Want(beats[i].Sub(beats[i-most]) >= time.Second, "%d heartbeats came within a second, want at most 10", most+1)
	}
}
