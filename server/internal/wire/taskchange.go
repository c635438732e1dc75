package wire

import (
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const maxReasons = 64 // of failure, in a filter

// taskChangeRequest is what the bulk calls on tasks have in common.
type taskChangeRequest interface {
	bulkRequest
	GetTaskIds() []string
}

// TaskSelection is what a bulk call is about: tasks by their ids, of which Fences names the leases, or a page of those
// that a query finds.
type TaskSelection struct {
	IDs    []dispatch.TaskID
	Fences []uint64
	Query  *operate.TaskQuery // nil: the ids are named
	Selection
}

// TaskChange reads a bulk call on tasks in some states, which a filter without states stands for, or must name: it
// names ids, or a filter on purpose, of tasks in states that it can change.
func TaskChange(req taskChangeRequest, states []dispatch.State, mustName bool) (*TaskSelection, error) {
	var c checks
	s := &TaskSelection{
		Selection: c.selection("task_ids", len(req.GetTaskIds()), req),
		IDs:       list(&c, "task_ids", req.GetTaskIds(), 0, MaxBatch, c.taskID), Fences: c.fences(req),
	}
	if filter := req.GetFilter(); filter != nil {
		s.Query = c.taskFilter(filter, states, mustName)
	}
	err := s.open(&c, req)
	return s, err
}

// fences reads the leases that are meant, which RevokeLeases may name.
func (c *checks) fences(req taskChangeRequest) []uint64 {
	named, ok := req.(interface{ GetFences() []int64 })
	if !ok {
		return nil
	}
	if n := len(named.GetFences()); n > 0 && n != len(req.GetTaskIds()) {
		c.fail("fences", n, "must be none, or one for each of task_ids")
	}
	return list(c, "fences", named.GetFences(), 0, MaxBatch, func(field string, fence int64) uint64 {
		if fence < 0 {
			c.fail(field, fence, "must not be negative")
		}
		return uint64(fence)
	})
}

// taskFilter reads a filter of tasks. Of states in which the call changes nothing it would look at tasks in vain.
func (c *checks) taskFilter(f *pb.Filter, states []dispatch.State, mustName bool) *operate.TaskQuery {
	c.all(f, f.GetSourceId() != "" || f.GetSourceIdPrefix() != "" || f.GetPool() != "" || len(f.GetLabels()) > 0 ||
		f.GetQueue() != "" || f.GetQueueSuffix() != "" || f.GetCollectorId() != "")
	q := c.tasks(f)
	q.States = amongStates(states, f.GetStates())
	names := strings.Join(each(states, func(s dispatch.State) string { return pb.TaskState(s).String() }), ", ")
	if len(f.GetStates()) == 0 && mustName {
		c.fail("filter.states", "", "must be set, of %s", names)
	}
	list(c, "filter.states", f.GetStates(), 0, 6, func(field string, state pb.TaskState) pb.TaskState {
		if !slices.Contains(states, dispatch.State(state)) {
			c.fail(field, state, "must be of %s", names)
		}
		return state
	})
	return q
}

// tasks reads the conditions of a filter on tasks, but for their states.
func (c *checks) tasks(f *pb.Filter) *operate.TaskQuery {
	q := &operate.TaskQuery{
		SourceID:      optional(c.id, "filter.source_id", f.GetSourceId()),
		Sources:       c.sources(f),
		Queue:         optional(c.queue, "filter.queue", f.GetQueue()),
		QueueSuffix:   c.suffix("filter.queue_suffix", f.GetQueueSuffix()),
		Collector:     optional(c.id, "filter.collector_id", f.GetCollectorId()),
		CreatedFrom:   c.time("filter.create_time_from", f.GetCreateTimeFrom()),
		CreatedBefore: c.time("filter.create_time_before", f.GetCreateTimeBefore()),
	}
	for _, reason := range list(c, "filter.failure_reasons", f.GetFailureReasons(), 0, maxReasons, func(field string, reason pb.FailureReason) pb.FailureReason {
		return named(c, field, reason, "must name a reason")
	}) {
		q.Reasons = append(q.Reasons, dispatch.FailureReason(reason))
		if reason == pb.FailureReason_FAILURE_REASON_OTHER { // as toFailureReason converts it
			q.Reasons = append(q.Reasons, 0)
		}
	}
	return q
}

// TaskChanged converts what became of a task.
func TaskChanged(id dispatch.TaskID, change *operate.TaskChange) *pb.TaskChange {
	out := &pb.TaskChange{TaskId: string(id), Code: pb.TaskChangeCode(change.Code), State: pb.TaskState(change.State)}
	switch change.Code {
	case operate.ChangeLimited:
		out.Message = limitedMessage
	case operate.ChangeRefused:
		out.Message, out.ErrorReason = change.Err.Error(), reasonOf(change.Err)
	default:
	}
	return out
}
