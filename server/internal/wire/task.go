package wire

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Submission is the items of a call that can be tasks, to be answered by [Submission.Response].
type Submission struct {
	Tasks   []engine.NewTask
	results []*pb.SubmitResult // of all items; nil until the dispatcher has answered
}

// SubmitTasks reads a SubmitTasksRequest of a call with a trace context, which its tasks carry; empty: it has none. Items that cannot be tasks fail no others: they are answered in their places.
func SubmitTasks(req *pb.SubmitTasksRequest, now time.Time, traceparent string) (*Submission, error) {
	var c checks
	c.count("items", len(req.GetItems()), 1, MaxBatch)
	if err := c.err(); err != nil {
		return nil, err
	}
	n := len(req.GetItems())
	s := &Submission{Tasks: make([]engine.NewTask, 0, n), results: make([]*pb.SubmitResult, n)}
	for i, item := range req.GetItems() {
		task, err := newTask(item, now)
		if err != nil {
			s.results[i] = toSubmitResult(&engine.NewTaskResult{Err: err})
			continue
		}
		task.Traceparent = traceparent
		s.Tasks = append(s.Tasks, task)
	}
	return s, nil
}

func newTask(item *pb.SubmitItem, now time.Time) (engine.NewTask, error) {
	var c checks
	task := engine.NewTask{
		SourceID: c.id("source_id", item.GetSourceId()),
		URL:      item.GetUrl(), Key: item.GetKey(), Queue: item.GetQueue(), Kind: item.GetKind(),
		Metadata: item.GetMetadata(), Payload: item.GetPayload(), IfExists: dispatch.IfExistsKeep,
	}
	c.identity(task.URL, task.Key, task.Queue)
	c.text("kind", task.Kind, bounds.MaxIDLength)
	task.Priority = c.priority("priority", item.Priority)
	c.metadata("metadata", task.Metadata)
	c.bytes("payload", task.Payload, bounds.MaxPayloadLength)
	task.Due = c.until("due_time", item.GetDueTime(), now)
	switch c.enum("if_exists", item.GetIfExists()); item.GetIfExists() {
	case pb.IfExists_IF_EXISTS_SOONER:
		task.IfExists = dispatch.IfExistsSooner
	case pb.IfExists_IF_EXISTS_AGAIN:
		task.IfExists = dispatch.IfExistsAgain
	default:
	}
	return task, c.err()
}

// Response converts what became of all items.
func (s *Submission) Response(taken []engine.NewTaskResult) *pb.SubmitTasksResponse {
	for i, result := range s.results {
		if result == nil {
			s.results[i], taken = toSubmitResult(&taken[0]), taken[1:]
		}
	}
	return &pb.SubmitTasksResponse{Results: s.results}
}

// limitedMessage is why a task is LIMITED.
const limitedMessage = "the source has max_outstanding tasks that wait or are leased in the shard"

func toSubmitResult(r *engine.NewTaskResult) *pb.SubmitResult {
	switch {
	case r.Err != nil:
		return &pb.SubmitResult{Code: pb.SubmitCode_SUBMIT_CODE_INVALID, Message: r.Err.Error(), ErrorReason: reasonOf(r.Err)}
	case r.Code == dispatch.SubmitLimited:
		return &pb.SubmitResult{Code: pb.SubmitCode_SUBMIT_CODE_LIMITED, Message: limitedMessage}
	}
	return &pb.SubmitResult{Code: pb.SubmitCode(r.Code), TaskId: string(r.ID), State: pb.TaskState(r.State)}
}

// reasonOf is why an item of a call was refused, for programs.
func reasonOf(err error) pb.ErrorReason {
	if kind := kindOf(err); kind != nil {
		return kind.reason
	}
	return pb.ErrorReason_ERROR_REASON_INVALID_FIELD
}

// GetTask checks that a GetTaskRequest names a task by its id, or by what makes its identity.
func GetTask(req *pb.GetTaskRequest) error {
	var c checks
	switch {
	case req.GetTaskId() != "":
		c.taskID("task_id", req.GetTaskId())
		for other := range fieldsSet(req.ProtoReflect()) {
			if other != "task_id" {
				c.fail(other, "set", "must be empty when task_id is set")
			}
		}
	case req.GetSourceId() == "":
		c.fail("task_id", "", "must be set, unless source_id and url, or source_id, key and queue are")
	default:
		c.id("source_id", req.GetSourceId())
		c.target(req.GetUrl(), req.GetKey(), req.GetQueue())
	}
	return c.err()
}

