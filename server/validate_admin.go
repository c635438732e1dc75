package server

import (
	"fmt"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func validatePausePool(req holdRequest, now time.Time) error {
	var c checks
	c.id("name", req.GetName())
	c.until("until", req.GetUntil(), now)
	c.operator(req.GetBy(), req.GetReason())
	return c.err()
}

// letGoRequest is what every call has that opens a gate of one thing.
type letGoRequest interface {
	GetName() string
	GetBy() string
	GetReason() string
}

func validateLetGo(req letGoRequest, check func(c *checks, field, name string)) error {
	var c checks
	check(&c, "name", req.GetName())
	c.operator(req.GetBy(), req.GetReason())
	return c.err()
}

func validateExplain(req *pb.ExplainRequest) error {
	var c checks
	var last *dispatch.FieldError
	named := 0
	for _, one := range []dispatch.FieldError{
		{Field: "task_id", Value: req.GetTaskId()},
		{Field: "source_id", Value: req.GetSourceId()},
		{Field: "queue", Value: req.GetQueue()},
		{Field: "pool", Value: req.GetPool()},
	} {
		if one.Value != "" {
			last, named = &one, named+1
		}
	}
	switch {
	case named == 0:
		c.fail("task_id", "", "must be set, or source_id, queue or pool")
	case named > 1:
		c.fail(last.Field, last.Value, "must be set alone: of task_id, source_id, queue and pool exactly one")
	case req.GetTaskId() != "":
		c.taskID("task_id", req.GetTaskId())
	case req.GetSourceId() != "":
		c.id("source_id", req.GetSourceId())
	case req.GetQueue() != "":
		c.queue("queue", req.GetQueue())
	default:
		c.id("pool", req.GetPool())
	}
	return c.err()
}

func validateListCollectors(req *pb.ListCollectorsRequest) error {
	var c checks
	c.count("states", len(req.GetStates()), 0, 4)
	for i, state := range req.GetStates() {
		c.enum(fmt.Sprintf("states[%d]", i), state)
	}
	if slices.Contains(req.GetStates(), pb.CollectorState_COLLECTOR_STATE_UNSPECIFIED) {
		c.fail("states", pb.CollectorState_COLLECTOR_STATE_UNSPECIFIED, "must name states")
	}
	c.labels("labels", req.GetLabels(), bounds.MaxLabels)
	c.page(req.GetPageSize())
	return c.err()
}

// drainRequest is what every call has that names a drain.
type drainRequest interface {
	GetCollectorId() string
	GetLabels() map[string]string
}

func validateDrainCollectors(req *pb.DrainCollectorsRequest, now time.Time) error {
	var c checks
	c.drain(req)
	c.until("until", req.GetUntil(), now)
	c.operator(req.GetBy(), req.GetReason())
	return c.err()
}

func validateResumeCollectors(req *pb.ResumeCollectorsRequest) error {
	var c checks
	c.drain(req)
	c.operator(req.GetBy(), req.GetReason())
	return c.err()
}

func (c *checks) drain(req drainRequest) {
	id, labels := req.GetCollectorId(), req.GetLabels()
	switch {
	case id == "" && len(labels) == 0:
		c.fail("collector_id", "", "must be set, or labels")
	case id != "" && len(labels) > 0:
		c.fail("collector_id", id, "must be empty when labels are set: a drain goes by one or the other")
	case id != "":
		c.id("collector_id", id)
	default:
		c.labels("labels", labels, bounds.MaxHoldLabels)
	}
}
