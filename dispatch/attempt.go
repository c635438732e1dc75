package dispatch

import "time"

// Result is what a settled lease did to its task, kept to answer a repeated
// report.
type Result uint8

// The results of a lease.
const (
	ResultNone Result = iota
	ResultSucceeded
	ResultFailed
	ResultReleased
	ResultExpired
	ResultGivenBack
	ResultRevoked
	ResultMaxHold
	// ResultReplaced: the collector has begun a newer session.
	ResultReplaced
	// ResultCanceled is of no lease, but of a line of the history: an operator has
	// canceled the task, or has asked for it.
	ResultCanceled
	// ResultHeld is of no lease, but of a line of the history: a hold has asked its holder to stop ([CancelHeld]).
	ResultHeld
)

// String gives the result in lower case, such as "succeeded".
func (r Result) String() string {
	names := [...]string{"none", "succeeded", "failed", "released", "expired", "given back", "revoked", "held too long", "replaced", "canceled", "held"}
	if int(r) < len(names) {
		return names[r]
	}
	return "unknown"
}

// FailureScope is the cause of a failure: task, host, collector or one URL. It decides which budget pays.
type FailureScope uint8

// The scopes of failures.
const (
	// ScopeTask spends an attempt of the task.
	ScopeTask FailureScope = iota
	// ScopeHost blocks the queue and counts as throttled.
	ScopeHost
	// ScopeCollector spends nothing, and slows grants to that collector.
	ScopeCollector
	// ScopeURL counts as throttled, and puts the task behind its queue's other work. It counts against the host only
	// if several URLs fail in a row.
	ScopeURL
)

// FailureReason is why a collector gave a task back as failed. Its number is
// the one of the API; the scope follows from its range.
type FailureReason int32

// The ranges of failure reasons by scope.
const (
	firstHostReason      FailureReason = 100
	firstCollectorReason FailureReason = 200
	firstURLReason       FailureReason = 300
)

// The reasons that need more than their scope. The API has all.
const (
	reasonNotFound  FailureReason = 1
	reasonForbidden FailureReason = 2
	reasonGone      FailureReason = 3
	// ReasonRedirect is also of a chain of redirects that this system ends.
	ReasonRedirect FailureReason = 9
	// ReasonHandler is a failure of the task, and a handler that always fails is broken.
	ReasonHandler FailureReason = 11
	// ReasonOther is any other failure of the task.
	ReasonOther FailureReason = 99
)

// Scope is the scope of the reason: below 100 the task, below 200 the host, below 300 the collector, from 300 on one
// URL.
func (r FailureReason) Scope() FailureScope {
	switch {
	case r >= firstURLReason:
		return ScopeURL
	case r >= firstCollectorReason:
		return ScopeCollector
	case r >= firstHostReason:
		return ScopeHost
	default:
		return ScopeTask
	}
}

// retries has the reasons that a short wait does not change. A one-shot task that fails for one of them is retried at most
// count times, each time after at least wait. [Retry] limits it too; it alone is for other reasons, for seeds, and for where
// they redirect to.
var retries = map[FailureReason]struct {
	wait  time.Duration
	count int
}{
	reasonNotFound:  {wait: time.Hour, count: 1},
	reasonForbidden: {wait: time.Hour, count: 2},
	reasonGone:      {wait: time.Hour, count: 1},
}

// Failure is the last error of a task, or of one attempt; of one that succeeded, what its report says of it.
type Failure struct {
	Result     Result        `json:"u"`           // how the attempt ended
	Reason     FailureReason `json:"r,omitempty"` // of ResultFailed
	Message    string        `json:"m,omitempty"` // at most bounds.MaxMessageLength
	HTTPStatus int           `json:"h,omitempty"`
	Permanent  bool          `json:"p,omitempty"`
	Time       time.Time     `json:"t"`
}

// Note is whom a change is put down to, and why: by at most bounds.MaxIDLength bytes, the reason
// bounds.MaxMessageLength. Both empty: not known.
type Note struct {
	By     string `json:"b,omitempty"`
	Reason string `json:"w,omitempty"`
}

// Attempt is one line of a task's history: an attempt, or, with ResultCanceled and ResultHeld, what an
// operator did to it, which has neither collector nor fence.
type Attempt struct {
	Collector string    `json:"c,omitempty"`
	Cycle     uint32    `json:"y,omitempty"`
	Fence     uint64    `json:"f,omitempty"`
	Started   time.Time `json:"s,omitzero"`
	Ended     time.Time `json:"e"`
	Result    Result    `json:"r"`
	Failure   *Failure  `json:"x,omitempty"`
	// Moved is where the page of a seed redirected to in a success, and MovedStatus the HTTP status of that.
	Moved       string `json:"m,omitempty"`
	MovedStatus int    `json:"h,omitempty"`
	// Response is what its report said, of a success or a failure.
	Response Response `json:"a,omitzero"`
	// Note is of the operator who ended it, with ResultRevoked, ResultCanceled and ResultHeld.
	Note
}

// Response is what the report of a success or a failure said of the request. Zero values: not known.
type Response struct {
	HTTPStatus    int           `json:"h,omitempty"`
	Bytes         int64         `json:"b,omitempty"` // of a success
	FetchDuration time.Duration `json:"d,omitempty"` // kept in whole milliseconds, at most 49 days
}

// Canceled is the history line of a cancel, with who and why; nil if neither is known.
func (n Note) Canceled(now time.Time) *Attempt {
	if n == (Note{}) {
		return nil
	}
	return &Attempt{Ended: now, Result: ResultCanceled, Note: n}
}
