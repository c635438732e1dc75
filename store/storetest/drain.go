package storetest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// maxDrain bounds the rounds of a drain.
const maxDrain = 5_000

// drain lifts all gates and works until every task has settled: what was
// acknowledged ends, and nothing is stuck (P1, T30).
func (m *model) drain() error {
	m.queued = nil
	if err := m.applyAll(m.liftAll()); err != nil {
		return err
	}
	for range maxDrain {
		waiting, leased := m.waiting(), m.leased()
		if len(waiting)+len(leased) == 0 {
			return m.drained()
		}
		if err := m.applyAll(m.drainRound()); err != nil {
			return err
		}
	}
	left := m.waiting()
	if len(left) > 0 {
		t := left[0]
		return broken("%d tasks still wait after %d rounds, such as %s of %s, due %v (P1)", len(left), maxDrain, t.Key, t.Queue, t.Due)
	}
	return broken("%d tasks are still leased after %d rounds (P1)", len(m.leased()), maxDrain)
}

func (m *model) applyAll(steps []step) error {
	for _, s := range steps {
		if err := m.apply(s); err != nil {
			return err
		}
		for len(m.queued) > 0 {
			next := m.queued[0]
			m.queued = m.queued[1:]
			if err := m.apply(next); err != nil {
				return err
			}
		}
	}
	return nil
}

// liftAll opens every gate that someone set.
func (m *model) liftAll() []step {
	var steps []step
	for _, pattern := range slices.Sorted(maps.Keys(m.world.rules.rules)) {
		steps = append(steps, m.deleteRuleStep(pattern))
	}
	steps = append(steps, m.ruleStep(dispatch.QueueRule{Pattern: "*", Settings: delayed(0, 1000)}))
	steps = append(steps, m.holdsStep(nil, slices.Sorted(maps.Keys(m.world.holds.holds))...))
	steps = append(steps, m.syncSteps()...)
	for _, name := range modelQueues() {
		steps = append(steps, m.unblockStep(name))
	}
	for _, t := range m.world.all() {
		if t.lockUntil.Equal(noEnd) {
			steps = append(steps, m.deleteLockStep(t))
		}
	}
	for _, s := range m.sources {
		s.gate.Version++
		s.gate.HeldUntil = time.Time{}
		steps = append(steps, m.pushSteps(s.gate)...)
	}
	return steps
}

// drainRound settles what the round before granted, sweeps, drops what belongs to deleted sources, grants all that can
// be had, and moves the clock on.
func (m *model) drainRound() []step {
	var steps []step
	var transitions []dispatch.Transition
	for _, t := range m.leased() {
		task := t.Task
		transitions = append(transitions, done(&task))
	}
	if len(transitions) > 0 { // first, since some leases are as short as a round
		steps = append(steps, m.applyStep(transitions))
	}
	unsettled := m.world.unsettled()
	for shard := range m.world.shards {
		steps = append(steps, m.sweepStep(shard, 100))
		for _, uid := range slices.Sorted(maps.Keys(m.world.gone)) {
			if unsettled[shardSource{shard, uid}] {
				steps = append(steps, m.dropStep(shard, uid, nil))
			}
		}
		for _, name := range []string{pool, "browser"} {
			token, call := m.token()
			want := dispatch.Want{
				Poll: dispatch.Poll{Collector: "drain", Session: "s1", ClientToken: token, Call: call},
				Max:  100, MaxBytes: manyBytes, Lease: time.Minute,
			}
			steps = append(steps, m.claimStep(shard, name, []dispatch.Want{want}, fmt.Sprintf("shard=%d pool=%s drain", shard, name)))
		}
	}
	step := 3 * time.Second
	if m.chance(5) {
		step = 2 * time.Hour
	}
	return append(steps, m.advanceStep(max(step, m.untilDue())))
}

// untilDue is how long nothing that waits is due; 0 when nothing waits.
func (m *model) untilDue() time.Duration {
	waiting := m.waiting()
	if len(waiting) == 0 {
		return 0
	}
	first := slices.MinFunc(waiting, func(a, b *modelTask) int { return a.Due.Compare(b.Due) })
	return first.Due.Sub(m.world.now())
}

// shardSource is a source in a shard.
type shardSource struct {
	shard int
	uid   string
}

// unsettled are those that have tasks which do not settle by themselves.
func (w *world) unsettled() map[shardSource]bool {
	has := map[shardSource]bool{}
	for _, t := range w.all() {
		if !t.State.Settled() {
			has[shardSource{t.shard, t.SourceUID}] = true
		}
	}
	return has
}

// drained checks the empty store.
func (m *model) drained() error {
	if err := m.checkAll(); err != nil {
		return err
	}
	for shard, p := range m.world.parts {
		for name, q := range p.queues {
			if q.leased != 0 {
				return broken("queue %s of shard %d has %d in flight and no lease", name, shard, q.leased)
			}
		}
	}
	m.world.count("drained")
	return nil
}

// required are the operations and outcomes that a long run must have met.
func required() []string {
	var codes []string
	for code := dispatch.SubmitCreated; code <= dispatch.SubmitSourceDeleted; code++ {
		codes = append(codes, fmt.Sprint("submit code ", code))
	}
	for code := dispatch.Applied; code <= dispatch.ApplyUnread; code++ {
		codes = append(codes, fmt.Sprint("apply code ", code))
	}
	for reason := dispatch.LostUnknownTask; reason < dispatch.LostMalformed; reason++ {
		codes = append(codes, fmt.Sprint("renew LOST ", reason))
	}
	return append(codes, []string{
		"submit", "submit EXISTS settled", "submit LIMITED revisit",
		"claim", "claim with grants", "claim without grants", "claim TOKEN_USED", "claim TOKEN_USED, all ended", "claim replay with grants",
		"claim by a replaced session", "claim cut by MAX_HOLD", "claim THROTTLED", "claim HELD", "claim NO_TASKS",
		"renew OK", "renew cut by MAX_HOLD", "renew after the lock ran out", "renew over a foreign lock", "apply LOST, renewed",
		"apply succeeded", "apply failed", "apply released", "apply expired", "apply none", "apply revoked", "apply held too long",
		"succeed DONE", "succeed POLICY",
		"queue blocked", "queue with the gate HOST_BLOCKED", "queue delayed by its host", "grant of a task that is behind", "submit REVISIT, changed since",
		"sweep", "sweep in grace", "sweep after an outage", "sweep found an expired lease",
		"give back", "give back too late", "give back of another call's", "give back of a canceled",
		"used after a step back", "poll after a step back",
		"poll", "poll TOKEN_USED", "poll replay with grants", "session NEW", "session REPLACED",
		"session ended a lease", "cancel of a leased task", "delete lock", "delete lock of an orphan", "set lock", "set lock over a lease's",
		"push", "push held", "push deleted", "push of an older version", "drop of a task",
		"set rule", "delete rule", "sync rules", "put holds", "put holds of an older version", "set hold of a queue", "set hold of a pattern",
		"set hold of no queue", "lift hold", "read holds", "unblock", "unblock of a blocked queue", "list pools",
		"claim by older holds", "cancel by a hold", "renew of a held task", "give back of a held task", "source that is gone", "source created under a gone id",
		"step back", "step back far", "list tasks", "list queues", "list leases", "list collectors", "list sources", "stats",
		"beat", "forget collectors", "drained",
		"bind collector", "bind of another's collector", "release collector", "append audit", "list audit", "put notice", "list notices",
	}...)
}
