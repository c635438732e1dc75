package dispatch

import (
	"context"
	"time"
)

// Time limits for silent collectors.
const (
	// IdleBeat is the beat interval of a collector without leases, and the longest interval.
	IdleBeat = 15 * time.Second
	// GoneAfter is the silence that makes a collector gone: three beats.
	GoneAfter = 3 * IdleBeat
	// PollNoted is the time after a record of a collector during which a store need not record its polls.
	PollNoted = time.Second
	// CollectorMemory is how long a collector that is gone is remembered, with its replaced sessions.
	CollectorMemory = 24 * time.Hour
)

// How long collector ids belong to identities.
const (
	// BindingTTL is how long a collector id that was granted tasks belongs to an identity that does not use it.
	BindingTTL = 30 * 24 * time.Hour
	// BindingStep is by how much the end of a binding moves at least, so that a store does not record each use.
	BindingStep = time.Hour
)

// CollectorInfo is what a collector sends about itself with each beat.
type CollectorInfo struct {
	ID       string            `json:"id"`
	Session  string            `json:"session"`
	Version  string            `json:"version,omitempty"`
	Hostname string            `json:"hostname,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Pools    []string          `json:"pools,omitempty"`
	// Sources and Queues are the restrictions of its fetches; empty: none.
	Sources  []string `json:"sources,omitempty"`
	Queues   []string `json:"queues,omitempty"`
	Slots    int      `json:"slots,omitempty"`
	Stopping bool     `json:"stopping,omitempty"`
	// StuckSlots are those of its slots whose handler goes on after its lease: they take no other task.
	StuckSlots int `json:"stuck_slots,omitempty"`
	// Problem is what keeps the collector itself from its work, as it reports that; empty: nothing does. ProblemDuration is how long
	// that had lasted at the beat.
	Problem         string        `json:"problem,omitempty"`
	ProblemDuration time.Duration `json:"problem_duration,omitempty"`
	// Ended: this is the last beat of its session.
	Ended bool `json:"ended,omitempty"`
	// Client is its client library, as name/version. The dispatcher that gets the beat adds it.
	Client string `json:"client,omitempty"`
	// Outcomes are added by the dispatcher that gets the beat. A store need not keep them over a restart.
	Outcomes *Outcomes `json:"outcomes,omitempty"`
}

// Stuck reports whether all slots of the collector are stuck: it takes no task.
func (c *CollectorInfo) Stuck() bool { return c.Slots > 0 && c.StuckSlots >= c.Slots }

// Outcomes count how tasks of a collector ended in the last 5 to 10 minutes, by the reports that one dispatcher got. A
// task that ended because of a hold does not count.
type Outcomes struct {
	// Answered tasks show that the collector works: they succeeded, or failed because of what a host answered.
	Answered int `json:"answered,omitempty"`
	// Failed counts the failures by reason; Released are tasks that were given back.
	Failed   map[FailureReason]int `json:"failed,omitempty"`
	Released int                   `json:"released,omitempty"`
	// OwnInRow counts the failures since the last answer that only the collector itself explains, and ReleasedInRow the
	// releases. Silent counts the hosts that have not answered since then, up to 3.
	OwnInRow      int `json:"own_in_row,omitempty"`
	ReleasedInRow int `json:"released_in_row,omitempty"`
	Silent        int `json:"silent,omitempty"`
	// FailedInRow counts the failures for any reason since the last success, and FailingSince is when the first of them was reported.
	// LastSuccess is the last success; zero: none is known.
	FailedInRow  int       `json:"failed_in_row,omitempty"`
	FailingSince time.Time `json:"failing_since,omitzero"`
	LastSuccess  time.Time `json:"last_success,omitzero"`
	// Since is when the first task after the last answer ended without one; zero: none has.
	Since time.Time `json:"since,omitzero"`
	// LastError is the last failure since the last answer; nil: there was none.
	LastError *Failure `json:"last_error,omitempty"`
}

// What shows that a collector can do nothing, without an answer in between.
const (
	unableOwn      = 3
	unableReleased = 10
	unableSilent   = 3 // hosts, and none answered in the last hour
)

// Unable reports whether all work of the collector fails for its own reasons: its disk, its proxy, its network, its
// handler; or whether it gives all tasks back.
func (o *Outcomes) Unable() bool {
	return o != nil && (o.OwnInRow >= unableOwn || o.ReleasedInRow >= unableReleased || o.Answered == 0 && o.Silent >= unableSilent)
}

// CollectorRecord is a collector as a store knows it.
type CollectorRecord struct {
	Info  CollectorInfo
	First time.Time // of this session
	Seen  time.Time // the last beat, or the last poll to within [PollNoted]
	// OnlyPolls: its session has sent no beat, so Info has only the id and the session.
	OnlyPolls bool
	// Held is the number of its leases in all shards, if requested.
	Held int64
}

// Collectors keeps what collectors send about themselves, and which identity a collector id belongs to.
type Collectors interface {
	// Beat records presence, by the session rules of BeginPoll. After a beat with Ended, later beats of its session
	// change nothing that it sent. A beat with Ended changes nothing if another session is current. It is
	// atomic, and idempotent except for the time when the collector was seen.
	Beat(ctx context.Context, beat CollectorInfo) (PollState, error)
	// ListCollectors lists the collectors that match filter. Collectors silent for CollectorMemory are forgotten.
	ListCollectors(ctx context.Context, filter CollectorFilter, after string, limit int) ([]*CollectorRecord, error)
	// Forget removes up to limit collectors not seen since before, and returns how many; unless ids is nil, only those of
	// ids. Each is removed in one step; a repeat continues.
	Forget(ctx context.Context, ids []string, before time.Time, limit int) (int, error)
	// BindCollector gives the collector id to identity for ttl if it belongs to nobody. If it belongs to identity, the
	// binding ends a ttl from now, unless its end would move by less than [BindingStep] or half of ttl. It returns whose
	// the collector id is then. It is one step, and idempotent. ErrInvalid if either is empty.
	BindCollector(ctx context.Context, collectorID, identity string, ttl time.Duration) (owner string, err error)
	// ReleaseCollector makes the collector id nobody's, and returns whose it was, "" if nobody's. It is one step.
	// Repeated, it returns "".
	ReleaseCollector(ctx context.Context, collectorID string) (owner string, err error)
}

// CollectorFilter selects collectors to list, and the fields to read. Without IDs and Since they are listed by id,
// ascending, from the first after after.
type CollectorFilter struct {
	// IDs, unless nil, are the collectors to read: one record for each, in order, nil for an unknown id. after and
	// limit are ignored.
	IDs []string
	// Since, unless zero, selects collectors that were seen at that time or later, to the millisecond, and have not
	// ended. Any limit of them are listed, in no order, and only their ids are read. after is ignored.
	Since time.Time
	// Held counts their leases. That costs one or more reads of each collector in every shard, so set it only to show
	// the counts.
	Held bool
}
