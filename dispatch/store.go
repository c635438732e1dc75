package dispatch

import (
	"context"
	"time"
)

// Store keeps tasks, leases, sources and queues. The package store/storetest checks this contract, with the same cases
// for every implementation.
//
// Rules that hold for every method:
//
//   - A nil error means: the call has taken effect, and is as durable as the store's
//     own settings make it. After [ErrStoreUnavailable] the effect is unknown. Every
//     method but [Sources.CountEntries] and [AuditLog.AppendAudit] may be repeated with the same arguments, and
//     then has one effect.
//   - Batches may be split internally. Each item is applied as a whole or not at all;
//     the results are in the order of the items.
//   - Any method may fail with [ErrStoreUnavailable], and one that adds something new
//     with [ErrStoreFull]. A shard that does not exist is [ErrInvalid], a page or cursor
//     that the store has not returned is [ErrPageToken]. The methods list only their
//     other errors.
//   - Methods that read see all writes acknowledged before them, and change nothing.
//   - A store does not keep byte slices and maps of its caller; those it returns belong
//     to the caller.
//   - Shards are numbered from 0 to Shards()-1. Methods without a shard find it from the
//     slot of a task id ([TaskID.Slot]), or from [SlotOf] a queue, source id or
//     collector id.
//   - ctx limits the wait of the caller. A claim in flight when ctx ends may still take
//     effect; a repeat with the same client token returns its grant.
type Store interface {
	Claims
	Leases
	Tasks
	Sources
	Queues
	Collectors
	Holds
	AuditLog
	NoticeLog
	Portable

	// Shards is fixed when the store is first used.
	Shards() int
	// Kind names the implementation, such as "memory" or "redis".
	Kind() string
	// Ping returns nil if the store, or a part of it, is usable now, else why not. ErrStoreMismatch: it is no longer the store that was
	// opened. Called about once a second.
	Ping(ctx context.Context) error
	// Away are the shards that have no owner now, ascending.
	Away() []int
	// MoveOwner begins to give the store to its standby, and returns the name of that. It fails with [ErrNoStandby] if there
	// is none, if a shard has none, or if a store of this kind has no owner.
	MoveOwner(ctx context.Context) (to string, err error)
	// Now is the store's clock, in whole milliseconds.
	Now(ctx context.Context) (time.Time, error)
	// Subscribe has heed called with each hint from now on, by those who make changes: heed must not block, nor call the store.
	Subscribe(heed func(Hint))
	// Stats counts, in O(shards). It is no snapshot: the shards are counted one after the other.
	Stats(ctx context.Context) (StoreStats, error)
	// Close releases the resources of the store. Later calls fail. Call it once.
	Close() error
}

// StoreStats are totals over all shards.
type StoreStats struct {
	Counts StateCounts
	// Queues that exist, and those of them that failures have blocked.
	Queues, Blocked int64
	// Pools are those with queues that have waiting tasks, or with leases, by name.
	Pools []Pool
	// OldestOverdue is the time since the deadline of the most overdue lease; 0 = none.
	OldestOverdue time.Duration
	// Grace is how much longer overdue leases may still be renewed after an outage ([OutageGrace]): the maximum of all
	// shards; 0 = no grace.
	Grace time.Duration
	// Counters since the store was created: leases granted, leases reported, leases expired, and records found ready
	// under a lock.
	Granted, Settled, Expired, Orphaned int64
	// Collectors that are neither gone nor ended.
	Collectors int64
	// UsedBytes of what keeps the store, of the LimitBytes that it may use; 0 = there is no limit. Of a directory DiskBytes are what is used
	// or free on its disk, and FreeBytes what is free. What is not known is 0.
	UsedBytes, LimitBytes, DiskBytes, FreeBytes int64
	// OldestGroup is the age of the oldest change that is not kept yet; 0 = all is kept.
	OldestGroup time.Duration
	// Full: the store takes no more data now.
	Full bool
	// Ownership is who owns the store, and nil if a store of this kind has no owner. The counts above leave out its shards that
	// are away.
	Ownership *Ownership
}

