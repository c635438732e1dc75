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

// QueueSettings is the politeness of a queue, resolved at each grant.
type QueueSettings struct {
	// MinDelay between request starts.
	MinDelay time.Duration
	// MaxInFlight leases at once.
	MaxInFlight int
	// DelayFactor times the last fetch's duration is the wait after a report, up to MaxDelay. 0 = off.
	DelayFactor float64
	// MaxDelay limits the delays by DelayFactor and by the host; 0 = bounds.MaxMinDelay for DelayFactor, a minute for
	// the host.
	MaxDelay time.Duration
	// MaxBlock limits automatic blocks.
	MaxBlock time.Duration
}

// Defaults of queue rules.
const (
	defaultMinDelay    = time.Second
	defaultMaxInFlight = 1
	defaultMaxBlock    = 24 * time.Hour
	// hostDelayLimit limits the delay that a host asks for if no rule sets max_delay.
	hostDelayLimit = time.Minute
)

// DefaultQueueSettings apply to queues without a rule.
func DefaultQueueSettings() QueueSettings {
	return QueueSettings{MinDelay: defaultMinDelay, MaxInFlight: defaultMaxInFlight, MaxBlock: defaultMaxBlock}
}

// Paced are the settings of a queue with a host that asks for a delay. At most MaxDelay of asked counts, or
// hostDelayLimit if the rule has none; MinDelay is the longer of that and the rule's. Grants and reports use these
// settings.
func (s QueueSettings) Paced(asked time.Duration) QueueSettings {
	s.MinDelay = max(s.MinDelay, min(asked, cmp.Or(s.MaxDelay, hostDelayLimit)))
	return s
}

// MinDelayGate is the gate of a queue before its next request may start. If the host asks for a longer delay than the
// rule, Reason names it.
func (s QueueSettings) MinDelayGate(until time.Time, asked time.Duration) Gate {
	gate := Gate{Kind: GateMinDelay, Until: until}
	switch paced := s.Paced(asked).MinDelay; {
	case paced <= s.MinDelay:
	case paced < asked:
		gate.Reason = fmt.Sprintf("the host asks for %v between requests; max_delay limits that to %v", asked, paced)
	default:
		gate.Reason = fmt.Sprintf("the host asks for %v between requests", asked)
	}
	return gate
}

// MaxInFlightGate is the gate of a queue with MaxInFlight leases, or more after the limit was lowered.
func (s QueueSettings) MaxInFlightGate(leased int64) Gate {
	return Gate{Kind: GateMaxInFlight, Reason: fmt.Sprintf("%d in flight of at most %d", leased, s.MaxInFlight)}
}

// QueueRule sets and maps the queues of the hosts that its pattern matches.
type QueueRule struct {
	// Pattern is an exact host or queue, "*.suffix", or "*". The longest match applies.
	Pattern string
	// Queue, if set, is the queue for tasks of matching hosts; then the settings are that queue's.
	Queue    string
	Settings QueueSettings
	// By, Reason and Time are those of its last change.
	By     string
	Reason string
	Time   time.Time
}

// SettingsName is the store's name for the rule's settings: the queue that it maps to, else its pattern.
// [SettingsNames] finds them.
func (r QueueRule) SettingsName() string {
	if r.Queue != "" {
		return r.Queue
	}
	return r.Pattern
}

// SettingsNames lists the names that settings for queue may have, the most specific first: the queue itself, its host
// without a port, "*." and each shorter suffix, "*".
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
		return Invalid("max_delay", s.MaxDelay, fmt.Sprintf("must be min_delay, %v, or more", s.MinDelay))
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

// Queue is a queue as a store returns it.
type Queue struct {
	Name     string
	Settings QueueSettings
	// SettingsName is the rule name that gave the settings; empty = defaults.
	SettingsName string
	Pools        []string
	// QueueDelay is the delay between request starts that the host asks for, by the last report; 0 = none. See
	// [QueueSettings.Paced].
	QueueDelay time.Duration
	Waiting    int64 // tasks scheduled or ready
	Leased     int64
	// NextGrant is when the queue's gates and the holds on it have all ended; zero = now, or never if one of them has
	// no end.
	NextGrant time.Time
	// BlockStep counts the automatic blocks in a row.
	BlockStep int
	// Gates are those of the queue itself: delay, limit and block. Holds on it are those of
	// [Holds].
	Gates []Gate
}

