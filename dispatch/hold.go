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

// GateKind says what kind of thing holds a grant. It is open: more kinds will
// come.
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
	// Cause is, of GateHostBlocked, the failure behind it; nil where it is not known.
	Cause *BlockCause `json:"-"`
	// Hold is the hold behind the gate, nil of other gates. It is not changed.
	Hold *Hold `json:"-"`
}

// BlockCause is the failure that began an automatic block, or last lengthened it, and
// the task whose attempt ended so.
type BlockCause struct {
	Task    TaskID
	Failure Failure
}

// HoldTarget is what a hold is on: exactly one field is set.
type HoldTarget struct {
	// Everything: nothing at all is granted.
	Everything bool   `json:"everything,omitempty"`
	Pool       string `json:"pool,omitempty"`
	// Source is an id, which no source need have yet.
	Source string `json:"source,omitempty"`
	// Queue is a name, or "*.suffix" for all names below it, those of hosts never seen
	// too.
	Queue string `json:"queue,omitempty"`
	// Collector is an id. Labels are of all collectors that have all of them, also of
	// those that come later.
	Collector string            `json:"collector,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// Key tells targets apart: it is the same for equal ones, also where labels come in
// another order.
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

// Has reports whether the target is a collector with these labels, or labels that it has.
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

// HoldEffect is what a hold does beside stopping grants.
type HoldEffect uint8

// The effects of holds.
const (
	// StopGrants: leases that stand go on.
	StopGrants HoldEffect = iota
	// EndLeases: those of the target end, too: their holders are asked to stop
	// ([CancelHeld]).
	EndLeases
)

// The names of holds that have a meaning.
const (
	// HoldDefault is the name of a hold that was given none.
	HoldDefault = "default"
	// HoldWaggle is the name under which the blocks that Waggle makes itself are listed
	// and lifted. Operators cannot set it.
	HoldWaggle = "waggle"
)

// Hold is an operator's order to grant nothing of its target, or nothing to it. It is
// identified by target and name. All holds of a target apply; to lift one leaves the
// others.
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

// Key tells holds apart: it is the same for those of one target and name.
func (h *Hold) Key() string { return h.Target.Key() + "\x00" + h.Name }

// Over reports whether the hold has ended by itself.
func (h *Hold) Over(now time.Time) bool { return !h.Until.IsZero() && !h.Until.After(now) }

// End is when the hold ends: [Forever] when somebody has to lift it.
func (h *Hold) End() time.Time {
	if h.Until.IsZero() {
		return Forever
	}
	return h.Until
}

// Same reports whether both are one hold that says the same, whenever it was set.
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

// LastEnd is when the last of the holds ends that are not over; zero when all are.
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
	// Set are kept, each in place of the one with its key.
	Set []Hold
	// Lift are the keys of those to remove; ones that do not exist are no error.
	Lift []string
	// Queues has, for each target queue of Set and Lift, until when holds stop it after
	// the change ([LastEnd] of all that stand on it): zero, no more.
	Queues map[string]time.Time
}

// Holds keeps the holds of operators on all but sources; those of a source are in
// [Source.Holds]. Dispatchers read them, and apply those on everything, on pools and on
// collectors, before they claim. Shards know their version, refuse claims of dispatchers
// that know an older one ([ErrStaleHolds]), and apply those on queues.
type Holds interface {
	// Holds reads all holds, those that are over too, with their version and the
	// store's clock, in no order; none where have is the version.
	Holds(ctx context.Context, have int64) (holds []Hold, version int64, now time.Time, err error)
	// PutHolds changes the holds under a new version, which it answers: the greater of
	// ifVersion+1 and the store's clock in milliseconds, so that versions rise even if a
	// failover has lost the last change. It does so in one step, and only if they have
	// version ifVersion (0 = none was ever set): else ErrEtagMismatch. When it returns, no
	// shard grants to claims of an older version, nor from queues that are held; replays
	// go on. ErrInvalid beyond [bounds.MaxHolds]. A change of nothing gives a new version,
	// too. After an error some shards may not know of the change: those on queues hold
	// there once [Queues.SyncRules] has brought them to it, or PutHolds was called again,
	// which makes the shards equal to shard 0 whatever they had. Queues that a change lets
	// go on are found by SyncRules.
	PutHolds(ctx context.Context, change HoldChange, ifVersion int64) (version int64, err error)
}

// HoldBook is the holds of [Holds] that are in force at one time. It is not changed once
// made; nil is one of no holds.
type HoldBook struct {
	Version int64
	// All that are in force, by key.
	All []Hold
	// Next is when the next of them ends by itself; zero: none does.
	Next time.Time

	everything []*Hold
	pools      map[string][]*Hold
	queues     map[string][]*Hold
	collectors map[string][]*Hold
	labels     []*Hold
}

// NewHoldBook makes the book of those of the holds that are in force.
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

// Collector are the holds on a collector with these labels, without those on everything:
// the one that ends last first.
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

// StopsCollector reports whether a hold stops a collector with these labels. Those on
// everything do not count: the collector is asked nothing by them.
func (b *HoldBook) StopsCollector(collector string, labels map[string]string) bool {
	return len(b.Collector(collector, labels)) > 0
}

// StopsPool reports whether a hold on the pool, or on everything, stops grants of it.
func (b *HoldBook) StopsPool(pool string) bool {
	return len(b.Everything())+len(b.Pool(pool)) > 0
}
