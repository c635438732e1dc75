package dispatch

import (
	"context"
	"time"
)

// Portable copies a [Store] to another one, of another kind or with another number of shards, while no dispatcher uses
// either. Sources and rules are copied by the methods of [Store]; Export and Import are for what has no other method.
// What only speeds a store up, or orders tasks that are equally due, is not copied.
type Portable interface {
	// Export gives all that is kept, in batches of bounded size: gates first, tasks before queues, Totals last. Of a
	// store that does not change each part is given once, but a gate once for each shard that has it.
	Export(ctx context.Context, each func(*PortableBatch) error) error
	// Import stores a batch. A task that exists stays as it is, the other parts replace what there is. So an interrupted
	// copy is repeated from its begin. All shards get the gates; a task or status of a source without one is left out, and
	// so is what has ended by the store's clock. Fences that the store gives later are above those of the batch (P4).
	Import(ctx context.Context, batch *PortableBatch) error
	// EndCopy ends the copy for which the store was opened. Until then it can be opened only to repeat that copy.
	EndCopy(ctx context.Context) error
}

// MaxPortable is how many tasks a [PortableBatch] may have, MaxPortableBytes about how many bytes if it has several.
const (
	MaxPortable      = 1000
	MaxPortableBytes = 4 << 20
)

// PortableBatch is a part of a store.
type PortableBatch struct {
	// Holds are those of [Holds]; Export gives none. The version is among the Totals.
	Holds []Hold `json:"holds,omitempty"`
	// Gates are those that shards know; the newest of a source holds.
	Gates      []SourceGate        `json:"gates,omitempty"`
	Tasks      []PortableTask      `json:"tasks,omitempty"`
	Queues     []PortableQueue     `json:"queues,omitempty"`
	Collectors []PortableCollector `json:"collectors,omitempty"`
	Tokens     []PortableTokens    `json:"tokens,omitempty"`
	// Statuses are for Import only.
	Statuses []PortableStatus `json:"statuses,omitempty"`
	Totals   *PortableTotals  `json:"totals,omitempty"`
}

// HeldQueues are the queues and patterns of the holds, and until when these stop them.
func HeldQueues(holds []Hold) map[string]time.Time {
	held := make(map[string]time.Time)
	for i := range holds {
		if queue := holds[i].Target.Queue; queue != "" && holds[i].End().After(held[queue]) {
			held[queue] = holds[i].End()
		}
	}
	return held
}

// PortableTask is a task with its details, and what a [Task] does not say.
//
// The calls of its grant are not copied (P7): they ended with their dispatcher, so none of them is given back any more. A
// repeated FetchTask gets the lease, and nobody gives it back. Of locks that were set by hand only those of waiting tasks
// are copied.
type PortableTask struct {
	Task Task `json:"task"`
	// ForgetAt is when a settled task is forgotten; zero: with its source.
	ForgetAt time.Time `json:"forget_at,omitzero"`
	// Session of the holder of the lease.
	Session string `json:"session,omitempty"`
	// LockDeleted: the lock was deleted by hand, so the lease is not renewed any more.
	LockDeleted bool `json:"lock_deleted,omitempty"`
}

// PortableQueue is what a queue knows beside its tasks.
type PortableQueue struct {
	Name      string    `json:"name"`
	NextGrant time.Time `json:"next_grant,omitzero"`
	// Blocked is the end of the automatic block, BlockedAt its begin.
	Blocked   time.Time     `json:"blocked,omitzero"`
	BlockedAt time.Time     `json:"blocked_at,omitzero"`
	BlockStep int           `json:"block_step,omitempty"`
	Cause     *BlockCause   `json:"cause,omitempty"`
	Asked     time.Duration `json:"asked,omitempty"`
	// FailedURLs are hashes of different URLs that failed since the host last answered.
	FailedURLs []uint32 `json:"failed_urls,omitempty"`
}

// Kept is until when an empty queue is kept.
func (q *PortableQueue) Kept() time.Time {
	if q.Blocked.After(q.NextGrant) {
		return q.Blocked
	}
	return q.NextGrant
}

// PortableCollector is a collector with its sessions.
type PortableCollector struct {
	Info      CollectorInfo `json:"info"`
	First     time.Time     `json:"first"`
	Seen      time.Time     `json:"seen"`
	OnlyPolls bool          `json:"only_polls,omitempty"`
	// Fresh: the session has replaced another one, whose leases have not all ended.
	Fresh    bool     `json:"fresh,omitempty"`
	Replaced []string `json:"replaced,omitempty"` // sessions, the newest last
}

// PortableTokens are used client tokens, by [HolderDigest], of a [TokenStep]. They belong to no shard that can be told
// from them, so every shard of the other store gets all.
type PortableTokens struct {
	Step    int64    `json:"step"`
	Digests []uint64 `json:"digests"`
}

// PortableStatus is what a store knows of a source beside its tasks. Of the counts only Done matters; Filtered is set by
// [Sources.CountEntries].
type PortableStatus struct {
	UID string `json:"uid"`
	// Seed is a recurring task of the source: its shard counts the failures in a row. Empty: there is none.
	Seed   TaskID       `json:"seed,omitempty"`
	Status SourceStatus `json:"status"`
}

// PortableTotals are the counters of a store.
type PortableTotals struct {
	// Fence is the highest that any shard has given.
	Fence uint64 `json:"fence"`
	// RulesVersion and HoldsVersion only rise.
	RulesVersion int64 `json:"rules_version"`
	HoldsVersion int64 `json:"holds_version"`
	// Those of StoreStats, and tasks that were DONE.
	Granted  int64 `json:"granted"`
	Settled  int64 `json:"settled"`
	Expired  int64 `json:"expired"`
	Orphaned int64 `json:"orphaned"`
	Done     int64 `json:"done"`
}
