package collector

import (
	"fmt"
	"math"
	"time"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// maxCursor is the longest cursor, in bytes.
const maxCursor = 64 << 10

// Task is what a Handler works on. A Handler may be tested with a Task of its own making.
type Task struct {
	// ID of the task; SourceID and SourceUID are those of its source.
	ID        string
	SourceID  string
	SourceUID string

	// Queue and Pool it came from.
	Queue string
	Pool  string

	// URL to fetch; may be empty when the source's tasks have keys of their own. Key identifies the task.
	URL string
	Key string

	// Kind is for the collector's own use.
	Kind string

	// Depth is 0 for seeds and submitted tasks, the parent's plus 1 for discovered ones. Run is the pass the task
	// belongs to, 0 outside passes.
	Depth int
	Run   int64

	// Redirects is how many redirects led to the task, 0 for most; RedirectedFrom the URL where the first began.
	Redirects      int
	RedirectedFrom string

	// Recurring is true for seeds. Cycle is how often the task has settled: store one record per (ID, Cycle), the highest
	// Fence wins.
	Recurring bool
	Cycle     int64
	Fence     int64

	// Attempt is which attempt of this cycle it is, from 1; Failures, Expirations and Throttled say how earlier ones ended.
	Attempt     int
	Failures    int
	Expirations int
	Throttled   int

	// DueTime is when the task was due.
	DueTime time.Time

	// Cursor is where the last attempt of this cycle had got to, as it said by SetCursor; Memo is what the last success
	// wished to remember.
	Cursor []byte
	Memo   []byte

	// Metadata and Payload are the task's own, over those of the source.
	Metadata map[string]string
	Payload  []byte

	lease       *lease // nil in a Task made by hand
	traceparent string
}

// SetCursor notes where the work has got to. It goes out with the next heartbeat, and to the next attempt should this one
// not succeed. Empty forgets an earlier one. The task keeps cursor; do not change it afterwards. It fails when cursor is
// over 64 KiB.
func (t *Task) SetCursor(cursor []byte) error {
	if len(cursor) > maxCursor {
		return fmt.Errorf("cursor of task %s: %d bytes, limit %d", t.ID, len(cursor), maxCursor)
	}
	if t.lease != nil {
		t.lease.setCursor(cursor)
	}
	return nil
}

// SetProgress notes how far the work is, 0 to 1, for people. It goes out with the next heartbeat. What is no number, as 0
// of 0 done, says nothing.
func (t *Task) SetProgress(progress float64) {
	if t.lease != nil && !math.IsNaN(progress) {
		t.lease.setProgress(min(max(progress, 0), 1))
	}
}

// Deadline is when the lease ends unless it is renewed, by the local clock, less a margin: the context ends then. It is
// the zero time in a Task made by hand.
func (t *Task) Deadline() time.Time {
	if t.lease == nil {
		return time.Time{}
	}
	return t.lease.workDeadline()
}

func newTask(pb *wagglev1.Task, fence int64) *Task {
	t := &Task{
		ID: pb.GetId(), SourceID: pb.GetSourceId(), SourceUID: pb.GetSourceUid(),
		Queue: pb.GetQueue(), Pool: pb.GetPool(),
		URL: pb.GetUrl(), Key: pb.GetKey(), Kind: pb.GetKind(),
		Depth: int(pb.GetDepth()), Run: pb.GetRun(),
		Redirects: int(pb.GetRedirects()), RedirectedFrom: pb.GetRedirectedFrom(),
		Recurring: pb.GetRecurring(), Cycle: pb.GetCycle(), Fence: fence,
		Attempt: int(pb.GetAttempt()), Failures: int(pb.GetFailures()),
		Expirations: int(pb.GetExpirations()), Throttled: int(pb.GetThrottled()),
		Cursor: pb.GetCursor(), Memo: pb.GetMemo(),
		Metadata: pb.GetMetadata(), Payload: pb.GetPayload(), traceparent: pb.GetTraceparent(),
	}
	if due := pb.GetDueTime(); due != nil {
		t.DueTime = due.AsTime()
	}
	return t
}
