package dispatch

import "time"

// IfExists is what a submit does to a task that exists.
type IfExists uint8

// The ways to meet an existing task.
const (
	IfExistsKeep IfExists = iota
	IfExistsSooner
	IfExistsAgain
	// IfExistsReseed is how a source (re)makes its recurring tasks.
	IfExistsReseed
	// IfExistsRetry brings back a settled task, at its Revision, and leaves any other
	// alone.
	IfExistsRetry
)

// Submission is a task to make.
type Submission struct {
	ID           TaskID
	SourceUID    string
	Scope        string
	Queue        string
	URL          string
	Key          string
	Kind         string
	Recurring    bool
	Relation     Relation
	Redirect     Redirect
	Depth        int
	Run          time.Time
	Priority     int
	Due          time.Time // zero = now
	FirstDue     time.Time
	Metadata     map[string]string
	Payload      []byte
	Traceparent  string // see [Task]
	IfExists     IfExists
	RevisitAfter time.Duration
	// Modified is when the page last changed; zero: not known. IfExistsRetry does not
	// look at it.
	Modified time.Time
	// Revision is, with IfExistsRetry, that of the settled record which is brought back;
	// 0: any.
	Revision uint32
}

// SubmitCode is what became of a submission.
type SubmitCode uint8

// The answers to a submission.
const (
	SubmitCreated SubmitCode = iota + 1
	SubmitExists
	SubmitRevisit
	SubmitLimited
	SubmitStaleSource
	SubmitStaleRules
	SubmitSourceDeleted
)

// SubmitResult answers one submission. State is the task's after it.
type SubmitResult struct {
	Code  SubmitCode
	State State
}
