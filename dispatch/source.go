package dispatch

import (
	"context"
	"time"

	"github.com/waggle-crawl/waggle/dispatch/history"
)

// CanceledMemory is how long records of a deleted source's tasks are kept.
const CanceledMemory = 24 * time.Hour

// Source is a registered crawl target: its spec, and what Waggle keeps about it.
type Source struct {
	ID   string     `json:"id"`  // dotted, chosen by people
	UID  string     `json:"uid"` // new when an id is deleted and created again
	Spec SourceSpec `json:"spec"`
	// Version rises with each change of Spec, Holds or Deleted, and is the source's etag. A shard keeps the newest
	// version that it got.
	Version int64 `json:"version"`
	// Applied is the version that all shards and the seeds have. If an interrupted call left it below Version, the
	// owner of the store finishes it.
	Applied int64 `json:"applied"`
	// AppliedSeeds are the ids of the recurring tasks that exist. PendingSeeds are other ones that earlier versions may
	// have created before all shards had this version.
	AppliedSeeds []TaskID `json:"applied_seeds,omitempty"`
	PendingSeeds []TaskID `json:"pending_seeds,omitempty"`
	// Holds on the id, by key, including those that have ended.
	Holds   []Hold `json:"holds,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
	// Deletion is who deleted it, when and why; nil if it is not deleted, or not known.
	Deletion *Gate     `json:"deletion,omitempty"`
	Created  time.Time `json:"created"`
	Updated  time.Time `json:"updated"`
}

// Scope is the space where the source's keys are unique.
func (s *Source) Scope() string {
	if s.Spec.Scope != "" {
		// A shared scope can never collide with a uid.
		return "scope:" + s.Spec.Scope
	}
	return s.UID
}

// FirstDue is when a seed of a source that is created at now is first due, before jitter.
func (s *Source) FirstDue(now time.Time, seed TaskID) time.Time {
	schedule := s.Spec.Schedule
	switch {
	case s.Spec.FirstCrawl != FirstCrawlSpread || schedule.Once():
		return now
	case schedule.Cron == "":
		return now.Add(hashWithin(s.ID, schedule.Interval(now)))
	}
	tick, err := schedule.after(now.Add(-schedule.Offset(seed)), now)
	if err != nil { // no tick is left
		return now
	}
	return tick
}

// Gone reports whether only the holds on the id are left. They apply to the next source that is created with it.
func (s *Source) Gone() bool { return s.Deleted && s.Applied == s.Version }

// SourceGate is the part of a source that grants need. Each shard with a lane of the source has it, and refuses a
// version older than its own.
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
	// Remember is how long a task is kept after GiveBack or an Unread transition ends it. 0 = with its source for
	// GiveBack, not known for a transition.
	Remember time.Duration
	// JoinedBytes is the size of the source's metadata and payload, which the dispatcher adds to each task;
	// Want.MaxBytes counts them.
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

// SourceStatus is the sum of what all shards know about a source.
type SourceStatus struct {
	Counts StateCounts
	// LastSuccess of any of its tasks, and the failures of seeds in a row
	// since the last success.
	LastSuccess    time.Time
	FailuresInARow int64
	LastFailure    time.Time
	Limited        int64 // submits refused for MaxOutstanding
	Filtered       Filtered
	// LastNew is when an entry of a document last became a task; UsualGap is between such instants, 0 until enough are known.
	LastNew  time.Time
	UsualGap time.Duration
	// EmptyCycles in a row had nothing of what their documents are for.
	EmptyCycles int64
	// Pages are the last ones, without seeds: a page counts when its first attempt fails, and when it succeeds.
	Pages history.Pages
	// History is nil unless it was asked for and there is one.
	History *history.History
}

// StateCounts counts tasks by state. A due task counts as ready after the next claim that reads its lane.
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

// Sources keeps sources and copies their gates to shards.
type Sources interface {
	// PutSource stores a source, in one step. With ifVersion 0 it creates the source: ErrSourceExists if the id is
	// taken, also by a source that is being deleted or [Source.Gone]; idempotent by UID. Otherwise it replaces all of
	// the stored source with this id except what MarkApplied wrote. ErrEtagMismatch if its version is not ifVersion or
	// its UID differs; a source that is Gone may be replaced by one with another UID. ErrSourceNotFound if no source
	// has the id. If s is Deleted and its Applied is its Version, all of s is stored, and the source is Gone.
	// Idempotent: to store an equal source again succeeds.
	PutSource(ctx context.Context, s *Source, ifVersion int64) error
	// MarkApplied records, in one step, that version is applied everywhere, and which seeds exist. It returns false,
	// and does nothing, if the source has a newer version. It removes a source that is Deleted. Idempotent: true for a
	// source that is already removed.
	MarkApplied(ctx context.Context, id, uid string, version int64, seeds []TaskID) (bool, error)
	// SourcesByID reads sources, in the order of the ids; nil where there is none.
	SourcesByID(ctx context.Context, ids []string) ([]*Source, error)
	// ListSources lists the sources that match filter by id, ascending, from the first after after. A page has at most
	// [bounds.MaxPageBytes]. more: others follow the last one; then the page is not empty.
	ListSources(ctx context.Context, filter SourceFilter, after string, limit int) (sources []*Source, more bool, err error)

	// PushSource copies the gate of a source to a shard. The first call (empty page) takes effect for every later grant
	// in the shard. Further calls, with the returned page, reschedule its lanes, until the returned page is empty. A
	// version older than the shard's is ignored and ends the paging. Each call is one step in the shard; idempotent.
	PushSource(ctx context.Context, shard int, gate SourceGate, page string) (next string, err error)
	// DropTasks ends up to limit tasks of a deleted source in the shard. limit is clamped to 1 to
	// bounds.MaxTransitions. Waiting, dead and canceled tasks become CANCELED records that are kept for CanceledMemory.
	// It returns how many it ended, and leased tasks for the caller to cancel: at most limit, in no order. Zero and
	// none means that only leased tasks are left. why, unless nil, is then SourceDeleted of the source's tasks in the
	// shard. Each task ends in one step; a repeat continues.
	DropTasks(ctx context.Context, shard int, uid string, limit int, why *Gate) (ended int, leased []TaskID, err error)
	// SourceStatuses sums the status of sources over all shards, in the order of the uids; zero for an unknown source. Only
	// if histories is true it reads their histories, up to 6 KB each.
	SourceStatuses(ctx context.Context, uids []string, histories bool) ([]SourceStatus, error)
	// CountEntries adds to a source's Filtered, in one shard and one step. Those that were Found belong to the next cycle of
	// the source that succeeds in the shard. It does nothing if the shard does not have the source. Not idempotent: repeated,
	// it counts twice.
	CountEntries(ctx context.Context, shard int, uid string, entries history.Entries) error
}

// SourceFilter selects sources to list.
type SourceFilter struct {
	Prefix string // of their ids
	// Pending selects those with Applied below Version.
	Pending bool
	// Held selects those that have Holds, Gone ones among them.
	Held bool
	// Silent selects those that may be silent: with a QuietAfter; with nothing new for 5 of their usual gaps and 3 days; with two empty
	// cycles in a row; and with last pages that failed.
	Silent bool
}
