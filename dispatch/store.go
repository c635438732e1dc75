package dispatch

import (
	"context"
	"time"
)

// Store keeps tasks, leases, sources and queues. It is the contract that
// store/storetest checks, for every implementation with the same cases.
//
// Rules that hold for every method:
//
//   - An answer with a nil error has taken effect and is durable as far as the
//     store's own settings make it. After [ErrStoreUnavailable] the effect is
//     unknown; every method but [Sources.CountFiltered] may be repeated with the
//     same arguments, and then has one effect.
//   - Batches may be split internally; each item is applied as a whole or not
//     at all, and the results are in the order of the items.
//   - Any method may fail with [ErrStoreUnavailable], one that writes with
//     [ErrStoreReadOnly], and one that takes in something new with [ErrStoreFull]. A
//     shard that the store does not have is [ErrInvalid], a page or cursor that it has
//     not returned is [ErrPageToken]. Only other errors are listed below.
//   - Methods that read see all writes acknowledged before them, and change nothing.
//   - Byte slices and maps given to a store are not kept; those it returns
//     belong to the caller.
//   - Shards are numbered from 0 to Shards()-1. Methods without a shard find it
//     from the slot of a task id ([TaskID.Slot]), or from [SlotOf] a queue,
//     source id or collector id.
//   - ctx bounds the wait of the caller. A claim that is under way when ctx
//     ends may still take effect; repeating it with the same client token
//     gives what it granted.
type Store interface {
	Claims
	Leases
	Tasks
	Sources
	Queues
	Collectors
	Holds
	Cluster

	// Shards is fixed when the store is first used.
	Shards() int
	// Kind names the implementation, such as "memory" or "redis".
	Kind() string
	// Ping answers whether the store can be worked with now: nil, or why not;
	// ErrStoreMismatch when it is no longer the one that was opened. Called
	// about each second.
	Ping(ctx context.Context) error
	// Now is the store's clock, in whole milliseconds.
	Now(ctx context.Context) (time.Time, error)
	// Stats counts, in O(shards). Each shard is counted at an instant of its own.
	Stats(ctx context.Context) (StoreStats, error)
	// Close gives back what the store holds. Calls after it fail. Call it once.
	Close() error
}

// Local is a [Store] that answers at once, in the process of its caller: there is no
// round trip to wait for, or to share, and no shard that hangs or fails alone. What
// several callers ask of it at the same time is not merged into one call, which would
// cost them more than it saves.
type Local interface {
	Store
	// Local does nothing: that there is one tells.
	Local()
}

// LossCounter is a store whose data others can take away.
type LossCounter interface {
	// Losses is how often, since it was opened, a Ping has found that the store, or a
	// part of it, had lost what it held: that it was emptied, or came back without
	// its files. Every instance that had worked with it finds that. 0 of a store
	// that is away, fails over or was empty when it was opened.
	Losses() int64
}

// StoreStats are totals over all shards.
type StoreStats struct {
	Counts StateCounts
	// Queues that exist, and the queues by what they wait for.
	Queues int64
	// OldestOverdue is how far the most overdue lease is past its deadline; 0
	// when none is.
	OldestOverdue time.Duration
	// Grace is how long leases past their deadline are yet left to be renewed, of the
	// shard with the most, after an outage ([OutageGrace]); 0 outside of a grace.
	Grace time.Duration
	// Granted, Settled, Expired, Orphaned and Dropped count since the store
	// was made: leases given, leases reported, leases that ran out, records
	// found ready under a standing lock, and index entries without a record.
	Granted, Settled, Expired, Orphaned, Dropped int64
	// Collectors are those that are neither gone nor ended.
	Collectors int64
	// Full: the store takes no more data now.
	Full bool
}

