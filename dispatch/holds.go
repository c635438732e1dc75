package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// HeldKind says what kind of thing a gate is of.
type HeldKind uint8

// What gates are of.
const (
	HeldTask HeldKind = iota + 1
	HeldSource
	HeldQueue
	HeldPool
)

// Hold is a gate with what it is of.
type Hold struct {
	Gate
	Of   HeldKind
	Name string // id of the task or source, name of the queue or pool; everyQueue
}

// maxQuoted bounds what a gate quotes of a failure, in bytes.
const maxQuoted = 300

// holdsOf is what holds a task of a source, from the source to its pool and
// queue; without a task, what would hold any.
func (d *Dispatcher) holdsOf(ctx context.Context, source *Source, t *Task, now time.Time) ([]Hold, error) {
	var holds []Hold
	if p := source.PausedAt(now); p != nil {
		holds = append(holds, Hold{*p, HeldSource, source.ID})
	}
	if t != nil && t.Due.After(now) {
		holds = append(holds, Hold{t.dueGate(source.Spec.Schedule.Once()), HeldTask, string(t.ID)})
	}
	pool, err := d.poolHolds(ctx, source.Spec.Pool, now)
	if err != nil {
		return nil, err
	}
	holds = append(holds, pool...)
	if t == nil {
		return d.stopped(ctx, holds)
	}
	queue, err := d.Queue(ctx, t.Queue)
	if errors.Is(err, ErrQueueNotFound) {
		return holds, nil
	}
	if err != nil {
		return nil, err
	}
	return append(holds, queue.holds()...), nil
}

func (q *Queue) holds() []Hold {
	holds := make([]Hold, len(q.Gates))
	for i, gate := range q.Gates {
		holds[i] = Hold{gate, HeldQueue, q.Name}
	}
	return holds
}

// everyQueue is the pattern of the rule for all queues, and what it holds.
const everyQueue = "*"

// stopped is holds with the emergency stop, where what is asked about has no queue
// whose gates would show it.
func (d *Dispatcher) stopped(ctx context.Context, holds []Hold) ([]Hold, error) {
	rules, err := d.catalog.ruleBook(ctx)
	if err != nil {
		return nil, fmt.Errorf("read queue rules: %w", err)
	}
	if rule := rules.bySettings[everyQueue]; rule.Settings.Paused {
		holds = append(holds, Hold{rule.gate(GateQueuePaused), HeldQueue, everyQueue})
	}
	return holds, nil
}

// poolHolds are the gates of a pool.
func (d *Dispatcher) poolHolds(ctx context.Context, pool string, now time.Time) ([]Hold, error) {
	known, err := d.pool(ctx, pool)
	if err != nil {
		return nil, err
	}
	nobody, err := d.collectorGates(ctx, []string{pool}, now)
	var holds []Hold
	for _, gate := range []*Gate{known.Paused, nobody[pool]} {
		if gate != nil {
			holds = append(holds, Hold{*gate, HeldPool, pool})
		}
	}
	return holds, err
}

// collectorsLookedAt bounds, page by page, how many collectors are looked at for
// those that take the tasks of pools. The first page is short, since one that does is
// mostly among the first.
const (
	collectorsAtFirst  = 20
	collectorsPerLook  = 200
	collectorsLookedAt = 1000
)

// collectorGates are there of the pools of which no collector that is active takes
// tasks, or all that would are drained: then it is the drain that ends first.
func (d *Dispatcher) collectorGates(ctx context.Context, pools []string, now time.Time) (map[string]*Gate, error) {
	book, err := d.drains.current(ctx)
	if err != nil {
		return nil, err
	}
	unmet := make(map[string]*Drain, len(pools)) // pools that nobody was found for so far
	for _, pool := range pools {
		unmet[pool] = nil
	}
	var silent []string // of their pools
	all, err := d.eachCollector(ctx, collectorsLookedAt, func(c *CollectorRecord) bool {
		if c.Gone(now) {
			return true
		}
		drain := book.of(c.Info.ID, &c.Info)
		c.meets(unmet, drain)
		if len(c.Info.Pools) == 0 && drain == nil && !c.Info.Draining {
			silent = append(silent, c.Info.ID)
		}
		return len(unmet) > 0
	})
	if err != nil || !all {
		return nil, err // too many to tell, or somebody was found for each
	}
	return nobodyGates(unmet, silent), nil
}

