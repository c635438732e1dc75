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
	GateNotDue        GateKind = "NOT_DUE"           // due time
	GateMinDelay      GateKind = "MIN_DELAY"         // politeness of the queue
	GateMaxInFlight   GateKind = "MAX_IN_FLIGHT"     // leases of the queue
	GateHostBlocked   GateKind = "HOST_BLOCKED"      // automatic block
	GateBlocked       GateKind = "BLOCKED"           // an operator's block
	GatePaused        GateKind = "PAUSED"            // an operator's pause of the queue
	GateQueuePaused   GateKind = "QUEUE_PAUSED"      // a rule's
	GateQueueDenied   GateKind = "QUEUE_DENIED"      // a rule's
	GateSourcePaused  GateKind = "SOURCE_PAUSED"     // an operator's
	GateSourceDeleted GateKind = "SOURCE_DELETED"    //
	GateBreaker       GateKind = "BREAKER"           // a seed that keeps failing
	GatePoolPaused    GateKind = "POOL_PAUSED"       // an operator's
	GateDrained       GateKind = "COLLECTOR_DRAINED" // an operator's, of collectors
	GateNoCollector   GateKind = "NO_COLLECTOR"      // nobody takes tasks of the pool
	GateLeased        GateKind = "LEASED"            // somebody works on the task
	GateSettled       GateKind = "SETTLED"           // the task is DONE, DEAD or CANCELED
	GateNoSeeds       GateKind = "NO_SEEDS"          // the source has none
	GateLocked        GateKind = "LOCKED"            // a lock that no lease has set
)

