package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// QueueSettings is how politely a queue is worked on, resolved at each grant.
type QueueSettings struct {
	// MinDelay between request starts.
	MinDelay time.Duration
	// MaxInFlight leases at once.
	MaxInFlight int
	// DelayFactor of the last fetch's duration is waited after a report, up
	// to MaxDelay. 0 = off.
	DelayFactor float64
	// MaxDelay bounds what DelayFactor and the host itself can ask for; 0 =
	// bounds.MaxMinDelay for the one, a minute for the other.
	MaxDelay time.Duration
	// MaxBlock bounds automatic blocks.
	MaxBlock time.Duration
}

// Defaults of queue rules.
const (
	defaultMinDelay    = time.Second
	defaultMaxInFlight = 1
	defaultMaxBlock    = 24 * time.Hour
	// hostDelayLimit is how much of what a host asks for counts where no rule sets
	// max_delay.
	hostDelayLimit = time.Minute
)

// DefaultQueueSettings hold where no rule says otherwise.
func DefaultQueueSettings() QueueSettings {
	return QueueSettings{MinDelay: defaultMinDelay, MaxInFlight: defaultMaxInFlight, MaxBlock: defaultMaxBlock}
}

// Paced are the settings of a queue whose host asks for a delay of its own: its
// MinDelay is the longer of the rule's and asked, of which MaxDelay
// (hostDelayLimit where the rule sets none) counts at most. All that grants and
// reports do goes by it.
func (s QueueSettings) Paced(asked time.Duration) QueueSettings {
	s.MinDelay = max(s.MinDelay, min(asked, cmp.Or(s.MaxDelay, hostDelayLimit)))
	return s
}

// MinDelayGate is the gate of a queue whose next request start is not due yet:
// where its host asks for the longer delay, Reason says so.
func (s QueueSettings) MinDelayGate(until time.Time, asked time.Duration) Gate {
	gate := Gate{Kind: GateMinDelay, Until: until}
	switch paced := s.Paced(asked).MinDelay; {
	case paced <= s.MinDelay:
	case paced < asked:
		gate.Reason = fmt.Sprintf("the host asks for %v between requests, of which max_delay lets %v count", asked, paced)
	default:
		gate.Reason = fmt.Sprintf("the host asks for %v between requests", asked)
	}
	return gate
}

// MaxInFlightGate is the gate of a queue that has as many leases as it may have, or
// more, since it might have more.
func (s QueueSettings) MaxInFlightGate(leased int64) Gate {
	return Gate{Kind: GateMaxInFlight, Reason: fmt.Sprintf("%d in flight of at most %d", leased, s.MaxInFlight)}
}

// QueueRule sets and maps the queues of the hosts that its pattern matches.
type QueueRule struct {
	// Pattern is an exact host or queue, "*.suffix", or "*". The longest
	// match holds.
	Pattern string
	// Queue, when set, is the queue that tasks of matching hosts go to, and
	// the settings are that queue's.
	Queue    string
	Settings QueueSettings
	// By, Reason and Time are those of its last change.
	By     string
	Reason string
	Time   time.Time
}

// SettingsName is the name under which a store files the rule's settings: the
// queue it maps to, else its pattern. [SettingsNames] looks them up.
func (r QueueRule) SettingsName() string {
	if r.Queue != "" {
		return r.Queue
	}
	return r.Pattern
}

// SettingsNames lists the names under which settings for queue may be filed,
// the most specific first: the queue itself, its host without a port, "*." and
// each shorter suffix, "*".
func SettingsNames(queue string) []string {
	names := []string{queue}
	host := queue
	if h, _, err := net.SplitHostPort(queue); err == nil {
		host = h
		names = append(names, host)
	}
	for {
		_, rest, ok := strings.Cut(host, ".")
		if !ok {
			break
		}
		names = append(names, "*."+rest)
		host = rest
	}
	return append(names, "*")
}

