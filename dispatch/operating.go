package dispatch

import "time"

// NewTask is a task that a producer submits.
type NewTask struct {
	SourceID, URL, Key, Queue, Kind string
	Priority                        int
	Due                             time.Time // zero: now
	Metadata                        map[string]string
	Payload                         []byte
	IfExists                        IfExists // not IfExistsReseed
}

// NewTaskResult answers a NewTask. Err is nil, or wraps [ErrInvalid] or
// [ErrSourceNotFound]; then the item was not taken.
type NewTaskResult struct {
	ID    TaskID
	Code  SubmitCode
	State State
	Err   error
}

// SourceView is a source with what is known of it.
type SourceView struct {
	Source Source
	Status SourceStatus
	Health SourceHealth
}

// SourceHealth sums a source's status up.
type SourceHealth uint8

// The healths of a source, the worst last but one.
const (
	HealthOK SourceHealth = iota + 1
	// HealthLate: a seed has been due for longer than its interval, or for an
	// hour without a schedule.
	HealthLate
	// HealthFailing: seeds have failed since the last success.
	HealthFailing
	// HealthBackedOff: a seed gave cycles up, or is dead.
	HealthBackedOff
	// HealthPaused: an operator paused it.
	HealthPaused
)

// SourceQuery selects sources. All that is set must hold.
type SourceQuery struct {
	Prefix string
	Pool   string
	Labels map[string]string
	Health []SourceHealth
}

// Overview is what an operator looks at first.
type Overview struct {
	Store      StoreStats
	StoreKind  string
	Shards     int
	Now        time.Time
	Keeper     string // id of the dispatcher that keeps
	Dispatcher string
	Parked     int
	Draining   bool
}
