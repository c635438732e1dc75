package dispatch

import (
	"context"
	"time"
)

// Sources keeps sources and tells shards of them.
type Sources interface {
	// PutSource keeps a source, in one step. With ifVersion 0 it is new:
	// ErrSourceExists when the id is taken, also by a source that is being
	// deleted; idempotent by UID. Else it replaces the source of its id whose
	// version still is ifVersion, but for what MarkApplied wrote: ErrEtagMismatch
	// when that has another version or UID, ErrSourceNotFound when the id has
	// gone. Idempotent: an equal source already kept is success.
	PutSource(ctx context.Context, s *Source, ifVersion int64) error
	// MarkApplied notes, in one step, that version is applied everywhere, with the
	// seeds that exist, if the source has no newer one; false when it has. A source
	// that is Deleted is removed by it. Idempotent: true of one that is removed.
	MarkApplied(ctx context.Context, id, uid string, version int64, seeds []TaskID) (bool, error)
	// SourcesByID reads sources, in the order of the ids; nil where there is none.
	SourcesByID(ctx context.Context, ids []string) ([]*Source, error)
	// ListSources lists those of a filter by id, ascending, from the first after
	// after. A page is bounded in bytes, too ([MaxPageBytes]); more: others follow
	// the last one, of which there is one then.
	ListSources(ctx context.Context, filter SourceFilter, after string, limit int) (sources []*Source, more bool, err error)

	// PushSource tells a shard of a source. The first call (empty page) is
	// effective at once for every later grant in the shard; further calls, with
	// the page returned, put its lanes where they now belong, until the
	// returned page is empty. A version older than the shard's is ignored and
	// ends the paging.
	PushSource(ctx context.Context, shard int, gate SourceGate, page string) (next string, err error)
	// DropTasks ends up to limit tasks (1 to MaxTransitions; another is taken
	// for the nearest of those) of a deleted source in the shard: waiting, dead
	// and canceled ones become CANCELED records that are kept for
	// CanceledMemory; it returns how many it ended and the leased ones it met,
	// at most limit and in no order, which the caller cancels. Zero and none
	// means that nothing is left to end but leases. why, unless nil, is what Tasks tells
	// from then on as SourceDeleted of the source's tasks in the shard.
	DropTasks(ctx context.Context, shard int, uid string, limit int, why *Gate) (ended int, leased []TaskID, err error)
	// SourceStatuses sums what all shards know of sources, by uid: Counts,
	// LastSuccess, FailuresInARow, LastFailure, Limited and Filtered. The rest is
	// read from the seeds' own records.
	SourceStatuses(ctx context.Context, uids []string) ([]SourceStatus, error)
	// CountFiltered adds to a source's Filtered, in one shard; nothing where that
	// does not hold the source. Repeated it counts twice.
	CountFiltered(ctx context.Context, shard int, uid string, filtered Filtered) error
}

// SourceFilter selects sources to list.
type SourceFilter struct {
	Prefix string // of their ids
	// Pending selects those whose Applied is below their Version.
	Pending bool
}

// Queues keeps queue rules, and tells of queues and pools.
type Queues interface {
	// PutRule keeps the rule of a pattern, or removes it where rule is nil, under the
	// next version of all rules, which it answers. All shards know of it then, and
	// grants after it follow it. It does so in one step, and only if the rules have
	// version ifVersion (0 = none was ever set): else ErrEtagMismatch.
	// ErrRuleNotFound where there is none to remove at ifVersion; ErrInvalid beyond
	// [MaxQueueRules]. Idempotent: repeated, it answers the version again while
	// nothing else has changed. After an error some shards may not know of it;
	// SyncRules brings them to it.
	PutRule(ctx context.Context, pattern string, rule *QueueRule, ifVersion int64) (version int64, err error)
	// Rules reads all rules, ascending by pattern, with their version. Those that
	// change meanwhile may be newer than the version, never older.
	Rules(ctx context.Context) (rules []QueueRule, version int64, err error)
	// SyncRules brings a shard to the rules of shard 0 after an interrupted
	// PutRule, and puts up to limit queues where they now belong, starting at
	// page: those that wait for a gate without an end and, until it has come to
	// the end once since the rules changed, those whose delay lasts, which ends
	// no later than by the rules as they are. The end is an empty next.
	SyncRules(ctx context.Context, shard int, page string, limit int) (next string, err error)
	// QueuesNamed reads queues, in the order of the names; nil for one that holds nothing
	// and has no gate. It takes a read for each shard of some of them, or for each 200 in
	// one, and one more where rules hold some of these.
	QueuesNamed(ctx context.Context, names []string) ([]*Queue, error)
	// ListQueues lists the queues that exist in the order of their reversed
	// labels (com.example.www), from the first after after. suffix narrows to
	// a name and all names that end in "."+suffix.
	ListQueues(ctx context.Context, suffix, after string, limit int) ([]*Queue, error)
	// ListPools lists the pools that have queues with waiting tasks or are held,
	// ascending, from the first after after. name, unless empty, narrows to that one.
	ListPools(ctx context.Context, name, after string, limit int) ([]Pool, error)
}

// Collectors keeps what collectors tell of themselves.
type Collectors interface {
	// Beats records presence. The session rules are those of BeginPolls, but for the beat
	// with which a session has Ended: what comes after it changes nothing of what it told,
	// and where another session is current it changes nothing.
	Beats(ctx context.Context, beats []CollectorInfo) ([]PollState, error)
	// ListCollectors lists those of a filter. Collectors silent for CollectorMemory
	// are forgotten.
	ListCollectors(ctx context.Context, filter CollectorFilter, after string, limit int) ([]*CollectorRecord, error)
	// Forget removes collectors not seen since before, up to limit, and
	// returns how many.
	Forget(ctx context.Context, before time.Time, limit int) (int, error)
}

// CollectorFilter selects collectors to list, and what is read of each. Without IDs and
// Since they are listed by id, ascending, from the first after after.
type CollectorFilter struct {
	// IDs, unless nil, are those to read: the answer has a record for each, in their
	// order, nil for one that is not known. after and limit are not looked at.
	IDs []string
	// Since, unless zero, lists those that were seen at it or later, to within a
	// millisecond, and have not ended: any limit of them, in no order, and of each the
	// id alone. after is not looked at.
	Since time.Time
	// Held has their leases counted. That reads of each collector in every shard,
	// several times where it holds many: only who shows the numbers should ask.
	Held bool
}