// Validate reports, as a [FieldError], the first setting out of its range.
func (r *QueueRule) Validate() error {
	s := r.Settings
	switch {
	case !validPattern(r.Pattern):
		return Invalid("pattern", r.Pattern, fmt.Sprintf("must be a queue name, \"*.suffix\" or \"*\", of 1 to %d bytes in lower case", bounds.MaxQueueLength))
	case s.MinDelay < 0 || s.MinDelay > bounds.MaxMinDelay:
		return Invalid("min_delay", s.MinDelay, fmt.Sprintf("must be 0 to %v", bounds.MaxMinDelay))
	case s.MaxInFlight < 1 || s.MaxInFlight > bounds.MaxInFlight:
		return Invalid("max_in_flight", s.MaxInFlight, fmt.Sprintf("must be 1 to %d", bounds.MaxInFlight))
	case !(s.DelayFactor >= 0 && s.DelayFactor <= bounds.MaxDelayFactor):
		return Invalid("delay_factor", s.DelayFactor, fmt.Sprintf("must be 0 to %d", bounds.MaxDelayFactor))
	case s.MaxDelay < 0 || s.MaxDelay > bounds.MaxMinDelay:
		return Invalid("max_delay", s.MaxDelay, fmt.Sprintf("must be 1ms to %v", bounds.MaxMinDelay))
	case s.MaxDelay > 0 && s.MaxDelay < s.MinDelay:
		return Invalid("max_delay", s.MaxDelay, fmt.Sprintf("must be min_delay, %v, or more: requests are never nearer than that", s.MinDelay))
	case s.MaxBlock < time.Second || s.MaxBlock > bounds.MaxBlock:
		return Invalid("max_block", s.MaxBlock, fmt.Sprintf("must be 1s to %v", bounds.MaxBlock))
	case r.Queue != "" && strings.Contains(r.Queue, "*"):
		return Invalid("queue", r.Queue, "must be the name of one queue")
	}
	return nil
}

func validPattern(pattern string) bool {
	if pattern == "*" {
		return true
	}
	name := strings.TrimPrefix(pattern, "*.")
	return name != "" && len(pattern) <= bounds.MaxQueueLength && !strings.Contains(name, "*") && name == strings.ToLower(name)
}

// Queue is what a store tells of one queue.
type Queue struct {
	Name     string
	Settings QueueSettings
	// SettingsName is the rule name that gave the settings; empty = defaults.
	SettingsName string
	Pools        []string
	// QueueDelay is what the host asks for between request starts, as
	// collectors last reported; 0 = nothing. See [QueueSettings.Paced].
	QueueDelay time.Duration
	Waiting    int64 // tasks scheduled or ready
	Leased     int64
	// NextGrant is the earliest instant at which the queue can be granted
	// from, the maximum over its gates and the holds on it; zero = now, or never when a
	// gate or hold without an end stops it.
	NextGrant time.Time
	// BlockStep counts the automatic blocks in a row.
	BlockStep int
	// Gates are those of the queue itself: delay, limit and block. Holds on it are those of
	// [Holds].
	Gates []Gate
}

// Pool is what a store tells of one pool.
type Pool struct {
	Name string
	// Open queues can be granted from but for holds on the pool and what no
	// claim has met yet, such as a new rule; Waiting ones hold tasks that cannot
	// be granted now.
	Open, Waiting int64
}

// Queues keeps queue rules, and tells of queues and pools.
type Queues interface {
	// PutRule keeps the rule of a pattern, or removes it where rule is nil, under the
	// next version of all rules, which it answers. All shards know of it then, and
	// grants after it follow it. It does so in one step, and only if the rules have
	// version ifVersion (0 = none was ever set): else ErrEtagMismatch.
	// ErrRuleNotFound where there is none to remove at ifVersion; ErrInvalid beyond
	// [bounds.MaxQueueRules]. Idempotent: repeated, it answers the version again while
	// nothing else has changed. After an error some shards may not know of it;
	// SyncRules brings them to it.
	PutRule(ctx context.Context, pattern string, rule *QueueRule, ifVersion int64) (version int64, err error)
	// Rules reads all rules, ascending by pattern, with their version. Those that
	// change meanwhile may be newer than the version, never older.
	Rules(ctx context.Context) (rules []QueueRule, version int64, err error)
	// SyncRules brings a shard to the rules and holds of shard 0 after an interrupted
	// PutRule or PutHolds, and puts up to limit queues where they now belong, starting at
	// page: those that wait for a gate without an end and, until it has come to
	// the end once since rules or holds changed, those whose delay lasts, which ends
	// no later than by the rules as they are. The end is an empty next. Each page is
	// one step in the shard; idempotent.
	SyncRules(ctx context.Context, shard int, page string, limit int) (next string, err error)
	// Unblock opens the block that failures have caused ([GateHostBlocked]) and starts
	// their doubling anew. It reports whether there was one of both. Idempotent.
	Unblock(ctx context.Context, queue string) (bool, error)
	// QueuesNamed reads queues, in the order of the names; nil for one that holds nothing
	// and has no gate. It takes a read for each shard of some of them, or for each 200 in
	// one, and one more where rules hold some of these.
	QueuesNamed(ctx context.Context, names []string) ([]*Queue, error)
	// ListQueues lists the queues that exist in the order of their reversed
	// labels (com.example.www), from the first after after. suffix narrows to
	// a name and all names that end in "."+suffix.
	ListQueues(ctx context.Context, suffix, after string, limit int) ([]*Queue, error)
	// ListPools lists the pools that have queues with waiting tasks, ascending, from the
	// first after after. name, unless empty, narrows to that one.
	ListPools(ctx context.Context, name, after string, limit int) ([]Pool, error)
}
