package dispatch

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
)

// DefaultPool is the pool of sources and fetches that name none.
const DefaultPool = "default"

// SourceSpec is what people write about a source. Zero durations and counts mean the default.
type SourceSpec struct {
	DisplayName string            `json:"display_name,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Scope       string            `json:"scope,omitempty"` // fixed at creation
	// CanonicalRules is the number of the rules that turn URLs into keys, fixed at creation; see Canonicalize.
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
	QuietAfter     time.Duration `json:"quiet_after,omitempty"`   // 0 = by its usual gaps
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

// FirstCrawl is when the seeds of a new source are first due.
type FirstCrawl uint8

// The kinds of first crawl.
const (
	FirstCrawlNow FirstCrawl = iota
	// FirstCrawlSpread spreads over one interval by the hash of the
	// source's id, so that an import of many sources does not fire at once;
	// with cron, it is the first tick.
	FirstCrawlSpread
)

// Retry bounds the attempts of a task in one cycle.
type Retry struct {
	MaxAttempts    int           `json:"max_attempts"`
	MaxExpirations int           `json:"max_expirations"`
	MaxThrottled   int           `json:"max_throttled"`
	MinBackoff     time.Duration `json:"min_backoff"`
	MaxBackoff     time.Duration `json:"max_backoff"`
}

// Follow decides which discovered items become tasks.
type Follow struct {
	MaxDepth   *int     `json:"max_depth,omitempty"`   // links from the seed; nil = bounds.MaxDepth
	AllowHosts []string `json:"allow_hosts,omitempty"` // exact, "*.suffix" (both: default port, unless one is named) or "*"; empty = the hosts of the seeds
	Include    []string `json:"include,omitempty"`     // RE2; one must match the URL; empty = all
	Exclude    []string `json:"exclude,omitempty"`     // RE2; none may match
}

// Defaults of sources.
const (
	defaultRemember    = 30 * 24 * time.Hour
	defaultMaxAttempts = 4
	defaultMaxExpired  = 5
	defaultMaxThrottle = 20
	defaultMinBackoff  = 10 * time.Second
	defaultMaxBackoff  = time.Hour
)

// FillDefaults sets what was left out. It changes nothing that was set.
func (s *SourceSpec) FillDefaults() {
	setDefault(&s.Pool, DefaultPool)
	setDefault(&s.CanonicalRules, canonical.Plain)
	setDefault(&s.LeaseDuration, DefaultLeaseDuration)
	setDefault(&s.MaxHold, max(DefaultMaxHold, s.LeaseDuration))
	setDefault(&s.Remember, defaultRemember)
	setDefault(&s.Retry.MaxAttempts, defaultMaxAttempts)
	setDefault(&s.Retry.MaxExpirations, defaultMaxExpired)
	setDefault(&s.Retry.MaxThrottled, defaultMaxThrottle)
	setDefault(&s.Retry.MinBackoff, defaultMinBackoff)
	setDefault(&s.Retry.MaxBackoff, max(defaultMaxBackoff, s.Retry.MinBackoff))
}

// DefaultSpec is the spec for tasks of a deleted source.
func DefaultSpec() *SourceSpec {
	spec := &SourceSpec{}
	spec.FillDefaults()
	return spec
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate returns a [FieldError] for the first invalid part of a spec with defaults filled in: a cron line or an
// expression that does not parse, patterns over their limits, two seeds that are the same task, bounds that contradict each other. The transport
// checks the sizes and formats of plain fields.
func (s *SourceSpec) Validate() error {
	if err := s.Schedule.validate(); err != nil {
		return err
	}
	if err := canonical.CheckRules(s.CanonicalRules); err != nil {
		return Invalid("canonical_rules", s.CanonicalRules, err.Error())
	}
	if _, err := s.Follow.Compile(); err != nil {
		return err
	}
	switch {
	case s.LeaseDuration < bounds.MinLeaseDuration || s.LeaseDuration > bounds.MaxLeaseDuration:
		return Invalid("lease_duration", s.LeaseDuration, fmt.Sprintf("must be %v to %v", bounds.MinLeaseDuration, bounds.MaxLeaseDuration))
	case s.MaxHold < s.LeaseDuration || s.MaxHold > bounds.MaxHold:
		return Invalid("max_hold", s.MaxHold, fmt.Sprintf("must be lease_duration (%v) to %v", s.LeaseDuration, bounds.MaxHold))
	case s.Retry.MaxBackoff < s.Retry.MinBackoff:
		return Invalid("retry.max_backoff", s.Retry.MaxBackoff, fmt.Sprintf("must be at least retry.min_backoff (%v)", s.Retry.MinBackoff))
	case s.Priority < 0 || s.Priority > bounds.MaxPriority:
		return Invalid("priority", s.Priority, fmt.Sprintf("must be 0 to %d", bounds.MaxPriority))
	case len(s.Seeds) > bounds.MaxSeeds:
		return Invalid("seeds", len(s.Seeds), fmt.Sprintf("must be at most %d", bounds.MaxSeeds))
	}
	return s.validateSeeds()
}

func (s *SourceSpec) validateSeeds() error {
	type name struct{ queue, key string }
	seen := make(map[name]int, len(s.Seeds))
	for i, seed := range s.Seeds {
		field := fmt.Sprintf("seeds[%d]", i)
		target, err := ResolveTarget(s.CanonicalRules, seed.URL, seed.Key, seed.Queue, nil)
		if err != nil {
			return prefixField(field, err)
		}
		n := name{target.Queue, target.Key}
		if j, dup := seen[n]; dup {
			return Invalid(field, seed.URL, fmt.Sprintf("is the same task as seeds[%d]", j))
		}
		seen[n] = i
	}
	return nil
}

// Target is what a URL, or a key and a queue in its place, stands for.
type Target struct {
	canonical.URL // empty without one
	Key, Queue    string
}

// ResolveTarget finds the key and the queue of a submitted item. queueOf maps a host to its queue; without it that is
// the host. The error is a [FieldError] for "url".
func ResolveTarget(rules int, rawURL, key, queue string, queueOf func(host string) string) (Target, error) {
	t := Target{Key: key, Queue: queue}
	if rawURL == "" {
		if key == "" || queue == "" {
			return t, Invalid("url", rawURL, "must be set, unless key and queue are")
		}
		return t, nil
	}
	var err error
	if t.URL, err = canonical.Parse(rules, rawURL); err != nil {
		return t, Invalid("url", rawURL, err.Error())
	}
	if len(t.Address) > bounds.MaxURLLength {
		return t, Invalid("url", rawURL, fmt.Sprintf("is %d bytes long when escaped; the limit is %d", len(t.Address), bounds.MaxURLLength))
	}
	if t.Key == "" {
		if t.Key = t.Canonical; len(t.Key) > bounds.MaxURLLength {
			return t, Invalid("url", rawURL, fmt.Sprintf("is %d bytes long in canonical form; the limit is %d", len(t.Key), bounds.MaxURLLength))
		}
	}
	if t.Queue == "" {
		if t.Queue = t.Host; queueOf != nil {
			t.Queue = queueOf(t.Host)
		}
	}
	return t, nil
}
