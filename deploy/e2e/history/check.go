package history

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	// fenceSlack is how far a fence may lie behind the instant of its grant, in µs: a claim grants up to 100 tasks at
	// one instant, with fences a microsecond apart.
	fenceSlack = 100
	// clockSlack is how much earlier than to the microsecond a lease may end, in µs: deadlines are kept to the millisecond.
	clockSlack = 1000
)

// Violation says in words how a history breaks a promise.
type Violation string

func violationf(format string, args ...any) Violation { return Violation(fmt.Sprintf(format, args...)) }

// NothingLost checks P1: every task that was acknowledged to its submitter has ended DONE, by a report that was
// accepted, or by one whose answer a killed collector did not live to write down. states has the state in the store of
// every such task. unanswered is how many tasks the second case was needed for.
func (h *History) NothingLost(states map[string]string, killed map[string]bool) (found []Violation, unanswered int) {
	for _, task := range slices.Sorted(maps.Keys(states)) {
		leases := h.tasks[task]
		accepted := slices.ContainsFunc(leases, func(l *lease) bool { return l.succeeded && l.accepted })
		missed := slices.ContainsFunc(leases, func(l *lease) bool { return l.succeeded && killed[l.collector] })
		switch {
		case states[task] != "TASK_STATE_DONE":
			found = append(found, violationf("P1: task %s ended as %s", task, states[task]))
		case accepted:
		case missed:
			unanswered++
		default:
			found = append(found, violationf("P1: task %s is DONE, and no report that went out can have done it", task))
		}
	}
	return found, unanswered
}

// OneHolder checks P2: no lease began while an earlier one of the same task stood for sure, that is, before the deadline
// that its collector was told, before it sent a report, and before it began anew.
func (h *History) OneHolder() []Violation {
	var found []Violation
	for _, task := range slices.Sorted(maps.Keys(h.tasks)) {
		leases := h.tasks[task]
		for i, next := range leases {
			for _, held := range leases[:i] {
				if left := held.certainEnd() - next.fence; left > clockSlack {
					found = append(found, violationf("P2: task %s was granted to %s while %s held it for another %v: %s, %s",
						task, next.collector, held.collector, duration(left), held.token, next.token))
				}
			}
		}
	}
	return found
}

// StaleRefused checks P3: no report or renewal that went out after a later lease of its task had come was accepted.
func (h *History) StaleRefused() []Violation {
	var found []Violation
	for _, e := range h.Events {
		l := h.leases[e.Token]
		if l == nil || e.Kind != Renewed && (e.Kind != Reported || e.Code != OK) {
			continue
		}
		for _, later := range h.tasks[l.task] {
			if later.fence > l.fence && later.came < e.Sent {
				found = append(found, violationf("P3: %s of %s was accepted, %v after %s had come", e.Kind, l.token, duration(e.Sent-later.came), later.token))
			}
		}
	}
	return found
}

// FencesRise checks P4: no two leases of a shard have one fence, and when a fetch went out after the reply with another
// lease had come, its lease has the higher fence of the two. (Went out for the first time: a fetch that is repeated
// answers what an earlier one was granted.) shard tells the shard of a task.
func (h *History) FencesRise(shard func(task string) int) []Violation {
	type fetched struct {
		Event
		shard int
	}
	var grants []fetched
	var found []Violation
	began := map[[2]string]int64{} // when a client token first went out
	first := map[string]bool{}
	for _, e := range h.Events { // by Time, so the first event of its kind comes first
		key := [2]string{e.Collector, e.ClientToken}
		switch {
		case e.Kind == FetchSent && began[key] == 0:
			began[key] = e.Time
		case e.Kind == Granted && !first[e.Token]:
			first[e.Token] = true
			e.Sent = began[key]
			grants = append(grants, fetched{e, shard(e.Task)})
		}
	}
	taken := map[[2]int64]string{}
	for _, g := range grants {
		key := [2]int64{int64(g.shard), g.Fence}
		if other, is := taken[key]; is {
			found = append(found, violationf("P4: fence %d of shard %d was given to %s and to %s", g.Fence, g.shard, other, g.Token))
		}
		taken[key] = g.Token
	}
	bySent := slices.Clone(grants)
	slices.SortStableFunc(bySent, func(a, b fetched) int { return cmp.Compare(a.Sent, b.Sent) })
	highest := map[int]Event{} // by shard, of the replies that had come
	came := 0
	for _, g := range bySent {
		for ; came < len(grants) && grants[came].Time < g.Sent; came++ {
			if c := grants[came]; c.Fence > highest[c.shard].Fence {
				highest[c.shard] = c.Event
			}
		}
		if before := highest[g.shard]; g.Fence <= before.Fence {
			found = append(found, violationf("P4: %s was fetched after %s had come, and its fence is not higher", g.Token, before.Token))
		}
	}
	return found
}

