package dispatch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// GateKind is the kind of a gate. It is open: more kinds will come.
type GateKind string

// The gates of this version.
const (
	GateNotDue         GateKind = "NOT_DUE"         // due time
	GateMinDelay       GateKind = "MIN_DELAY"       // politeness of the queue
	GateMaxInFlight    GateKind = "MAX_IN_FLIGHT"   // leases of the queue
	GateHostBlocked    GateKind = "HOST_BLOCKED"    // automatic block
	GateEverythingHeld GateKind = "EVERYTHING_HELD" // a hold on everything
	GatePoolHeld       GateKind = "POOL_HELD"       // a hold on the pool
	GateSourceHeld     GateKind = "SOURCE_HELD"     // a hold on the source
	GateQueueHeld      GateKind = "QUEUE_HELD"      // a hold on the queue, or on a pattern that matches it
	GateCollectorHeld  GateKind = "COLLECTOR_HELD"  // a hold on the collector, or on labels that it has
	GateSourceDeleted  GateKind = "SOURCE_DELETED"  //
	GateBreaker        GateKind = "BREAKER"         // a seed that keeps failing
	GateNoCollector    GateKind = "NO_COLLECTOR"    // nobody takes tasks of the pool
	GateLeased         GateKind = "LEASED"          // somebody works on the task
	GateSettled        GateKind = "SETTLED"         // the task is DONE, DEAD or CANCELED
	GateNoSeeds        GateKind = "NO_SEEDS"        // the source has none
	GateLocked         GateKind = "LOCKED"          // a lock that no lease has set
)

// Gate is anything that can hold a grant.
type Gate struct {
	Kind   GateKind  `json:"kind"`
	Until  time.Time `json:"until,omitzero"` // zero = until someone lifts it
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Time   time.Time `json:"time,omitzero"` // when it was set
	// Cause is the failure behind a GateHostBlocked; nil: not known.
	Cause *BlockCause `json:"-"`
	// Hold is the hold behind the gate, nil for other gates. It is not changed.
	Hold *Hold `json:"-"`
}

// BlockCause is the failure that began an automatic block, or last extended it, and the task that failed.
type BlockCause struct {
	Task    TaskID
	Failure Failure
}

