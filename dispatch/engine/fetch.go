package engine

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// FetchRequest asks for tasks for a collector.
type FetchRequest struct {
	Collector, Session string
	// ClientToken makes the fetch idempotent; empty: one is minted.
	ClientToken string
	Pools       []string // empty: DefaultPool
	Sources     []string // ids; empty: all
	Queues      []string // empty: all
	MaxTasks    int      // 1 to MaxFetchTasks; 0: 1
	MaxBytes    int      // 1 to MaxFetchBytes; 0: MaxFetchBytes
	// Wait is for how long, 0 to bounds.MaxWait; where a claim is under way when that is over, until
	// its end, as far as the caller's deadline lets.
	Wait  time.Duration
	Lease time.Duration // 0: the source's
	// Reports are settled before the fetch waits, as by [Dispatcher.Report].
	Reports []dispatch.Report
}

// Bounds of a fetch.
const (
	MaxFetchTasks = 1000
	MaxFetchBytes = 3 << 20
	DefaultWait   = 10 * time.Second
	MaxNarrow     = 16 // pools, sources and queues named in one fetch
	MaxRetryAfter = 5 * time.Second
)

// EmptyReason says why a fetch gave nothing.
type EmptyReason uint8

// The reasons for an empty answer.
const (
	EmptyNone EmptyReason = iota
	EmptyNoTasks
	EmptyThrottled
	EmptyPaused
	EmptyDraining
	EmptyTokenUsed
)

// FetchResult is what a fetch was given.
type FetchResult struct {
	Tasks []dispatch.Grant
	// Waited from receipt to grant.
	Waited     time.Duration
	Empty      EmptyReason
	RetryAfter time.Duration
	// Reports answers those of the request, in their order.
	Reports []ReportResult
}

// LeaseBeat names a lease held.
type LeaseBeat struct {
	ID dispatch.TaskID
	// Token as the collector sent it; one that does not parse, or is another
	// collector's, is lost.
	Token  string
	Cursor []byte // nil: keep
}

// LostLease is a lease that a beat named and that is no longer held.
type LostLease struct {
	ID     dispatch.TaskID
	Token  string
	Reason dispatch.LostReason
}

// CancelNotice asks the holder of a lease to stop.
type CancelNotice struct {
	ID     dispatch.TaskID
	Reason dispatch.CancelReason
}

// LimitedLease was renewed for less than its duration.
type LimitedLease struct {
	ID        dispatch.TaskID
	Remaining time.Duration
}

// BeatResult answers a beat.
type BeatResult struct {
	// LeaseDuration is the shortest that a renewed lease, but for the
	// Limited, goes on; 0 when none was renewed.
	LeaseDuration time.Duration
	Lost          []LostLease
	Cancel        []CancelNotice
	Limited       []LimitedLease
	// Drain asks the collector to fetch no more.
	Drain bool
	// Next beat wanted.
	Next time.Duration
}
