package dispatch

import "time"

// Limits and defaults of sources.
const (
	MaxSeeds           = 1000
	MaxLabels          = 64
	MaxFollowPatterns  = 256
	DefaultPool        = "default"
	DefaultRemember    = 30 * 24 * time.Hour
	MaxRemember        = 400 * 24 * time.Hour
	CanceledMemory     = 24 * time.Hour // records of a deleted source's tasks
	DefaultMaxAttempts = 4
	DefaultMaxExpired  = 5
	DefaultMaxThrottle = 20
	DefaultMinBackoff  = 10 * time.Second
	DefaultMaxBackoff  = time.Hour
)

// Source is a registered crawl target: what people wrote, and what Waggle
// keeps about it.
type Source struct {
	ID   string     `json:"id"`  // dotted, chosen by people
	UID  string     `json:"uid"` // new when an id is deleted and created again
	Spec SourceSpec `json:"spec"`
	// Version rises with each change of Spec, Paused or Deleted, and is the
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
	Paused       *Gate    `json:"paused,omitempty"`
	Deleted      bool     `json:"deleted,omitempty"`
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

// SourceSpec is what people write of a source. Zero durations and counts mean
// the default.
type SourceSpec struct {
	DisplayName string            `json:"display_name,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Scope       string            `json:"scope,omitempty"` // fixed at creation
	// CanonicalRules is the number of the rules by which URLs become keys,
	// fixed at creation; see Canonicalize.
	CanonicalRules int           `json:"canonical_rules"`
	Seeds          []Seed        `json:"seeds,omitempty"`
	Pool           string        `json:"pool"`
	Schedule       Schedule      `json:"schedule"`
	FirstCrawl     FirstCrawl    `json:"first_crawl,omitempty"`
	Priority       int           `json:"priority"`
	LeaseDuration  time.Duration `json:"lease_duration"`
	MaxHold        time.Duration `json:"max_hold"`
	Retry          Retry         `json:"retry"`
	Remember       time.Duration `json:"remember"`
	RevisitAfter   time.Duration `json:"revisit_after,omitempty"` // 0 = never
	Follow         *Follow       `json:"follow,omitempty"`        // nil = discovered items are all filtered
	// MaxOutstanding one-shot tasks, waiting or leased, per shard. 0 = no
	// limit.
	MaxOutstanding int64             `json:"max_outstanding,omitempty"`
	Metadata       map[string]string `json:"metadata,omitempty"`
	Payload        []byte            `json:"payload,omitempty"`
}

// Seed is where a source's crawl begins: a recurring task.
type Seed struct {
	URL   string `json:"url,omitempty"`
	Key   string `json:"key,omitempty"`   // default: the canonical URL
	Queue string `json:"queue,omitempty"` // default: by the queue rules
	Kind  string `json:"kind,omitempty"`
	// Priority among the source's tasks; DefaultPriority is neutral.
	Priority int               `json:"priority"`
	Metadata map[string]string `json:"metadata,omitempty"` // laid over the source's
	Payload  []byte            `json:"payload,omitempty"`  // instead of the source's
}

// FirstCrawl says when the seeds of a new source are due first.
type FirstCrawl uint8

// The kinds of first crawl.
const (
	FirstCrawlNow FirstCrawl = iota
	// FirstCrawlSpread spreads over one interval by the hash of the
	// source's id, so that an import of many sources does not fire at once.
	FirstCrawlSpread
)

// Schedule says when a settled seed is due again. At most one of Every, Cron and
// Adaptive is set; with none, seeds are crawled once per trigger.
type Schedule struct {
	Every    time.Duration `json:"every,omitempty"`     // keeps its phase
	Cron     string        `json:"cron,omitempty"`      // five fields, or a descriptor such as @daily
	TimeZone string        `json:"time_zone,omitempty"` // of Cron, an IANA name; default UTC
	Adaptive Adaptive      `json:"adaptive,omitzero"`   // an interval that follows the page
	// Jitter shifts the due times of each seed by a stable part of it (see
	// [Schedule.Offset]), of an adaptive schedule the first one only.
	Jitter time.Duration `json:"jitter,omitempty"`
	// Revisit makes each cycle of a seed a pass: what is discovered in it is
	// crawled again even when it was settled in an earlier pass.
	Revisit bool `json:"revisit,omitempty"`
}

// Retry bounds the attempts of a task in one cycle.
type Retry struct {
	MaxAttempts    int           `json:"max_attempts"`
	MaxExpirations int           `json:"max_expirations"`
	MaxThrottled   int           `json:"max_throttled"`
	MinBackoff     time.Duration `json:"min_backoff"`
	MaxBackoff     time.Duration `json:"max_backoff"`
}

// Follow says which discovered items become tasks.
type Follow struct {
	MaxDepth   *int     `json:"max_depth,omitempty"`   // links from the seed; nil = MaxDepth
	AllowHosts []string `json:"allow_hosts,omitempty"` // exact or "*.suffix"; empty = the hosts of the seeds
	Include    []string `json:"include,omitempty"`     // RE2; one must match the URL; empty = all
	Exclude    []string `json:"exclude,omitempty"`     // RE2; none may match
}

// SourceStatus is what Waggle knows of a source.
type SourceStatus struct {
	Counts StateCounts
	// LastSuccess of any of its tasks, and the failures of seeds in a row
	// since the last success.
	LastSuccess    time.Time
	FailuresInARow int64
	LastFailure    time.Time
	Limited        int64 // submits refused for MaxOutstanding
	Filtered       Filtered
	DeadSeeds      int64 // seeds that the breaker took out
	CanceledSeeds  int64 // seeds that an operator took out
	DeniedSeeds    int64 // seeds that wait in a queue which a rule denies
	GivenUpCycles  int   // in a row, of the seed with the most
	// LastError of its seeds; where details are read, also one that a success
	// has followed.
	LastError       *Failure
	NextDue         time.Time // of the seeds; zero = none waits
	Lag             time.Duration
	PendingVersions int64 // versions that not all shards have yet
	// Outstanding tasks have not settled; seeds that rest until their next
	// cycle are not counted. Like Counts, not of one instant.
	Outstanding int64
	// Gates hold the seed that is due next; only [Dispatcher.Source] looks. In a list
	// that is asked for them they are a pause of the source's pool, that no collector
	// takes its tasks, and pauses, denials and blocks of the seed's queue.
	Gates []Gate
	// CollectorUnknown: too many collectors are there to tell whether one takes its tasks.
	CollectorUnknown bool
	// ShortestInterval and LongestInterval of the seeds, of an adaptive
	// schedule.
	ShortestInterval, LongestInterval time.Duration
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

// SourceGate is the part of a source that grants need, held by each shard in
// which the source has a lane. A shard refuses a version older than its own.
type SourceGate struct {
	UID, ID  string
	Version  int64
	Pool     string
	Priority int
	// PausedUntil: zero = not paused, [Forever] = until resumed.
	PausedUntil    time.Time
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
	if s.Paused != nil {
		if g.PausedUntil = s.Paused.Until; g.PausedUntil.IsZero() {
			g.PausedUntil = Forever
		}
	}
	return g
}

// WouldPause is what a pause by gate would replace at now, and whether it would change
// anything: one in the same words does not, and the source is paused since when it was.
func (s *Source) WouldPause(gate Gate, now time.Time) (replaced *Gate, changes bool) {
	if p := s.Paused; p != nil && p.By == gate.By && p.Reason == gate.Reason && p.Until.Equal(gate.Until) {
		return nil, false
	}
	return s.PausedAt(now), true
}

// PausedAt is the pause that holds grants of the source at now: nil where none does,
// because nobody paused it or the pause is over.
func (s *Source) PausedAt(now time.Time) *Gate {
	if p := s.Paused; p != nil && (p.Until.IsZero() || p.Until.After(now)) {
		return p
	}
	return nil
}
