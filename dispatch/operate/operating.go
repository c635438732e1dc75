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
	Status dispatch.SourceStatus
	Paused *dispatch.Gate // the pause that holds it; nil: none
	Health SourceHealth

	next *dispatch.Task // the seed that is due next; nil: none waits
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