// Tasks submits and reads tasks.
type Tasks interface {
	// Submit creates tasks, or updates those that exist. Each item is atomic and idempotent by its ID: repeated, it
	// gets SubmitExists.
	//
	// Every source of the items must be among gates, and every id must pass [ParseTaskID]. Otherwise the error wraps
	// [ErrInvalid], and no item is taken. A shard without the source, or with an older version, takes the gate. A shard
	// with a newer version answers SubmitStaleSource; one with queue rules newer than rulesVersion answers
	// SubmitStaleRules. An item of a deleted source gets SubmitSourceDeleted. A full store returns ErrStoreFull; items
	// before the failing one may have been taken.
	//
	// What an existing record does with an item:
	//
	//   - Its source was deleted and it has settled: the task is created anew, CREATED.
	//   - Waiting or leased: EXISTS; it takes the later Run and the smaller Depth. With
	//     IfExistsSooner a waiting one takes the earlier Due and the higher Priority. With
	//     IfExistsAgain a leased one is due once more after it settles, a waiting one
	//     takes the earlier Due. With IfExistsReseed it becomes (or stays) recurring, its
	//     Due, FirstDue, Kind and Priority are replaced, and CancelRequested and Behind are
	//     cleared. Behind of a waiting one is also cleared if its Due or Priority changes.
	//     IfExistsRetry is as IfExistsKeep.
	//   - Settled: REVISIT, if one of these holds: Item.Run is later than the record's;
	//     the record has been DONE for RevisitAfter, which is above 0; the record is DONE
	//     and settled before Modified, and Modified is not after now; or IfExists is
	//     IfExistsAgain, IfExistsReseed or IfExistsRetry. Then the record is due at Due
	//     with the item's body; it keeps its memo, and Behind and its counters but Cycle
	//     are reset.
	//     Otherwise EXISTS, also for IfExistsRetry with a Revision that is not the record's.
	//
	// If MaxOutstanding one-shot tasks of a source wait or are leased in the shard, an item that would create or
	// revisit another one gets SubmitLimited.
	Submit(ctx context.Context, rulesVersion int64, gates []SourceGate, items []Submission) ([]SubmitResult, error)
	// Tasks reads records by id, in the order of the ids; nil for an id without a record. now is the store's clock at
	// the read: the latest of several shards, zero if no id has a slot. Cursor, memo, last error and history are read
	// only if details is true. The records of one shard are a snapshot if they fit in one call.
	Tasks(ctx context.Context, ids []TaskID, details bool) (tasks []*Task, now time.Time, err error)
	// ListTasks lists the tasks of a source or a queue in one or more states other than done. The order is the store's
	// own; it is stable while the tasks do not change their state. A page reads at most bounds.MaxLooks tasks and has
	// at most [bounds.MaxPageBytes]. It may have fewer tasks than limit, even none, and still a next cursor. The only
	// detail that is read is the last error.
	ListTasks(ctx context.Context, filter TaskFilter, cursor string, limit int) (TaskPage, error)
	// DueLanes lists lanes with due tasks, of a source or of a queue: at most limit of them, by shard, the oldest lane
	// first. It reads at most bounds.MaxLaneLooks lanes in each shard. Exactly one of the filter's source and queue
	// must be set; its states are ignored.
	DueLanes(ctx context.Context, filter TaskFilter, limit int) (DueLanes, error)
}

// DueLanes are lanes with due tasks.
type DueLanes struct {
	Lanes []DueLane
	// Due is the number of lanes found with due tasks, Looked the number of lanes read, and All the number of lanes
	// that the store keeps: it may count some in which nothing waits.
	Due, Looked, All int64
	// Next is the task that is due first in the other lanes that were read; empty: nothing waits there.
	Next TaskID
}

// DueLane is a lane with due tasks.
type DueLane struct {
	First TaskID // the one that is handed out first
	Due   int64  // tasks
}

// TaskPage is a page of a list of tasks.
type TaskPage struct {
	Tasks []*Task
	// Next is the cursor of the next page; empty at the end.
	Next string
	// Looked is how many tasks were read.
	Looked int
}

// TaskFilter selects tasks to list. SourceUID or Queue is set, or both.
type TaskFilter struct {
	SourceUID string
	Queue     string
	States    []State // of scheduled, ready, leased, dead, canceled
}

// HintKind is the subject of a hint.
type HintKind uint8

// The kinds of hints.
const (
	// HintReady: a task of Shard and Pool can be granted after In (0: now), earlier than before.
	HintReady HintKind = iota + 1
	// HintSource: source ID was changed. Who reads it from now on reads that.
	HintSource
	// HintRules: the queue rules were changed. Who reads them from now on reads that.
	HintRules
	// HintHolds: the holds were changed, other than those of sources.
	HintHolds
	// HintCancel: the holder of the lease of Task, the collector ID, is asked to stop.
	HintCancel
	// HintResync: a shard was loaded anew; read everything again.
	HintResync
)

// Hint is what a store says of a change.
type Hint struct {
	Kind   HintKind
	Shard  int
	Pool   string
	In     time.Duration // HintReady: how far ahead, 0 = now
	ID     string
	Task   TaskID
	Reason CancelReason
}
