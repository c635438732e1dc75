package dispatch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Defaults of queue rules.
const (
	DefaultMinDelay    = time.Second
	DefaultMaxInFlight = 1
	DefaultMaxBlock    = 24 * time.Hour
	// FirstBlock is the first automatic block of a queue after a failure of
	// its host that named no Retry-After; each further one doubles.
	FirstBlock = 10 * time.Second
	// MaxMinDelay bounds min_delay and max_delay.
	MaxMinDelay = 24 * time.Hour
	// MaxQueueDelay bounds what a host can be reported to ask for, and
	// HostDelayLimit is how much of it counts where no rule sets max_delay.
	MaxQueueDelay  = time.Hour
	HostDelayLimit = time.Minute
	// MaxDelayFactor bounds delay_factor, LongestMaxBlock max_block.
	MaxDelayFactor  = 100
	LongestMaxBlock = 30 * 24 * time.Hour
	// MaxInFlightLimit bounds max_in_flight.
	MaxInFlightLimit = 100_000
	// MaxQueueRules bounds the rules of one Waggle.
	MaxQueueRules = 100_000
)

// QueueSettings is how politely a queue is worked on, resolved at each grant.
type QueueSettings struct {
	// MinDelay between request starts.
	MinDelay time.Duration
	// MaxInFlight leases at once.
	MaxInFlight int
	// DelayFactor of the last fetch's duration is waited after a report, up
	// to MaxDelay. 0 = off.
	DelayFactor float64
	// MaxDelay bounds what DelayFactor and the host itself can ask for; 0 =
	// MaxMinDelay for the one, HostDelayLimit for the other.
	MaxDelay time.Duration
	// MaxBlock bounds automatic blocks.
	MaxBlock time.Duration
	// Paused queues grant nothing; a paused rule "*" holds every queue,
	// whatever longer patterns say. Denied queues grant nothing, their leases
	// end, and submits to them are refused.
	Paused bool
	Deny   bool
}

// DefaultQueueSettings hold where no rule says otherwise.
func DefaultQueueSettings() QueueSettings {
	return QueueSettings{MinDelay: DefaultMinDelay, MaxInFlight: DefaultMaxInFlight, MaxBlock: DefaultMaxBlock}
}

// QueueRule sets and maps the queues of the hosts that its pattern matches.
type QueueRule struct {
	// Pattern is an exact host or queue, "*.suffix", or "*". The longest
	// match holds.
	Pattern string
	// Queue, when set, is the queue that tasks of matching hosts go to, and
	// the settings are that queue's.
	Queue    string
	Settings QueueSettings
	// By, Reason and Time are those of its last change.
	By     string
	Reason string
	Time   time.Time
	// Pause and Denial tell of the pause and the denial that stand, whatever was
	// changed of the rule since they began; zero: there is none, or it began with the
	// last change.
	Pause  HoldNote `json:",omitzero"`
	Denial HoldNote `json:",omitzero"`
}

// HoldNote is who began a pause or a denial, why and when.
type HoldNote struct {
	Note
	Time time.Time `json:"t"`
}

// Gate is one that the rule closes, of the kind GateQueuePaused or GateQueueDenied.
func (r *QueueRule) Gate(kind GateKind) Gate {
	began := r.Pause
	if kind == GateQueueDenied {
		began = r.Denial
	}
	began = cmp.Or(began, HoldNote{Note{r.By, r.Reason}, r.Time})
	return Gate{Kind: kind, By: began.By, Reason: began.Reason, Time: began.Time, Rule: r.Pattern}
}

// Gates are those that the rule closes.
func (r *QueueRule) Gates() []Gate {
	var gates []Gate
	if r.Settings.Paused {
		gates = append(gates, r.Gate(GateQueuePaused))
	}
	if r.Settings.Deny {
		gates = append(gates, r.Gate(GateQueueDenied))
	}
	return gates
}

// EndedBy is a pause or denial of the rule that one in its place does not have; nil: none.
func (r *QueueRule) EndedBy(next *QueueRule) *Gate {
	for _, gate := range r.Gates() {
		if gate.Kind == GateQueuePaused && !next.Settings.Paused || gate.Kind == GateQueueDenied && !next.Settings.Deny {
			return &gate
		}
	}
	return nil
}

// RuleHoldsError is an [ErrRuleHolds] with the gate of the rule that would be opened.
type RuleHoldsError struct {
	// Gate is the pause or the denial that stands.
	Gate Gate
}

// Error names who closed the gate, and since when.
func (e *RuleHoldsError) Error() string {
	return fmt.Sprintf("%v: %s by %q since %s", ErrRuleHolds, e.Gate.Kind, e.Gate.By, e.Gate.Time.UTC().Format(time.RFC3339))
}