// QueueHour is what a queue did in the last hour.
type QueueHour struct {
	// Since is when its counting began: a new owner of the store begins anew.
	Since time.Time
	// Intervals are without gaps from the first one with something in it, the oldest first, to the current one: at most
	// [bounds.QueueIntervals].
	Intervals []QueueInterval
	// SettledMinute and FailedMinute are tasks that settled and attempts that failed or ran out, as in the intervals, in the last minute.
	SettledMinute, FailedMinute int64
}

// QueueInterval is what a queue did in [bounds.QueueInterval].
type QueueInterval struct {
	Start     time.Time
	Granted   int64 // leases
	Succeeded int64 // reports
	// Failed are reports of failures by their scopes, with a RetryAfter in that of the host; Expired are leases.
	Failed  [ScopeURL + 1]int64
	Expired int64
	// Settled are the tasks that are over, and the cycles that succeeded.
	Settled int64
	// Delayed and Blocked are how long [GateMinDelay] and, before that, [GateHostBlocked] held the queue, whether or not tasks waited.
	Delayed, Blocked time.Duration
	// Fetches are the reports with a FetchDuration, and FetchTime is the sum of those.
	Fetches   int64
	FetchTime time.Duration
}

// Pool is a pool as a store returns it.
type Pool struct {
	Name string
	// Open counts queues with tasks that can be granted now. It ignores holds on the pool, and changes that no claim
	// has seen yet, such as a new rule. Waiting counts queues with tasks that cannot be granted now.
	Open, Waiting int64
	// Grantable are the tasks that could be granted at once if collectors asked for them: one of each queue with a delay. Of a queue
	// that has become due since the last claim one is counted.
	Grantable int64
	// OldestGrantable is how long the queue that waits longest for a claim could have been granted from; 0 = none waits. OldestLease is
	// the age of the oldest lease, of the first 20,000 by deadline in each shard; 0 = there is none. OldestGrantable begins anew with the start,
	// and [Queues.ListPools] leaves out pools that have only leases.
	OldestGrantable, OldestLease time.Duration
}

// Queues keeps queue rules, and reads queues and pools.
type Queues interface {
	// PutRule stores the rule of a pattern, or removes it if rule is nil, and returns the new version of all rules. It
	// is one step. It succeeds only if the rules have version ifVersion (0 = none was ever set), else ErrEtagMismatch.
	// When it returns, all shards have the rule, and later grants obey it. Of several rules with one
	// [QueueRule.SettingsName] the last that was put holds; without it the first by pattern. ErrRuleNotFound if there is no rule to
	// remove at ifVersion; ErrInvalid beyond [bounds.MaxQueueRules]. Idempotent: repeated, it returns the same version
	// while nothing else has changed. After an error some shards may not have the rule until SyncRules.
	PutRule(ctx context.Context, pattern string, rule *QueueRule, ifVersion int64) (version int64, err error)
	// Rules reads all rules, ascending by pattern, with their version. A rule that changes meanwhile may be newer than
	// the version, never older.
	Rules(ctx context.Context) (rules []QueueRule, version int64, err error)
	// SyncRules copies the rules and holds of shard 0 to a shard, after an interrupted PutRule or PutHolds. After a
	// change of rules or holds it also reschedules the queues that have waiting tasks, up to limit of them from page
	// on. After one complete pass no queue waits longer than by the current rules and holds. The end is an empty next.
	// Each page is one step in the shard; idempotent.
	SyncRules(ctx context.Context, shard int, page string, limit int) (next string, err error)
	// Unblock ends the block that failures have caused ([GateHostBlocked]) and resets its doubling. It reports whether
	// there was anything to end or reset. Idempotent.
	Unblock(ctx context.Context, queue string) (bool, error)
	// QueuesNamed reads queues, in the order of the names; nil for a queue without tasks and gates. It takes one read
	// for each 200 queues of a shard, and one more if rules apply to some of them.
	QueuesNamed(ctx context.Context, names []string) ([]*Queue, error)
	// QueueHours reads the last hours of queues, in the order of the names. A store has those of the [bounds.MaxQueueHours] queues that were used last, whether they exist or not. It may forget them when its owner changes.
	QueueHours(ctx context.Context, names []string) ([]QueueHour, error)
	// ListQueues lists the existing queues by their reversed labels (com.example.www), from the first after after.
	// suffix, if set, selects that name and all names that end in "."+suffix.
	ListQueues(ctx context.Context, suffix, after string, limit int) ([]*Queue, error)
	// ListPools lists the pools that have queues with waiting tasks, ascending, from the first after after. name,
	// unless empty, selects that one.
	ListPools(ctx context.Context, name, after string, limit int) ([]Pool, error)
}
