package operate

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// TaskChange is what became of a task that an operator would end, retry or take
// from its holder. Err says why one was refused: it wraps [ErrSourceNotFound],
// [ErrQueueDenied] or [ErrInvalid].
type TaskChange struct {
	Code  ChangeCode
	State dispatch.State // of the task now; StateUnknown of one that does not exist
	Err   error
}

// ChangeCode is what became of a task in CancelTasks, RetryTasks or RevokeLeases.
type ChangeCode uint8

// The answers to a change of a task.
const (
	// ChangeNotFound: no task has that id.
	ChangeNotFound ChangeCode = iota + 1
	// ChangeCanceled: it is canceled now.
	ChangeCanceled
	// ChangeCancelRequested: its holder is told, and it ends canceled with its
	// lease.
	ChangeCancelRequested
	// ChangeAlreadyRequested: somebody had asked for that before.
	ChangeAlreadyRequested
	// ChangeAlreadySettled: there is nothing to cancel.
	ChangeAlreadySettled
	// ChangeRetried: it had settled and is due now.
	ChangeRetried
	// ChangeNotSettled: it waits or is leased, and stays as it is.
	ChangeNotSettled
	// ChangeLimited: its source has MaxOutstanding tasks in the shard.
	ChangeLimited
	// ChangeRefused: it cannot come back; TaskChange.Err says why.
	ChangeRefused
	// ChangeRevoked: its lease has ended.
	ChangeRevoked
	// ChangeNotLeased: nobody holds it.
	ChangeNotLeased
	// ChangeOtherLease: it is held under another lease than the one meant.
	ChangeOtherLease
	// ChangeOtherState: it is in none of the states meant.
	ChangeOtherState
)

// SourceView is a source with what is known of it.
type SourceView struct {
	Source dispatch.Source
	Status SourceStatus
	Paused *dispatch.Gate // the pause that holds it; nil: none
	Health SourceHealth

	next *dispatch.Task // the seed that is due next; nil: none waits
}

// SourceStatus is what is known of a source, by its shards and its seeds' records.
type SourceStatus struct {
	dispatch.SourceStatus
	DeadSeeds     int64 // seeds that the breaker took out
	CanceledSeeds int64 // seeds that an operator took out
	DeniedSeeds   int64 // seeds that wait in a queue which a rule denies
	GivenUpCycles int   // in a row, of the seed with the most
	// LastError of its seeds; where details are read, also one that a success
	// has followed.
	LastError       *dispatch.Failure
	NextDue         time.Time // of the seeds; zero = none waits
	Lag             time.Duration
	PendingVersions int64 // versions that not all shards have yet
	// Outstanding tasks have not settled; seeds that rest until their next
	// cycle are not counted. Like Counts, not of one instant.
	Outstanding int64
	// Gates hold the seed that is due next; only [Operator.Source] looks. In a list
	// that is asked for them they are a pause of the source's pool, that no collector
	// takes its tasks, and pauses, denials and blocks of the seed's queue.
	Gates []dispatch.Gate
	// CollectorUnknown: too many collectors are there to tell whether one takes its tasks.
	CollectorUnknown bool
	// ShortestInterval and LongestInterval of the seeds, of an adaptive
	// schedule.
	ShortestInterval, LongestInterval time.Duration
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
	// HealthPaused: an operator paused it, or of its seeds none can be fetched before
	// an operator wants it: each is canceled or in a queue that a rule denies.
	HealthPaused
)

// SourceQuery selects sources. All that is set must hold.
type SourceQuery struct {
	Prefix string
	Pool   string
	Labels map[string]string
	Health []SourceHealth
	// Gates has the listed sources tell what holds them, as far as that costs the same
	// for a page of any size: see [SourceStatus].
	Gates bool
}

// Overview is what an operator looks at first.
type Overview struct {
	Store      dispatch.StoreStats
	StoreKind  string
	Shards     int
	Now        time.Time
	Keeper     string // id of the dispatcher that keeps
	Dispatcher string
	Parked     int
	Draining   bool
}
