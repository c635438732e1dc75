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

// Has reports whether the target is this collector, or labels that the collector has.
func (t *HoldTarget) Has(collector string, labels map[string]string) bool {
	if t.Collector != "" {
		return t.Collector == collector
	}
	for key, value := range t.Labels {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	return len(t.Labels) > 0
}

// Validate returns a [FieldError] if the target is not valid.
func (t *HoldTarget) Validate() error {
	set := 0
	for _, has := range []bool{t.Everything, t.Pool != "", t.Source != "", t.Queue != "", t.Collector != "", len(t.Labels) > 0} {
		if has {
			set++
		}
	}
	switch {
	case set != 1:
		return Invalid("target", strings.ReplaceAll(t.Key(), "\x00", " "), fmt.Sprintf("must name exactly one of everything, a pool, a source, a queue, a collector and labels; it names %d", set))
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

// Same reports whether both are equal, except for the time they were set.
func (h *Hold) Same(other *Hold) bool {
	return h.Key() == other.Key() && h.Effect == other.Effect && h.By == other.By && h.Reason == other.Reason && h.Until.Equal(other.Until)
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

// LastEnd is the latest end of the holds that are not over; zero if all are over.
func LastEnd(holds []Hold, now time.Time) (last time.Time) {
	for i := range holds {
		if end := holds[i].End(); !holds[i].Over(now) && end.After(last) {
			last = end
		}
	}
	return last
}

// HoldChange is a change of the holds that are not on sources.
type HoldChange struct {
	// Set are stored; each replaces the one with its key.
	Set []Hold
	// Lift are the keys of holds to remove; unknown keys are no error.
	Lift []string
	// Queues has the end of the holds after the change, for each target queue of Set and Lift: [LastEnd] of all holds
	// on it, zero = no hold.
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

// HoldBook is the holds of [Holds] that apply at one time. It is immutable; nil has no holds.
type HoldBook struct {
	Version int64
	// All that apply, by key.
	All []Hold
	// Next is when the next hold ends by itself; zero: none does.
	Next time.Time

	everything []*Hold
	pools      map[string][]*Hold
	queues     map[string][]*Hold
	collectors map[string][]*Hold
	labels     []*Hold
}

// NewHoldBook makes the book of the holds that are not over.
func NewHoldBook(holds []Hold, version int64, now time.Time) *HoldBook {
	b := &HoldBook{Version: version, pools: make(map[string][]*Hold), queues: make(map[string][]*Hold), collectors: make(map[string][]*Hold)}
	b.All = slices.DeleteFunc(slices.Clone(holds), func(h Hold) bool { return h.Over(now) })
	slices.SortFunc(b.All, func(x, y Hold) int { return strings.Compare(x.Key(), y.Key()) })
	for i := range b.All {
		h := &b.All[i]
		if !h.Until.IsZero() && (b.Next.IsZero() || h.Until.Before(b.Next)) {
			b.Next = h.Until
		}
		switch t := &h.Target; {
		case t.Everything:
			b.everything = append(b.everything, h)
		case t.Pool != "":
			b.pools[t.Pool] = append(b.pools[t.Pool], h)
		case t.Queue != "":
			b.queues[t.Queue] = append(b.queues[t.Queue], h)
		case t.Collector != "":
			b.collectors[t.Collector] = append(b.collectors[t.Collector], h)
		case len(t.Labels) > 0:
			b.labels = append(b.labels, h)
		}
	}
	return b
}

// Everything are the holds on everything.
func (b *HoldBook) Everything() []*Hold {
	if b == nil {
		return nil
	}
	return b.everything
}

// Pool are the holds on a pool, without those on everything.
func (b *HoldBook) Pool(pool string) []*Hold {
	if b == nil {
		return nil
	}
	return b.pools[pool]
}

// Queue are the holds on a queue and on patterns that match it, without those on
// everything.
func (b *HoldBook) Queue(queue string) (holds []*Hold) {
	if b == nil || len(b.queues) == 0 {
		return nil
	}
	for _, name := range SettingsNames(queue) {
		holds = append(holds, b.queues[name]...)
	}
	return holds
}

// Collector are the holds on a collector with these labels, without those on everything; the one that ends last comes
// first.
func (b *HoldBook) Collector(collector string, labels map[string]string) (holds []*Hold) {
	if b == nil {
		return nil
	}
	holds = append(holds, b.collectors[collector]...)
	for _, h := range b.labels {
		if h.Target.Has(collector, labels) {
			holds = append(holds, h)
		}
	}
	slices.SortStableFunc(holds, func(x, y *Hold) int { return y.End().Compare(x.End()) })
	return holds
}

// StopsCollector reports whether a hold stops a collector with these labels. Holds on everything do not count, since
// the collector need not do anything.
func (b *HoldBook) StopsCollector(collector string, labels map[string]string) bool {
	return len(b.Collector(collector, labels)) > 0
}

// StopsPool reports whether a hold on the pool, or on everything, stops grants of it.
func (b *HoldBook) StopsPool(pool string) bool {
	return len(b.Everything())+len(b.Pool(pool)) > 0
}