// Task converts a task with all that GetTask shows.
func Task(t *dispatch.Task, now time.Time) *pb.Task {
	out := ListedTask(t, now)
	out.Cursor, out.Memo, out.Payload = t.Cursor, t.Memo, t.Payload
	if c := operate.Cancellation(t); c != nil {
		out.Cancellation = &pb.Cancellation{
			By: c.By, Reason: c.Reason, Time: toTime(c.Time), SourceDeleted: c.Kind == dispatch.GateSourceDeleted,
		}
	}
	for i := range t.History {
		out.History = append(out.History, toAttempt(&t.History[i]))
	}
	return out
}

func toAttempt(a *dispatch.Attempt) *pb.Attempt {
	out := &pb.Attempt{
		CollectorId: a.Collector, Cycle: int64(a.Cycle), Fence: int64(a.Fence),
		StartTime: toTime(a.Started), EndTime: toTime(a.Ended), Result: attemptResults[a.Result],
		HttpStatus: int32(cmp.Or(a.MovedStatus, a.Response.HTTPStatus)), MovedTo: a.Moved,
		Bytes: a.Response.Bytes, FetchDuration: toDuration(a.Response.FetchDuration),
	}
	if f := a.Failure; f != nil {
		out.Reason, out.Message, out.HttpStatus = toFailureReason(f), f.Message, int32(f.HTTPStatus)
	}
	if a.By != "" {
		out.Message = a.By
	}
	if a.Reason != "" {
		out.Message += ": " + a.Reason
	}
	return out
}

// ListTasks reads the states that a ListTasksRequest asks for; none stands for all that are listed.
func ListTasks(req *pb.ListTasksRequest) ([]dispatch.State, error) {
	var c checks
	c.conditions(req)
	f := req.GetFilter()
	if f.GetSourceId() == "" && f.GetQueue() == "" {
		c.fail("filter.source_id", "", "must be set, or filter.queue")
	}
	optional(c.id, "filter.source_id", f.GetSourceId())
	optional(c.queue, "filter.queue", f.GetQueue())
	all := []dispatch.State{
		dispatch.StateScheduled, dispatch.StateReady, dispatch.StateLeased, dispatch.StateDead, dispatch.StateCanceled,
	}
	list(&c, "filter.states", f.GetStates(), 0, 6, func(field string, state pb.TaskState) pb.TaskState {
		switch {
		case state == pb.TaskState_TASK_STATE_DONE:
			c.fail(field, state, "is not listed: a task that is DONE is found by GetTask")
		case !slices.Contains(all, dispatch.State(state)):
			c.fail(field, state, "must be SCHEDULED, READY, LEASED, DEAD or CANCELED")
		}
		return state
	})
	return amongStates(all, f.GetStates()), c.err()
}

// amongStates are those of states that are wanted; none stands for all of them.
func amongStates(states []dispatch.State, wanted []pb.TaskState) []dispatch.State {
	if len(wanted) == 0 {
		return states
	}
	return slices.DeleteFunc(slices.Clone(states), func(s dispatch.State) bool { return !slices.Contains(wanted, pb.TaskState(s)) })
}

// ListedTask converts a task with what lists show of it.
func ListedTask(t *dispatch.Task, now time.Time) *pb.Task {
	out := toTask(t)
	out.HttpStatus, out.Bytes = int32(t.Response.HTTPStatus), t.Response.Bytes
	out.FetchDuration = toDuration(t.Response.FetchDuration)
	out.Holder = toHolder(t.Lease, now)
	return out
}

// ListLeases reads the filter of a ListLeasesRequest; nil is one without conditions.
func ListLeases(req *pb.ListLeasesRequest) (*operate.TaskQuery, error) {
	if proto.Size(req.GetFilter()) == 0 {
		return nil, nil //nolint:nilnil // all leases
	}
	var c checks
	c.conditions(req)
	q := c.tasks(req.GetFilter())
	return q, c.err()
}

// HeldLease converts the lease of a task.
func HeldLease(t *dispatch.Task, now time.Time) *pb.HeldLease {
	return &pb.HeldLease{
		TaskId: string(t.ID), SourceId: t.SourceID, Queue: t.Queue, Url: t.URL, Holder: toHolder(t.Lease, now),
	}
}

// toHolder is who holds a lease, without the token that proves it.
func toHolder(l *dispatch.Lease, now time.Time) *pb.LeaseHolder {
	if l == nil {
		return nil
	}
	return &pb.LeaseHolder{
		CollectorId: l.Token.Collector, Fence: int64(l.Digest.Fence),
		Age: durationpb.New(now.Sub(l.Granted)), Remaining: durationpb.New(l.Deadline.Sub(now)),
	}
}