// HoldTarget is what a hold is on: exactly one field is set.
type HoldTarget struct {
	// Everything: no grants at all.
	Everything bool   `json:"everything,omitempty"`
	Pool       string `json:"pool,omitempty"`
	// Source is an id; the source need not exist.
	Source string `json:"source,omitempty"`
	// Queue is a name, or "*.suffix" for all names below it, also those of unknown hosts.
	Queue string `json:"queue,omitempty"`
	// Collector is an id. Labels select all collectors that have all of them, also later ones.
	Collector string            `json:"collector,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// Key identifies a target. It is equal for equal targets; the order of labels does not matter.
func (t *HoldTarget) Key() string {
	switch {
	case t.Everything:
		return "everything"
	case t.Pool != "":
		return "pool\x00" + t.Pool
	case t.Source != "":
		return "source\x00" + t.Source
	case t.Queue != "":
		return "queue\x00" + t.Queue
	case t.Collector != "":
		return "collector\x00" + t.Collector
	}
	parts := []string{"labels"}
	for _, key := range slices.Sorted(maps.Keys(t.Labels)) {
		parts = append(parts, key, t.Labels[key])
	}
	return strings.Join(parts, "\x00")
}

// String names the target in words.
func (t *HoldTarget) String() string { return strings.ReplaceAll(t.Key(), "\x00", " ") }

// Validate reports, as a [FieldError], a target that is none.
func (t *HoldTarget) Validate() error {
	set := 0
	for _, has := range []bool{t.Everything, t.Pool != "", t.Source != "", t.Queue != "", t.Collector != "", len(t.Labels) > 0} {
		if has {
			set++
		}
	}
	switch {
	case set != 1:
		return Invalid("target", t,
			fmt.Sprintf("must name exactly one of everything, a pool, a source, a queue, a collector and labels; it names %d", set))
	case t.Queue == "*":
		return Invalid("target.queue", t.Queue, "must be a queue name or \"*.suffix\"; everything is a target of its own")
	case t.Queue != "" && !validPattern(t.Queue):
		return Invalid("target.queue", t.Queue, fmt.Sprintf("must be a queue name or \"*.suffix\", of 1 to %d bytes in lower case", bounds.MaxQueueLength))
	case len(t.Labels) > bounds.MaxHoldLabels:
		return Invalid("target.labels", len(t.Labels), fmt.Sprintf("must be at most %d", bounds.MaxHoldLabels))
	}
	return nil
}

// HoldEffect is what a hold does to existing leases.
type HoldEffect uint8

// The effects of holds.
const (
	// StopGrants: existing leases continue.
	StopGrants HoldEffect = iota
	// EndLeases: leases of the target end; their holders are asked to stop ([CancelHeld]).
	EndLeases
)

// The names of holds that have a meaning.
const (
	// HoldDefault is the name of a hold without a name.
	HoldDefault = "default"
	// HoldWaggle is the name of the blocks that Waggle makes itself, in lists and to lift them. Operators cannot set
	// it.
	HoldWaggle = "waggle"
)

// Hold is an operator's order to grant nothing of its target, or nothing to it. Target and name identify it. All holds
// of a target apply; lifting one leaves the others.
type Hold struct {
	Target HoldTarget `json:"target"`
	Name   string     `json:"name"`
	Effect HoldEffect `json:"effect,omitempty"`
	By     string     `json:"by,omitempty"`
	Reason string     `json:"reason,omitempty"`
	// Created is when it was set, by the store's clock, in whole milliseconds.
	Created time.Time `json:"created"`
	// Until is when it ends by itself; zero: when somebody lifts it.
	Until time.Time `json:"until,omitzero"`
}

// Key identifies a hold by target and name.
func (h *Hold) Key() string { return h.Target.Key() + "\x00" + h.Name }

// Over reports whether the hold has ended by itself.
func (h *Hold) Over(now time.Time) bool { return !h.Until.IsZero() && !h.Until.After(now) }

// End is when the hold ends: [Forever] if somebody has to lift it.
func (h *Hold) End() time.Time {
	if h.Until.IsZero() {
		return Forever
	}
	return h.Until
}

// Gate is the gate that the hold closes.
func (h *Hold) Gate() Gate {
	gate := Gate{Until: h.Until, By: h.By, Reason: h.Reason, Time: h.Created, Hold: h}
	switch t := &h.Target; {
	case t.Everything:
		gate.Kind = GateEverythingHeld
	case t.Pool != "":
		gate.Kind = GatePoolHeld
	case t.Source != "":
		gate.Kind = GateSourceHeld
	case t.Queue != "":
		gate.Kind = GateQueueHeld
	default:
		gate.Kind = GateCollectorHeld
	}
	return gate
}

// HoldChange is a change of the holds that are not on sources.
type HoldChange struct {
	// Set are stored; each replaces the one with its key.
	Set []Hold
	// Lift are the keys of holds to remove; unknown keys are no error.
	Lift []string
	// Queues has, for each target queue of Set and Lift, until when holds stop it after
	// the change, the last end of all that stand on it: zero, no more.
	Queues map[string]time.Time
}

// Holds keeps the holds of operators, except those on sources ([Source.Holds]). Dispatchers apply the holds on
// everything, on pools and on collectors before they claim. Shards apply the holds on queues. Shards also know the
// version of the holds, and refuse claims of a dispatcher with an older one ([ErrStaleHolds]).
type Holds interface {
	// Holds reads all holds, also those that are over, in no order, with their version and the store's clock. It
	// returns no holds if have is the version.
	Holds(ctx context.Context, have int64) (holds []Hold, version int64, now time.Time, err error)
	// PutHolds changes the holds in one step and returns their new version. It succeeds only if they have version
	// ifVersion (0 = none was ever set), else ErrEtagMismatch. The new version is the greater of ifVersion+1 and the
	// store's clock in milliseconds, so that versions rise even after a failover that lost the last change. When it
	// returns, no shard grants to claims of an older version, or from held queues; replays continue. ErrInvalid beyond
	// [bounds.MaxHolds]. An empty change also gives a new version. After an error some shards may not have the change,
	// and so not the holds on queues. [Queues.SyncRules] repairs them, and so does the next PutHolds: it makes all
	// shards equal to shard 0. SyncRules also reschedules the queues that a change releases.
	PutHolds(ctx context.Context, change HoldChange, ifVersion int64) (version int64, err error)
}
