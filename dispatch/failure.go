package dispatch

import "time"

// FailureScope says what a failure is about, and so what pays for it.
type FailureScope uint8

// The scopes of failures.
const (
	// ScopeTask spends an attempt of the task.
	ScopeTask FailureScope = iota
	// ScopeHost blocks the queue and counts as throttled.
	ScopeHost
	// ScopeCollector spends nothing, and slows grants to that collector.
	ScopeCollector
)

// FailureReason is why a collector gave a task back as failed. Its number is
// the one of the API; the scope follows from its range.
type FailureReason int32

// The ranges of failure reasons by scope.
const (
	firstHostReason      FailureReason = 100
	firstCollectorReason FailureReason = 200
)

// Scope tells what the reason is about: below 100 the task, below 200 the
// host, from 200 on the collector.
func (r FailureReason) Scope() FailureScope {
	switch {
	case r >= firstCollectorReason:
		return ScopeCollector
	case r >= firstHostReason:
		return ScopeHost
	default:
		return ScopeTask
	}
}

// Failure is the last error of a task, or of one attempt.
type Failure struct {
	Result     Result        `json:"u"`           // how the attempt ended
	Reason     FailureReason `json:"r,omitempty"` // of ResultFailed
	Message    string        `json:"m,omitempty"` // at most MaxMessageLength
	HTTPStatus int           `json:"h,omitempty"`
	Permanent  bool          `json:"p,omitempty"`
	Time       time.Time     `json:"t"`
}
