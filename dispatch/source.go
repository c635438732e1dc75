package dispatch

import (
	"context"
	"time"
)

// CanceledMemory is how long records of a deleted source's tasks are kept.
const CanceledMemory = 24 * time.Hour

// Source is a registered crawl target: what people wrote, and what Waggle
// keeps about it.
type Source struct {
	ID   string     `json:"id"`  // dotted, chosen by people
	UID  string     `json:"uid"` // new when an id is deleted and created again
	Spec SourceSpec `json:"spec"`
	// Version rises with each change of Spec, Holds or Deleted, and is the
	// source's etag. Shards hold the newest they were given.
	Version int64 `json:"version"`
	// Applied is the version that all shards, and the seeds, have. The keeper
	// finishes what an interrupted call left below Version.
	Applied int64 `json:"applied"`
	// AppliedSeeds are the ids of the recurring tasks that exist, and
	// PendingSeeds those that versions below this one may have made beside them
	// before all shards had this one.
	AppliedSeeds []TaskID `json:"applied_seeds,omitempty"`
	PendingSeeds []TaskID `json:"pending_seeds,omitempty"`
	// Holds are those on the id, by key; those that are over, too.
	Holds   []Hold `json:"holds,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
	// Deletion is who deleted it, when and why; nil while it is not, or where nobody
	// said.
	Deletion *Gate     `json:"deletion,omitempty"`
	Created  time.Time `json:"created"`
	Updated  time.Time `json:"updated"`
}

// Scope is the space in which the source's keys are unique.
func (s *Source) Scope() string {
	if s.Spec.Scope != "" {
		// A shared scope can never collide with a uid.
		return "scope:" + s.Spec.Scope
	}
	return s.UID
}

// FirstDue is when the seeds of a source made at now are due first, before
// jitter.
func (s *Source) FirstDue(now time.Time) time.Time {
	interval := s.Spec.Schedule.Interval(now)
	if s.Spec.FirstCrawl != FirstCrawlSpread || interval < time.Millisecond {
		return now
	}
	return now.Add(hashWithin(s.ID, interval))
}

// Gone reports whether nothing is left of the source but the holds on its id: they stand
// for a source that is created under it again.
func (s *Source) Gone() bool { return s.Deleted && s.Applied == s.Version }

// SourceGate is the part of a source that grants need, held by each shard in
// which the source has a lane. A shard refuses a version older than its own.
type SourceGate struct {
	UID, ID  string
	Version  int64
	Pool     string
	Priority int
	// HeldUntil: zero = not held, [Forever] = until the hold is lifted.
	HeldUntil      time.Time
	Deleted        bool
	MaxOutstanding int64
	LeaseDuration  time.Duration
	MaxHold        time.Duration
	// Remember is how long a task is kept that GiveBack or an Unread transition
	// ends; 0 = with its source, for GiveBack, and not known, for a transition.
	Remember time.Duration
	// JoinedBytes is the size of what the dispatcher adds to each of its
	// tasks at hand-out, for the limit on bytes of a claim.
	JoinedBytes int
}

// Forever is the end of a gate that only an operator lifts.
var Forever = time.UnixMilli(1<<43 - 1).UTC()

// Gate derives the shard's part of the source.
func (s *Source) Gate() SourceGate {
	g := SourceGate{
		UID: s.UID, ID: s.ID, Version: s.Version, Pool: s.Spec.Pool, Priority: s.Spec.Priority,
		Deleted: s.Deleted, MaxOutstanding: s.Spec.MaxOutstanding,
		LeaseDuration: s.Spec.LeaseDuration, MaxHold: s.Spec.MaxHold, Remember: s.Spec.Remember,
		JoinedBytes: len(s.Spec.Payload),
	}
	for k, v := range s.Spec.Metadata {
		g.JoinedBytes += len(k) + len(v)
	}
	for i := range s.Holds {
		if end := s.Holds[i].End(); end.After(g.HeldUntil) {
			g.HeldUntil = end
		}
	}
	return g
}

// SourceStatus is what shards know of a source, summed.
type SourceStatus struct {
	Counts StateCounts
	// LastSuccess of any of its tasks, and the failures of seeds in a row
	// since the last success.
	LastSuccess    time.Time
	FailuresInARow int64
	LastFailure    time.Time
	Limited        int64 // submits refused for MaxOutstanding
	Filtered       Filtered
}

// StateCounts counts tasks by state. A due task counts as ready from when a
// claim next looks at its lane.
type StateCounts struct {
	Scheduled, Ready, Leased, Done, Dead, Canceled int64
}

// Add sums two counts.
func (c StateCounts) Add(o StateCounts) StateCounts {
	return StateCounts{
		Scheduled: c.Scheduled + o.Scheduled, Ready: c.Ready + o.Ready, Leased: c.Leased + o.Leased,
		Done: c.Done + o.Done, Dead: c.Dead + o.Dead, Canceled: c.Canceled + o.Canceled,
	}
}

// Sources keeps sources and tells shards of them.
type Sources interface {
	// PutSource keeps a source, in one step. With ifVersion 0 it is new:
	// ErrSourceExists when the id is taken, also by a source that is being
	// deleted or [Source.Gone]; idempotent by UID. Else it replaces the source of its id whose
	// version still is ifVersion, but for what MarkApplied wrote: ErrEtagMismatch
	// when that has another version or UID (the UID may be another where the kept
	// one is Gone: a source is created again), ErrSourceNotFound when the id has
	// gone. What is kept then is Gone if s is Deleted and its Applied is its Version: all of
	// s is kept. Idempotent: an equal source already kept is success.
	PutSource(ctx context.Context, s *Source, ifVersion int64) error
	// MarkApplied notes, in one step, that version is applied everywhere, with the
	// seeds that exist, if the source has no newer one; false when it has. A source
	// that is Deleted is removed by it. Idempotent: true of one that is removed.
	MarkApplied(ctx context.Context, id, uid string, version int64, seeds []TaskID) (bool, error)
	// SourcesByID reads sources, in the order of the ids; nil where there is none.
	SourcesByID(ctx context.Context, ids []string) ([]*Source, error)
	// ListSources lists those of a filter by id, ascending, from the first after
	// after. A page is bounded in bytes, too ([bounds.MaxPageBytes]); more: others
	// follow the last one, of which there is one then.
	ListSources(ctx context.Context, filter SourceFilter, after string, limit int) (sources []*Source, more bool, err error)

	// PushSource tells a shard of a source. The first call (empty page) is
	// effective at once for every later grant in the shard; further calls, with
	// the page returned, put its lanes where they now belong, until the
	// returned page is empty. A version older than the shard's is ignored and
	// ends the paging. Each call is one step in the shard; idempotent.
	PushSource(ctx context.Context, shard int, gate SourceGate, page string) (next string, err error)
	// DropTasks ends up to limit tasks (1 to bounds.MaxTransitions; another is taken
	// for the nearest of those) of a deleted source in the shard: waiting, dead
	// and canceled ones become CANCELED records that are kept for
	// CanceledMemory; it returns how many it ended and the leased ones it met,
	// at most limit and in no order, which the caller cancels. Zero and none
	// means that nothing is left to end but leases. why, unless nil, is what Tasks
	// answers from then on as SourceDeleted of the source's tasks in the shard. Each
	// task is ended in one step; repeated, it goes on.
	DropTasks(ctx context.Context, shard int, uid string, limit int, why *Gate) (ended int, leased []TaskID, err error)
	// SourceStatuses sums what all shards know of sources, in the order of the uids;
	// zero of one that none knows.
	SourceStatuses(ctx context.Context, uids []string) ([]SourceStatus, error)
	// CountFiltered adds to a source's Filtered, in one shard and one step; nothing
	// where that does not hold the source. Not idempotent: repeated it counts twice.
	CountFiltered(ctx context.Context, shard int, uid string, filtered Filtered) error
}

// SourceFilter selects sources to list.
type SourceFilter struct {
	Prefix string // of their ids
	// Pending selects those whose Applied is below their Version.
	Pending bool
	// Held selects those that have Holds, Gone ones among them.
	Held bool
}
