package server

import (
	"fmt"
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// maxReasons of failure in a filter.
const maxReasons = 64

// changeRequest is what the bulk calls on tasks have in common.
type changeRequest interface {
	GetTaskIds() []string
	GetFilter() *pb.Filter
	GetValidateOnly() bool
	GetPageToken() string
	GetBy() string
	GetReason() string
}

// validateChange checks that a bulk call names ids, or a filter on purpose, of tasks in
// states that it can change.
func validateChange(req changeRequest, change *taskChange) error {
	var c checks
	ids, filter := req.GetTaskIds(), req.GetFilter()
	switch {
	case len(ids) > 0 && filter != nil:
		c.fail("filter", "set", "must be absent when task_ids are given")
	case len(ids) == 0 && filter == nil:
		c.fail("task_ids", "", "must be set, or filter")
	case len(ids) > 0 && req.GetPageToken() != "":
		c.fail("page_token", req.GetPageToken(), "must be empty when task_ids are given")
	}
	c.ids("task_ids", ids, maxBatch, c.taskID)
	if filter != nil {
		c.taskFilter(filter, change)
	}
	c.operator(req.GetBy(), req.GetReason())
	return c.err()
}

// taskFilter checks a filter of tasks.
func (c *checks) taskFilter(f *pb.Filter, change *taskChange) {
	if f.GetCollectorId() != "" && !change.leased() {
		c.fail("filter.collector_id", f.GetCollectorId(), "applies to leases only")
	}
	some := f.GetSourceId() != "" || f.GetSourceIdPrefix() != "" || f.GetPool() != "" || len(f.GetLabels()) > 0 ||
		f.GetQueue() != "" || f.GetQueueSuffix() != "" || f.GetCollectorId() != ""
	if some == f.GetAll() {
		c.fail("filter.all", f.GetAll(), "must be true when no other condition says where, and false when one does")
	}
	c.optionalID("filter.source_id", f.GetSourceId())
	c.optionalID("filter.source_id_prefix", f.GetSourceIdPrefix())
	c.optionalID("filter.pool", f.GetPool())
	c.labels("filter.labels", f.GetLabels(), bounds.MaxLabels)
	c.optionalQueue("filter.queue", f.GetQueue())
	c.suffix("filter.queue_suffix", f.GetQueueSuffix())
	c.optionalID("filter.collector_id", f.GetCollectorId())
	c.filterStates(f.GetStates(), change)
	c.count("filter.failure_reasons", len(f.GetFailureReasons()), 0, maxReasons)
	for i, reason := range f.GetFailureReasons()[:min(len(f.GetFailureReasons()), maxReasons)] {
		field := fmt.Sprintf("filter.failure_reasons[%d]", i)
		if c.enum(field, reason); reason == pb.FailureReason_FAILURE_REASON_UNSPECIFIED {
			c.fail(field, reason, "must name a reason")
		}
	}
	c.time("filter.create_time_from", f.GetCreateTimeFrom())
	c.time("filter.create_time_before", f.GetCreateTimeBefore())
}

// filterStates refuses states in which the call changes nothing: it would look at tasks
// in vain.
func (c *checks) filterStates(states []pb.TaskState, change *taskChange) {
	var names []string
	for _, state := range change.states {
		names = append(names, toState(state).String())
	}
	if len(states) == 0 && change.statesRequired {
		c.fail("filter.states", "", "must be set, of %s", strings.Join(names, ", "))
	}
	c.count("filter.states", len(states), 0, 6)
	for i, state := range states[:min(len(states), 6)] {
		if !slices.ContainsFunc(change.states, func(s dispatch.State) bool { return toState(s) == state }) {
			c.fail(fmt.Sprintf("filter.states[%d]", i), state, "must be of %s", strings.Join(names, ", "))
		}
	}
}

func validateFences(req *pb.RevokeLeasesRequest) error {
	var c checks
	if n := len(req.GetFences()); n > 0 && n != len(req.GetTaskIds()) {
		c.fail("fences", n, "must be none, or one for each of task_ids")
	}
	for i, fence := range req.GetFences() {
		if fence < 0 {
			c.fail(fmt.Sprintf("fences[%d]", i), fence, "must not be negative")
			break
		}
	}
	return c.err()
}
