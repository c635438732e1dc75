// Package bounds is the one place of the limits on what people and collectors send, and on
// what one call of a store does (P10). Lengths are in bytes. A value over a limit is an
// error that names it, never a silent cut.
package bounds

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch/canonical"
)

// Limits on what people and collectors send.
const (
	MaxIdentityLength = 256                 // who calls, as the credentials name it
	MaxIDLength       = 128                 // ids and names of people: sources, collectors, pools, queues, kinds
	MaxURLLength      = canonical.MaxLength // URLs and keys
	MaxMetadataLength = 8 << 10             // sum of the keys and values of a metadata map
	MaxPayloadLength  = 256 << 10           // payload of a task or a source
	MaxMessageLength  = 1 << 10             // messages and reasons of failures and gates
	MaxMemoLength     = 4 << 10             // memo handed to the next crawl
	MaxCursorLength   = 64 << 10            // cursor handed to the next attempt
	MaxQueueLength    = 255 + 1 + 5         // a host name of 255 with ":port"
	MaxWait           = 30 * time.Second    // of a fetch for tasks
)

// Limits of sources and tasks.
const (
	MaxSeeds          = 1000
	MaxLabels         = 64
	MaxFollowPatterns = 256
	// MaxPatternSize bounds the instructions of all follow patterns of a source: their memory. MaxPatternCost bounds how
	// many of them one character of a URL can make a matcher look at. MaxPatternSteps bounds that times the characters
	// of all URLs of a report: its time, at most some 0.3 s of a core. 1000 URLs of 100 characters are within it at any cost.
	MaxPatternSize  = 10_000
	MaxPatternCost  = 500
	MaxPatternSteps = 50_000_000
	MaxRemember     = 400 * 24 * time.Hour
	MaxDepth        = 10_000 // links from a seed
	MaxPriority     = 9      // higher goes first
	MaxRedirects    = 100    // from the head of a chain of redirects
	MaxHistory      = 10     // successes remembered with a task, and as many other attempts
	// QueueIntervals of QueueInterval are the last hour of a queue, which is kept of MaxQueueHours queues of a store.
	QueueInterval  = 2 * time.Minute
	QueueIntervals = 30
	MaxQueueHours  = 10_000
	// FreeReleases: from the release with this number in a row on, each is in the task's history and delays its next grant.
	FreeReleases = 20
	// MinEvery and MaxEvery bound the intervals of schedules.
	MinEvery = time.Second
	MaxEvery = 366 * 24 * time.Hour
	// MinLeaseDuration and MaxLeaseDuration bound what a renewal gives.
	MinLeaseDuration = time.Second
	MaxLeaseDuration = time.Hour
	// MaxHold is the longest that renewals can carry one lease.
	MaxHold = 24 * time.Hour
)

// Limits of queues, rules and holds.
const (
	MaxMinDelay    = 24 * time.Hour // of min_delay and max_delay
	MaxInFlight    = 100_000        // of max_in_flight
	MaxDelayFactor = 100            // of delay_factor
	MaxBlock       = 30 * 24 * time.Hour
	MaxQueueRules  = 100_000 // of one Waggle
	// MaxQueueDelay bounds what a host can be reported to ask for.
	MaxQueueDelay = time.Hour
	// MaxHolds bounds the holds that are not on sources, MaxSourceHolds those on one
	// source, and MaxHoldLabels the labels that one names.
	MaxHolds       = 10_000
	MaxSourceHolds = 16
	MaxHoldLabels  = 16
)

// Limits of the audit log.
const (
	MaxAuditEntries = 10_000 // that are kept, the newest ones
	MaxAuditText    = 2_000  // of the value before a change, and of that after it
)

// Limits of notices of findings.
const (
	MaxNotices     = 1000
	MaxNoticeName  = 512     // bytes
	MaxNoticeBytes = 8 << 10 // of a record
)

// Limits of one call of a store. Calls with more items run as several.
const (
	// MaxClaimTasks that one Claim grants over all its wants.
	MaxClaimTasks = 100
	// MaxClaimTurns that one Claim gives to queues, and as many whose time has come
	// it promotes before: a turn costs a store more than a task does.
	MaxClaimTurns  = 100
	MaxRenewals    = 500
	MaxTransitions = 100
	MaxSubmissions = 100
	// MaxExpired leases that one Expired returns, and MaxSweepLooks that it
	// looks at.
	MaxExpired    = 200
	MaxSweepLooks = 500
	// MaxGrantCalls that one grant notes (GiveBack).
	MaxGrantCalls = 16
	// MaxLooks is how many tasks a page of ListTasks looks at, those among them that
	// it leaves out; MaxLaneLooks how many lanes of a shard a call of DueLanes does.
	MaxLooks     = 1000
	MaxLaneLooks = 500
	// MaxPageBytes bounds what a page of ListTasks, ListLeases or ListSources holds,
	// and what a store reads for it, about as it is kept. A record that is larger
	// comes alone.
	MaxPageBytes = 3 << 20
	// MaxLockValue is how many bytes of a lock's value a read gives; the rest is cut.
	MaxLockValue = 512
)