// Polite checks P6: in each queue, leases begin at least delay apart by the store's clock, and no more than limit stand
// for sure at any moment.
func (h *History) Polite(delay time.Duration, limit int) []Violation {
	var found []Violation
	queues := h.queues()
	for _, queue := range slices.Sorted(maps.Keys(queues)) {
		leases := queues[queue]
		for i, l := range leases[1:] {
			if gap := l.fence - leases[i].fence; gap < delay.Microseconds()-fenceSlack {
				found = append(found, violationf("P6: queue %s began %s only %v after %s", queue, l.token, duration(gap), leases[i].token))
			}
		}
		for i, l := range leases {
			standing := []string{l.token}
			for _, held := range leases[:i] {
				if left := held.certainEnd() - clockSlack - l.fence; left > 0 {
					standing = append(standing, fmt.Sprintf("%s for another %v", held.token, duration(left)))
				}
			}
			if len(standing) > limit {
				found = append(found, violationf("P6: queue %s had %d leases in flight; its limit is %d: %s", queue, len(standing), limit, strings.Join(standing, ", ")))
			}
		}
	}
	return found
}

// ReplayHarmless checks P7: a fetch repeated with its client token answers what it answered before or less, never more;
// no report is accepted as new twice, and no task by two leases.
func (h *History) ReplayHarmless() []Violation {
	var found []Violation
	granted := map[[2]string]map[string]bool{} // the lease tokens of a client token's first reply
	firstSent := map[[2]string]int64{}
	for _, e := range h.Events {
		if e.Kind != Granted {
			continue
		}
		key := [2]string{e.Collector, e.ClientToken}
		if granted[key] == nil {
			granted[key], firstSent[key] = map[string]bool{}, e.Sent
		}
		if e.Sent == firstSent[key] {
			granted[key][e.Token] = true
		} else if !granted[key][e.Token] {
			found = append(found, violationf("P7: the client token %s of %s first answered %d leases, and later %s too",
				e.ClientToken, e.Collector, len(granted[key]), e.Token))
		}
	}
	for _, task := range slices.Sorted(maps.Keys(h.tasks)) {
		settled := ""
		for _, l := range h.tasks[task] {
			if l.oks > 1 {
				found = append(found, violationf("P7: the report of %s was accepted as new %d times", l.token, l.oks))
			}
			if !l.accepted || !l.succeeded {
				continue
			}
			if settled != "" {
				found = append(found, violationf("P7: task %s was settled by %s and by %s", task, settled, l.token))
			}
			settled = l.token
		}
	}
	return found
}

// RenewedInTime checks of P11 that no lease renewed in time is lost: no beat that went out while its lease stood for sure was answered
// that the lease is gone, unless that was reported, revoked or replaced.
func (h *History) RenewedInTime() []Violation {
	var found []Violation
	for _, e := range h.Events {
		l := h.leases[e.Token]
		if l == nil || e.Kind != Lost || strings.HasSuffix(e.Code, "REVOKED") || strings.HasSuffix(e.Code, "COLLECTOR_REPLACED") {
			continue
		}
		reported := l.reportSent != 0 && l.reportSent < e.Time
		if left := l.until - e.Sent; left > clockSlack && !reported {
			found = append(found, violationf("P11: %s was lost (%s), though it was renewed %v before its end", l.token, e.Code, duration(left)))
		}
	}
	return found
}

// Summary is what a history holds, for people.
type Summary struct {
	Leases, Tasks      int
	Accepted           int            // leases with a report that was accepted
	Refused            int            // reports answered LEASE_LOST
	Lost               map[string]int // leases that a beat was told to be lost, by why
	LeaseGap, StartGap time.Duration
}

// Summary counts. LeaseGap is the smallest distance between two leases of one queue by the store's clock, StartGap that
// between two starts of the handler by the collectors'.
func (h *History) Summary() Summary {
	s := Summary{Leases: len(h.leases), Tasks: len(h.tasks), Lost: map[string]int{}, LeaseGap: math.MaxInt64, StartGap: math.MaxInt64}
	for _, l := range h.leases {
		if l.accepted {
			s.Accepted++
		}
	}
	starts := map[string]int64{} // the last by queue
	for _, e := range h.Events {
		switch {
		case e.Kind == Reported && e.Code == LeaseLost:
			s.Refused++
		case e.Kind == Lost:
			s.Lost[strings.TrimPrefix(e.Code, "LOST_REASON_")]++
		case e.Kind == Started:
			if last, is := starts[e.Queue]; is {
				s.StartGap = min(s.StartGap, duration(e.Time-last))
			}
			starts[e.Queue] = e.Time
		}
	}
	for _, leases := range h.queues() {
		for i, l := range leases[1:] {
			s.LeaseGap = min(s.LeaseGap, duration(l.fence-leases[i].fence))
		}
	}
	return s
}

// queues is all leases by queue, each in the order of fences.
func (h *History) queues() map[string][]*lease {
	queues := map[string][]*lease{}
	for _, l := range h.leases {
		queues[l.queue] = append(queues[l.queue], l)
	}
	for _, leases := range queues {
		slices.SortFunc(leases, func(a, b *lease) int { return cmp.Compare(a.fence, b.fence) })
	}
	return queues
}

func duration(micros int64) time.Duration { return time.Duration(micros) * time.Microsecond }