// eachCollector visits the collectors that are remembered, by id, page by page, until
// most were looked at, or visit wants no more. all tells that it came to the end.
func (d *Dispatcher) eachCollector(ctx context.Context, most int, visit func(*CollectorRecord) (more bool)) (all bool, err error) {
	after, size := "", collectorsAtFirst
	for looked := 0; looked < most; {
		page, err := d.store.ListCollectors(ctx, after, size)
		if err != nil {
			return false, fmt.Errorf("list collectors: %w", err)
		}
		for _, c := range page {
			if !visit(c) {
				return false, nil
			}
		}
		if len(page) < size {
			return true, nil
		}
		looked += size
		after, size = page[len(page)-1].Info.ID, collectorsPerLook
	}
	return false, nil
}

// meets takes the pools that an active collector takes out of unmet; when it is
// drained, by of, it is noted there instead.
func (c *CollectorRecord) meets(unmet map[string]*Drain, of *Drain) {
	for pool, drain := range unmet {
		switch {
		case !c.takes(pool):
		case of != nil && (drain == nil || drain.outlasts(of)):
			unmet[pool] = of
		case of == nil && !c.Info.Draining:
			delete(unmet, pool)
		}
	}
}

func nobodyGates(unmet map[string]*Drain, silent []string) map[string]*Gate {
	gates := make(map[string]*Gate, len(unmet))
	for pool, drain := range unmet {
		gates[pool] = nobodyGate(pool, drain, silent)
	}
	return gates
}

// nobodyGate is why nobody takes tasks of a pool; drain is of collectors that would,
// nil where there are none; silent are the active ones that tell no pools.
func nobodyGate(pool string, drain *Drain, silent []string) *Gate {
	switch {
	case drain != nil:
	case len(silent) == 0:
		return &Gate{Kind: GateNoCollector, Reason: fmt.Sprintf("no active collector takes tasks of pool %q", pool)}
	default:
		who := fmt.Sprintf("%q tells no pools, and takes what its FetchTask names", silent[0])
		if more := len(silent) - 1; more > 0 {
			who = fmt.Sprintf("%q and %d more tell no pools, and take what their FetchTask names", silent[0], more)
		}
		return &Gate{Kind: GateNoCollector, Reason: fmt.Sprintf("no active collector tells that it takes tasks of pool %q; %s", pool, who)}
	}
	gate := drain.Gate
	gate.Reason = cmp.Or(gate.Reason, fmt.Sprintf("the active collectors that take tasks of pool %q are drained", pool))
	return &gate
}

// dueGate is why a task is not due, and until when.
func (t *Task) dueGate(once bool) Gate {
	gate := Gate{Kind: GateNotDue, Until: t.Due, By: "waggle", Reason: "its next cycle has not come"}
	switch {
	case t.Counters.Attempt > 0:
		gate.Reason = "it waits for its next attempt"
		if e := t.LastError; e != nil && e.Message != "" {
			gate.Reason += quoted(e.Message)
		}
	case t.Counters.GivenUp > 0:
		gate.Kind, gate.Reason = GateBreaker, fmt.Sprintf("cycles given up in a row: %d", t.Counters.GivenUp)
	case once || !t.Recurring:
		gate.Reason = "it is due at a time that was asked for"
	}
	return gate
}

// quoted is the message of a failure, cut for a gate's reason.
func quoted(message string) string {
	return " after: " + strings.ToValidUTF8(message[:min(len(message), maxQuoted)], "")
}