// Tasks takes tasks in, and reads records.
type Tasks interface {
	// Submit makes tasks, or answers for those that exist. Each item is atomic
	// and idempotent by its ID: repeated, it answers SubmitExists.
	//
	// Every source of the items must be among gates, and every id one of
	// [ParseTaskID]: else the error wraps [ErrInvalid], and no item is taken. A
	// shard that does not hold a source yet, or holds an older version, takes the
	// gate's; a shard that holds a newer version, or other queue rules than
	// rulesVersion (a higher number), refuses the item with SubmitStaleSource or
	// SubmitStaleRules. An item of a deleted source gets SubmitSourceDeleted.
	// The store being full is the error ErrStoreFull; items before the failing
	// one may have been taken.
	//
	// What an existing record does with an item:
	//
	//   - Its source was deleted and it has settled: it is made anew, CREATED.
	//   - Waiting or leased: EXISTS; it takes the later Run and the smaller
	//     Depth. With IfExistsSooner a waiting one takes the earlier Due and
	//     the higher Priority. With IfExistsAgain a leased one is due again
	//     once after it settles, a waiting one takes the earlier Due. With
	//     IfExistsReseed it becomes (or stays) recurring, its Due, FirstDue,
	//     Kind and Priority are replaced, and CancelRequested is lifted.
	//     IfExistsRetry is as IfExistsKeep.
	//   - Settled: when Item.Run is later than the record's, or the record is
	//     DONE and RevisitAfter > 0 and that long ago, or DONE and settled
	//     before Modified and Modified is not after now, or IfExists is
	//     IfExistsAgain, IfExistsReseed or IfExistsRetry: the record is due at Due with the
	//     item's body, its memo kept, its counters but Cycle reset: REVISIT.
	//     Else EXISTS, as with IfExistsRetry and a Revision that is not the record's.
	//
	// An item that would make or revisit a one-shot task of a source that has
	// MaxOutstanding one-shot tasks waiting or leased in that shard gets
	// SubmitLimited.
	Submit(ctx context.Context, rulesVersion int64, gates []SourceGate, items []Submission) ([]SubmitResult, error)
	// Tasks reads records by id, in the order of the ids, nil for those that do not
	// exist, and the store's clock as of then: where several shards were asked, the
	// latest of theirs; zero when none was, since no id has a slot. Details (cursor,
	// memo, last error, history) are read when details is true. Those of a shard are
	// of one instant, as far as they fit in one call.
	Tasks(ctx context.Context, ids []TaskID, details bool) (tasks []*Task, now time.Time, err error)
	// ListTasks lists the tasks of a source or a queue in one or more states
	// other than done, in an order of the store's own that is stable while the
	// tasks do not move; those of a page may leave the states before the next is
	// read. A page looks at no more than bounds.MaxLooks tasks and is bounded in
	// bytes ([bounds.MaxPageBytes]); it may have fewer than limit, even none, with a
	// next cursor.
	// Of the details the tasks have the last error.
	ListTasks(ctx context.Context, filter TaskFilter, cursor string, limit int) (TaskPage, error)
	// DueLanes looks for the lanes of a source, or of a queue, in which tasks are due,
	// and lists at most limit of them: by shard, in the order in which they were made.
	// In each shard it looks at no more than bounds.MaxLaneLooks. Exactly one of the
	// filter's source and queue is set; its states are not looked at.
	DueLanes(ctx context.Context, filter TaskFilter, limit int) (DueLanes, error)
}

// DueLanes are lanes in which tasks are due.
type DueLanes struct {
	Lanes []DueLane
	// Due is how many lanes with due tasks were found, Looked how many were looked at, and
	// All how many there are.
	Due, Looked, All int64
	// Next is the task that is due first in the others of those looked at; empty: nothing
	// waits there.
	Next TaskID
}

// DueLane is a lane in which tasks are due.
type DueLane struct {
	First TaskID // the one that is handed out first
	Due   int64  // tasks
}

// TaskPage is a page of a list of tasks.
type TaskPage struct {
	Tasks []*Task
	// Next is the cursor of what follows; empty at the end.
	Next string
	// Looked is how many tasks were looked at.
	Looked int
}

// TaskFilter selects tasks to list. SourceUID or Queue is set, or both.
type TaskFilter struct {
	SourceUID string
	Queue     string
	States    []State // of scheduled, ready, leased, dead, canceled
}

// Cluster is what dispatchers of one group share beside tasks.
type Cluster interface {
	// Campaign makes holder the leader of duty for ttl, or renews that it is, in one
	// step, and names who leads then. At most one holder leads a duty at a time by
	// the store's clock; after a step back of that, for no longer than ttl from
	// the next campaign of another. With a ttl of 0 holder resigns instead, if it
	// leads: with the holder "", which never does, that only asks who leads, empty
	// when nobody does. Idempotent.
	Campaign(ctx context.Context, duty, holder string, ttl time.Duration) (leader string, err error)
	// Subscribe delivers hints until ctx ends. Hints may be lost, repeated or
	// late; each is also acted on without one within a second. After a break of
	// the subscription it delivers HintResync first. deliver must not block.
	// Subscribe returns nil when ctx ends, or an error when it could not begin.
	Subscribe(ctx context.Context, deliver func(Hint)) error
	// Publish sends a hint to all dispatchers, this one among them. Repeated, it may
	// come twice.
	Publish(ctx context.Context, hint Hint) error
}

// HintKind says what a hint is about.
type HintKind uint8

// The kinds of hints.
const (
	// HintReady: something of Shard and Pool can be granted In a while (0: now),
	// sooner than before.
	HintReady HintKind = iota + 1
	// HintSource: source ID has a new version.
	HintSource
	// HintRules: the queue rules have changed.
	HintRules
	// HintHolds: the holds have changed, other than those of sources.
	HintHolds
	// HintSession: collector ID has a new session, Session.
	HintSession
	// HintCancel: the holder of the lease of Task, the collector ID, is asked to stop.
	HintCancel
	// HintResync: hints may have been lost; look at everything again.
	HintResync
)

// Hint is a word to all dispatchers that saves them from polling.
type Hint struct {
	Kind    HintKind
	Shard   int
	Pool    string
	In      time.Duration // HintReady: how far ahead, 0 = now
	ID      string
	Session string
	Task    TaskID
	Reason  CancelReason
}
