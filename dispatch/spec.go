package dispatch

import (
	"errors"
	"fmt"

	"github.com/waggle-crawl/waggle/dispatch/canonical"
)

// FillDefaults sets what was left out. It changes nothing that was set.
func (s *SourceSpec) FillDefaults() {
	setDefault(&s.Pool, DefaultPool)
	setDefault(&s.CanonicalRules, canonical.Plain)
	setDefault(&s.LeaseDuration, DefaultLeaseDuration)
	setDefault(&s.MaxHold, max(DefaultMaxHold, s.LeaseDuration))
	setDefault(&s.Remember, DefaultRemember)
	setDefault(&s.Retry.MaxAttempts, DefaultMaxAttempts)
	setDefault(&s.Retry.MaxExpirations, DefaultMaxExpired)
	setDefault(&s.Retry.MaxThrottled, DefaultMaxThrottle)
	setDefault(&s.Retry.MinBackoff, DefaultMinBackoff)
	setDefault(&s.Retry.MaxBackoff, max(DefaultMaxBackoff, s.Retry.MinBackoff))
}

// DefaultSpec is what holds for tasks whose source is gone.
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

// Validate reports, as a [FieldError], the first part of a spec with defaults
// filled in that means nothing: a cron line or an expression that does not
// parse, seeds that are the same task, bounds that contradict each other. Sizes
// and forms of plain fields are for the transport to check.
func (s *SourceSpec) Validate() error {
	if err := s.Schedule.Validate(); err != nil {
		return err
	}
	if err := canonical.CheckRules(s.CanonicalRules); err != nil {
		return Invalid("canonical_rules", s.CanonicalRules, err.Error())
	}
	if _, err := NewFollower(s); err != nil {
		return err
	}
	switch {
	case s.LeaseDuration < MinLeaseDuration || s.LeaseDuration > MaxLeaseDuration:
		return Invalid("lease_duration", s.LeaseDuration, fmt.Sprintf("must be %v to %v", MinLeaseDuration, MaxLeaseDuration))
	case s.MaxHold < s.LeaseDuration || s.MaxHold > MaxHold:
		return Invalid("max_hold", s.MaxHold, fmt.Sprintf("must be lease_duration (%v) to %v", s.LeaseDuration, MaxHold))
	case s.Retry.MaxBackoff < s.Retry.MinBackoff:
		return Invalid("retry.max_backoff", s.Retry.MaxBackoff, fmt.Sprintf("must be at least retry.min_backoff (%v)", s.Retry.MinBackoff))
	case s.Priority < 0 || s.Priority > MaxPriority:
		return Invalid("priority", s.Priority, fmt.Sprintf("must be 0 to %d", MaxPriority))
	case len(s.Seeds) > MaxSeeds:
		return Invalid("seeds", len(s.Seeds), fmt.Sprintf("must be at most %d", MaxSeeds))
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
			return PrefixField(field, err)
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

// ResolveTarget finds key and queue of what was submitted. queueOf maps a host to its
// queue; without it that is the host. The error is a [FieldError] for "url".
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
	if len(t.Address) > MaxURLLength {
		return t, Invalid("url", rawURL, fmt.Sprintf("is %d bytes long when escaped; the limit is %d", len(t.Address), MaxURLLength))
	}
	if t.Key == "" {
		if t.Key = t.Canonical; len(t.Key) > MaxURLLength {
			return t, Invalid("url", rawURL, fmt.Sprintf("is %d bytes long in canonical form; the limit is %d", len(t.Key), MaxURLLength))
		}
	}
	if t.Queue == "" {
		if t.Queue = t.Host; queueOf != nil {
			t.Queue = queueOf(t.Host)
		}
	}
	return t, nil
}

// PrefixField puts the path of the enclosing field before a [FieldError]'s.
func PrefixField(prefix string, err error) error {
	var field *FieldError
	if errors.As(err, &field) {
		return &FieldError{Field: prefix + "." + field.Field, Value: field.Value, Limit: field.Limit}
	}
	return fmt.Errorf("%s: %w", prefix, err)
}