// Unwrap is [ErrRuleHolds].
func (*RuleHoldsError) Unwrap() error { return ErrRuleHolds }

// KeepHolds notes of a pause and a denial of the rule that they began with one of the
// rules as they were.
func (r *QueueRule) KeepHolds(were ...QueueRule) {
	r.Pause, r.Denial = HoldNote{}, HoldNote{}
	for _, was := range slices.Backward(were) {
		for _, gate := range was.Gates() {
			began := HoldNote{Note{gate.By, gate.Reason}, gate.Time}
			switch {
			case gate.Kind == GateQueuePaused && r.Settings.Paused:
				r.Pause = began
			case gate.Kind == GateQueueDenied && r.Settings.Deny:
				r.Denial = began
			}
		}
	}
}

// SettingsName is the name under which a store files the rule's settings: the
// queue it maps to, else its pattern. [SettingsNames] looks them up.
func (r QueueRule) SettingsName() string {
	if r.Queue != "" {
		return r.Queue
	}
	return r.Pattern
}

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

// Queue is what a store tells of one queue.
type Queue struct {
	Name     string
	Settings QueueSettings
	// SettingsName is the rule name that gave the settings; empty = defaults.
	SettingsName string
	Pools        []string
	// QueueDelay is what the host asks for between request starts, as
	// collectors last reported; 0 = nothing. See [QueueSettings.Paced].
	QueueDelay time.Duration
	Waiting    int64 // tasks scheduled or ready
	Leased     int64
	// NextGrant is the earliest instant at which the queue can be granted
	// from, the maximum over its gates; zero = now, or never when a gate
	// without an end holds it.
	NextGrant time.Time
	// BlockStep counts the automatic blocks in a row.
	BlockStep int
	Gates     []Gate
	// PausedPools are those of Pools that are paused. Where all are, Gates has the pause
	// that ends first. Only [Dispatcher.FindQueue] and [Dispatcher.ListQueues] tell it.
	PausedPools []string
	// MapsTo is the queue that new tasks of a host of this name go to; empty =
	// this one. Only [Dispatcher.FindQueue] tells it.
	MapsTo string
	// Unknown: no task but perhaps DONE ones is in it, nothing else is left of one, and
	// no rule is for this very name. Only [Dispatcher.FindQueue] tells it.
	Unknown bool
	// Replaced is the block, or the pause, that stood when it was set anew, of whose by,
	// reason and end nothing is left; nil: none stood. Only [Dispatcher.BlockQueue] and
	// [Dispatcher.PauseQueue] tell it.
	Replaced *Gate
}

// Validate reports, as a [FieldError], the first setting out of its range.
func (r *QueueRule) Validate() error {
	s := r.Settings
	switch {
	case !validPattern(r.Pattern):
		return Invalid("pattern", r.Pattern, fmt.Sprintf("must be a queue name, \"*.suffix\" or \"*\", of 1 to %d bytes in lower case", MaxQueueLength))
	case s.MinDelay < 0 || s.MinDelay > MaxMinDelay:
		return Invalid("min_delay", s.MinDelay, fmt.Sprintf("must be 0 to %v", MaxMinDelay))
	case s.MaxInFlight < 1 || s.MaxInFlight > MaxInFlightLimit:
		return Invalid("max_in_flight", s.MaxInFlight, fmt.Sprintf("must be 1 to %d", MaxInFlightLimit))
	case !(s.DelayFactor >= 0 && s.DelayFactor <= MaxDelayFactor):
		return Invalid("delay_factor", s.DelayFactor, fmt.Sprintf("must be 0 to %d", MaxDelayFactor))
	case s.MaxDelay < 0 || s.MaxDelay > MaxMinDelay:
		return Invalid("max_delay", s.MaxDelay, fmt.Sprintf("must be 1ms to %v", MaxMinDelay))
	case s.MaxDelay > 0 && s.MaxDelay < s.MinDelay:
		return Invalid("max_delay", s.MaxDelay, fmt.Sprintf("must be min_delay, %v, or more: requests are never nearer than that", s.MinDelay))
	case s.MaxBlock < time.Second || s.MaxBlock > LongestMaxBlock:
		return Invalid("max_block", s.MaxBlock, fmt.Sprintf("must be 1s to %v", LongestMaxBlock))
	case r.Queue != "" && strings.Contains(r.Queue, "*"):
		return Invalid("queue", r.Queue, "must be the name of one queue")
	}
	return nil
}

func validPattern(pattern string) bool {
	if pattern == "*" {
		return true
	}
	name := strings.TrimPrefix(pattern, "*.")
	return name != "" && len(pattern) <= MaxQueueLength && !strings.Contains(name, "*") && name == strings.ToLower(name)
}
