package dispatch

import (
	"context"
	"time"
)

// Sources keeps sources and tells shards of them.
type Sources interface {
	// CreateSource keeps a new source. ErrSourceExists when the id is taken,
	// also by a source that is being deleted; idempotent by UID.
	CreateSource(ctx context.Context, s *Source) error
	// UpdateSource replaces a source whose version still is ifVersion, else
	// ErrEtagMismatch; ErrSourceNotFound when the id has gone. Idempotent: an
	// equal source already kept is success.
	UpdateSource(ctx context.Context, s *Source, ifVersion int64) error
	// MarkApplied notes that version is applied everywhere, with the seeds
	// that exist, if the source has no newer one; false when it has. A source
	// that is Deleted is removed by it.
	MarkApplied(ctx context.Context, id, uid string, version int64, seeds []TaskID) (bool, error)
	// Source reads one by id; ErrSourceNotFound.
	Source(ctx context.Context, id string) (*Source, error)
	// SourcesByID reads many; nil where there is none.
	SourcesByID(ctx context.Context, ids []string) ([]*Source, error)
	// ListSources lists by id, ascending, from the first id after after that
	// begins with prefix. A page is bounded in bytes, too ([MaxPageBytes]); more:
	// others follow the last one, of which there is one then.
	ListSources(ctx context.Context, prefix, after string, limit int) (sources []*Source, more bool, err error)
	// PendingSources lists the ids of sources whose Applied is below Version,
	// ascending, from the first after after.
	PendingSources(ctx context.Context, after string, limit int) ([]string, error)

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

// Queues keeps queue rules and what is known of queues.
type Queues interface {
	// SetRule keeps a rule under the next version of all rules and tells all
	// shards; grants after it follow it. Its answer is that version. It does so
	// in one step, and only if the rules have version ifVersion (0 = none was
	// ever set): else ErrEtagMismatch. Idempotent: repeated, it answers the
	// version again while nothing else has changed.
	SetRule(ctx context.Context, rule QueueRule, ifVersion int64) (version int64, err error)
	// DeleteRule removes a rule under the next version, as SetRule sets one;
	// ErrRuleNotFound where there is none at ifVersion.
	DeleteRule(ctx context.Context, pattern string, ifVersion int64) (version int64, err error)
	// Rules reads all rules, ascending by pattern, with their version. Those that
	// change meanwhile may be newer than the version, never older.
	Rules(ctx context.Context) (rules []QueueRule, version int64, err error)
	// SyncRules brings a shard to the rules of shard 0 after an interrupted
	// SetRule, and puts up to limit queues where they now belong, starting at
	// page: those that wait for a gate without an end and, until it has come to
	// the end once since the rules changed, those whose delay lasts, which ends
	// no later than by the rules as they are. The end is an empty next.
	SyncRules(ctx context.Context, shard int, page string, limit int) (next string, err error)
	// Queue reads one; ErrQueueNotFound when it holds nothing and has no gate.
	Queue(ctx context.Context, name string) (*Queue, error)
	// QueuesNamed reads several, in the order of the names; nil for one that holds nothing
	// and has no gate. It takes a read for each shard of some of them, or for each 200 in
	// one, and one more where rules hold some of these.
	QueuesNamed(ctx context.Context, names []string) ([]*Queue, error)
	// ListQueues lists the queues that exist in the order of their reversed
	// labels (com.example.www), from the first after after. suffix narrows to
	// a name and all names that end in "."+suffix.
	ListQueues(ctx context.Context, suffix, after string, limit int) ([]*Queue, error)
}

// Collectors keeps what collectors tell of themselves.
type Collectors interface {
	// Beats records presence. The session rules are those of BeginPolls, but for the beat
	// with which a session has Ended: what comes after it changes nothing of what it told,
	// and where another session is current it changes nothing.
	Beats(ctx context.Context, beats []CollectorInfo) ([]PollState, error)
	// ListCollectors lists by id, ascending, from the first after after.
	// Collectors silent for CollectorMemory are forgotten.
	ListCollectors(ctx context.Context, after string, limit int) ([]*CollectorRecord, error)
	// PresentCollectors lists the ids of collectors that were seen at since or later, to
	// within a millisecond, and have not ended, in no order; of more than limit it is any
	// limit of them.
	PresentCollectors(ctx context.Context, since time.Time, limit int) ([]string, error)
	// HeldLeases counts the leases that all shards have for collectors, in the order of
	// their ids; 0 of one that is not known. It reads of each in every shard, several
	// times where it holds many: only who shows the numbers should ask.
	HeldLeases(ctx context.Context, ids []string) ([]int64, error)
	// CollectorInfos reads what collectors tell of themselves, by id: what came with
	// the last beat of the current session; nil where that has not sent one.
	CollectorInfos(ctx context.Context, ids []string) ([]*CollectorInfo, error)
	// Forget removes collectors not seen since before, up to limit, and
	// returns how many.
	Forget(ctx context.Context, before time.Time, limit int) (int, error)
}