// Gate is anything that can hold a grant.
type Gate struct {
	Kind   GateKind  `json:"kind"`
	Until  time.Time `json:"until,omitzero"` // zero = until someone lifts it
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Time   time.Time `json:"time,omitzero"` // when it was set
	// Rule is, of GateQueuePaused and GateQueueDenied, the pattern of the rule.
	Rule string `json:"-"`
	// Cause is, of GateHostBlocked, the failure behind it; nil where it is not known.
	Cause *BlockCause `json:"-"`
	// Hold is, of GateDrained, the hold, which says whom it is of. It is not changed.
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
	// Queue or Pool that grants nothing.
	Queue string `json:"queue,omitempty"`
	Pool  string `json:"pool,omitempty"`
	// Collector is the id of one that gets nothing. Labels are of all collectors that
	// have all of them, also of those that come later.
	Collector string            `json:"collector,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// Matches reports whether the target is a collector with these labels, or all such.
func (t *HoldTarget) Matches(collector string, labels map[string]string) bool {
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

// ofCollectors reports whether the target is collectors.
func (t *HoldTarget) ofCollectors() bool { return t.Collector != "" || len(t.Labels) > 0 }

// HoldName tells the holds of one target apart.
type HoldName string

// The names of holds.
const (
	// HoldDefault is the name of holds of pools and collectors.
	HoldDefault HoldName = "default"
	// HoldBlock and HoldPause are those of queues: one is for the sake of the host, the
	// other for any other reason. Neither touches the other.
	HoldBlock HoldName = "block"
	HoldPause HoldName = "pause"
	// HoldWaggle is the block that Waggle sets by itself on a queue after failures of its
	// host. It can only be lifted, and with it the doubling of its length.
	HoldWaggle HoldName = "waggle"
)

// Hold is an operator's rule that nothing of its target, or nothing for it, is granted.
// Leases that stand go on. It is identified by target and name.
type Hold struct {
	Target HoldTarget
	Name   HoldName
	// Gate closes what Target is. Its Until is zero until somebody lifts the hold; its
	// Kind follows from target and name.
	Gate
}

// Key tells holds apart: it is the same for those of one target and name, also where
// labels come in another order. [Holds.Holds] lists in the order of keys.
func (h *Hold) Key() string {
	var parts []string
	switch t := &h.Target; {
	case t.Queue != "":
		parts = []string{"queue", t.Queue}
	case t.Pool != "":
		parts = []string{"pool", t.Pool}
	case t.Collector != "":
		parts = []string{"collector", t.Collector}
	default:
		parts = []string{"collectors"}
		for _, key := range slices.Sorted(maps.Keys(t.Labels)) {
			parts = append(parts, key, t.Labels[key])
		}
	}
	return strings.Join(append(parts, string(h.Name)), "\x00")
}

// AsGate is the gate that the hold closes, with the hold itself.
func (h *Hold) AsGate() Gate {
	gate := h.Gate
	gate.Hold = h
	return gate
}

// Outlasts reports whether the hold ends after the other one; nil is none.
func (h *Hold) Outlasts(other *Hold) bool {
	return other == nil || !other.Until.IsZero() && (h.Until.IsZero() || h.Until.After(other.Until))
}

// Check sets Kind, and reports a target and a name that make no hold; lifting: that
// make none that can be lifted. Every store calls it first. The error wraps
// [ErrInvalid].
func (h *Hold) Check(lifting bool) error {
	t, set := &h.Target, 0
	for _, has := range []bool{t.Queue != "", t.Pool != "", t.Collector != "", len(t.Labels) > 0} {
		if has {
			set++
		}
	}
	if set != 1 {
		return fmt.Errorf("%w: hold %q is on %d of a queue, a pool, a collector and labels; it must be on one", ErrInvalid, h.Name, set)
	}
	h.Kind = ""
	switch {
	case t.Queue != "" && h.Name == HoldBlock:
		h.Kind = GateBlocked
	case t.Queue != "" && h.Name == HoldPause:
		h.Kind = GatePaused
	case t.Queue != "" && h.Name == HoldWaggle && lifting:
		h.Kind = GateHostBlocked
	case t.Pool != "" && h.Name == HoldDefault:
		h.Kind = GatePoolPaused
	case t.ofCollectors() && h.Name == HoldDefault:
		h.Kind = GateDrained
	default:
		return fmt.Errorf("%w: %.64q is not the name of a hold on that", ErrInvalid, h.Name)
	}
	return nil
}

// TooMany is the error of a hold beyond [bounds.MaxHolds].
func (h *Hold) TooMany() error {
	switch t := &h.Target; {
	case t.Pool != "":
		return Invalid("name", t.Pool, fmt.Sprintf("would be one more than the limit of %d paused pools", bounds.MaxHolds))
	case t.Collector != "":
		return Invalid("collector_id", t.Collector, fmt.Sprintf("would be one more than the limit of %d drains", bounds.MaxHolds))
	default:
		var pairs []string
		for _, key := range slices.Sorted(maps.Keys(t.Labels)) {
			pairs = append(pairs, key+"="+t.Labels[key])
		}
		return Invalid("labels", strings.Join(pairs, ","), fmt.Sprintf("would be one more than the limit of %d drains", bounds.MaxHolds))
	}
}

// Holds keeps what operators hold.
type Holds interface {
	// SetHold keeps a hold, replacing the one of the same target and name. Once it
	// returns, no claim that begins later grants against a hold of a queue or a pool, in
	// any shard; replays go on. Holds of collectors are kept alone: engines read them,
	// and who sets one publishes HintHolds. A queue or pool need not hold tasks.
	//
	// Idempotent. After an error a hold of a pool may be in some shards, and is listed
	// then. ErrInvalid for what [Hold.Check] refuses, and when [bounds.MaxHolds] others of pools
	// stand, or of collectors; those that are over do not count.
	SetHold(ctx context.Context, hold Hold) error
	// LiftHold removes the hold of a target and name, and reports whether it still held; it may
	// say no where the store's answer was lost and it asked again.
	// Lifting HoldWaggle reports whether there was a block or a doubling. What a lifted
	// hold of a queue or a pool lets go on is told with HintReady. Idempotent; a target
	// that nobody has used holds nothing. After an error a hold of a pool may be lifted
	// in some shards, and is listed still. ErrInvalid for what [Hold.Check] refuses.
	LiftHold(ctx context.Context, target HoldTarget, name HoldName) (held bool, err error)
	// Holds reads the holds of pools and collectors that stand now, in the order of their
	// keys: 2 x [bounds.MaxHolds] at most, of shard 0. Those of queues are told with the queue.
	Holds(ctx context.Context) ([]Hold, error)
}
