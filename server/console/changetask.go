package console

import (
	"context"
	"slices"
	"strings"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// chosenTasks are those that a form is about: by id, or all that a list shows. flags name them.
func (v *visit) chosenTasks(f form) (ids []string, filter *pb.Filter, flags []string, err error) {
	if f.text("matching") != "tasks" {
		if ids = f.all("task"); len(ids) == 0 {
			err = v.nothingChosen()
		}
		return ids, nil, ids, err
	}
	filter = &pb.Filter{SourceId: f.text("source"), Queue: f.text("queue")}
	if filter.GetSourceId()+filter.GetQueue() == "" {
		return nil, nil, nil, v.nothingChosen()
	}
	for _, flag := range [][2]string{{"source", "source"}, {"queue", "queue"}, {"state", "state"}, {"reason_of", "failed"}} {
		if value := f.text(flag[0]); value != "" {
			flags = append(flags, "--"+flag[1], strings.ReplaceAll(value, "_", "-"))
		}
	}
	if _, state, chosen := options[pb.TaskState](v.text, pb.TaskState_name, "TASK_STATE_", f.text("state")); chosen {
		filter.States = append(filter.States, state)
	}
	if _, reason, chosen := options[pb.FailureReason](v.text, pb.FailureReason_name, "FAILURE_REASON_", f.text("reason_of")); chosen {
		filter.FailureReasons = append(filter.FailureReasons, reason)
	}
	return nil, filter, append(flags, "--yes"), nil
}

// taskChanges is an answer to a change of tasks.
type taskChanges interface {
	bulkReply
	GetResults() []*pb.TaskChange
}

// planTasks is a change of tasks by a call.
func planTasks[R taskChanges](v *visit, f form, note string, command []string, call func(ctx context.Context, o order, ids []string, filter *pb.Filter, token string) (R, error)) (*plan, error) {
	ids, filter, flags, err := v.chosenTasks(f)
	p := &plan{note: v.text.say(note), command: append(slices.Clone(command), flags...)}
	if err != nil {
		return p, err
	}
	p.call = func(ctx context.Context, o order) (*outcome, error) {
		return bulk(o, func(token string) (R, error) { return call(ctx, o, ids, filter, token) }, func(out *outcome, reply R) {
			for _, result := range reply.GetResults() {
				word := v.text.word(result.GetCode(), "TASK_CHANGE_CODE_")
				if message := result.GetMessage(); message != "" {
					word += ": " + message
				}
				out.name(result.GetTaskId() + ": " + word)
			}
		})
	}
	return p, nil
}

func (v *visit) planCancel(f form) (*plan, error) {
	return planTasks(v, f, "Tasks that wait end at once. A collector that holds one gets to know of it with its next heartbeat. Seeds are not crawled again until they are retried.",
		[]string{"waggle", "task", "cancel"}, func(ctx context.Context, o order, ids []string, filter *pb.Filter, token string) (*pb.CancelTasksResponse, error) {
			return v.c.tasks.CancelTasks(ctx, &pb.CancelTasksRequest{TaskIds: ids, Filter: filter, PageToken: token, Reason: o.reason, ValidateOnly: o.dry})
		})
}

func (v *visit) planRetry(f form) (*plan, error) {
	return planTasks(v, f, "Dead and canceled tasks are due again at once, with all of their attempts.",
		[]string{"waggle", "task", "retry"}, func(ctx context.Context, o order, ids []string, filter *pb.Filter, token string) (*pb.RetryTasksResponse, error) {
			return v.c.tasks.RetryTasks(ctx, &pb.RetryTasksRequest{TaskIds: ids, Filter: filter, PageToken: token, Reason: o.reason, ValidateOnly: o.dry})
		})
}

func (v *visit) planRevoke(f form) (*plan, error) {
	return planTasks(v, f, "The tasks are taken from the collectors that hold them, and are due again at once. No attempt is spent.",
		[]string{"waggle", "lease", "revoke"}, func(ctx context.Context, o order, ids []string, filter *pb.Filter, token string) (*pb.RevokeLeasesResponse, error) {
			return v.c.tasks.RevokeLeases(ctx, &pb.RevokeLeasesRequest{TaskIds: ids, Filter: filter, PageToken: token, Reason: o.reason, ValidateOnly: o.dry})
		})
}

// planRelease ends the binding of a collector's id.
func (v *visit) planRelease(f form) (*plan, error) {
	id := f.text("collector")
	p := &plan{
		note:    v.text.say("The next identity that uses the id %s owns it. Its leases go on.", id),
		command: []string{"waggle", "auth", "release", id},
	}
	if id == "" {
		return p, v.nothingChosen()
	}
	p.call = func(ctx context.Context, o order) (*outcome, error) {
		out := &outcome{Matched: 1, Changed: 1, Names: []string{id}}
		if o.dry {
			return out, nil
		}
		reply, err := v.c.admin.ReleaseCollector(ctx, &pb.ReleaseCollectorRequest{CollectorId: id, Reason: o.reason})
		if reply.GetIdentity() == "" {
			out.Changed, out.Lines = 0, []string{v.text.say("Nobody owned it.")}
		}
		return out, err
	}
	return p, nil
}

// taskChangesOf are the changes that tasks in a state can have; empty: all that wait.
func taskChangesOf(state string) []string {
	switch state {
	case "dead", "canceled", "done":
		return []string{"retry"}
	case "leased", "":
		return []string{"cancel", "revoke"}
	default:
		return []string{"cancel"}
	}
}
