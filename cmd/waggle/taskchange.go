package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newTaskCancel(o *clientOptions) *cobra.Command {
	return changeCommand(o, &cobra.Command{
		Use:   "cancel [ID...]",
		Short: "Take tasks out; who works on one is told to stop",
		Long: `Take tasks out. One that waits is CANCELED at once; who works on one is told by its
next heartbeat, and the task ends CANCELED with its lease. A canceled seed stays out
until it is retried, or taken from its source and added again.`,
		Example: `  waggle task cancel 2741-5kq3m7x2wnd4ylhz6tbrc3vjua --reason 'a trap'
  waggle task cancel --source news.example --url https://example.com/a
  waggle task list --queue example.com -o json | jq -r '.tasks[].id' | xargs waggle task cancel`,
	}, func(ctx context.Context, c *client, ids []string, record *recordFlags) ([]*pb.TaskChange, error) {
		reply, err := c.tasks.CancelTasks(ctx, &pb.CancelTasksRequest{TaskIds: ids, By: record.by, Reason: record.reason})
		return reply.GetResults(), err
	})
}

func newTaskRetry(o *clientOptions) *cobra.Command {
	return changeCommand(o, &cobra.Command{
		Use:   "retry [ID...]",
		Short: "Make tasks that are DEAD, CANCELED or DONE due now, their budgets as new",
		Example: `  waggle task retry 2741-5kq3m7x2wnd4ylhz6tbrc3vjua
  waggle task list --source news.example --state dead --limit 0 -o json | jq -r '.tasks[].id' | xargs waggle task retry`,
	}, func(ctx context.Context, c *client, ids []string, record *recordFlags) ([]*pb.TaskChange, error) {
		reply, err := c.tasks.RetryTasks(ctx, &pb.RetryTasksRequest{TaskIds: ids, By: record.by, Reason: record.reason})
		return reply.GetResults(), err
	})
}

func newLeaseRevoke(o *clientOptions) *cobra.Command {
	return changeCommand(o, &cobra.Command{
		Use:   "revoke [TASK[@FENCE]...]",
		Short: "Take tasks from their holders; they are due again at once",
		Long: `Take tasks from their holders. They are due again at once, with no attempt spent. The
holder hears of it by its next heartbeat, and works on until then; what it reports
changes nothing. To end the work for good, say waggle task cancel.

With the fence that waggle lease list shows, a task stays with who has it if that is
another lease by now.`,
		Example: `  waggle lease revoke 2741-5kq3m7x2wnd4ylhz6tbrc3vjua --reason 'it hangs'
  waggle lease list -o json | jq -r '.leases[] | select(.holder.collector_id == "paris-1") | "\(.task_id)@\(.holder.fence)"' | xargs waggle lease revoke`,
	}, func(ctx context.Context, c *client, ids []string, record *recordFlags) ([]*pb.TaskChange, error) {
		req := &pb.RevokeLeasesRequest{By: record.by, Reason: record.reason}
		for _, lease := range ids {
			id, fence, err := parseLease(lease)
			if err != nil {
				return nil, err
			}
			req.TaskIds, req.Fences = append(req.TaskIds, id), append(req.Fences, fence)
		}
		reply, err := c.tasks.RevokeLeases(ctx, req)
		return reply.GetResults(), err
	})
}

// parseLease reads TASK or TASK@FENCE; 0: no fence.
func parseLease(lease string) (id string, fence int64, err error) {
	id, text, named := strings.Cut(lease, "@")
	if !named {
		return id, 0, nil
	}
	if fence, err = strconv.ParseInt(text, 10, 64); err != nil || fence <= 0 {
		return "", 0, usagef(nil, "lease %q: the fence after @ has to be a number above 0, as `waggle lease list` shows it", lease)
	}
	return id, fence, nil
}

// changeCommand completes a command that changes the tasks of the ids it is given, or
// the one that flags name, in calls of maxBulk ids. Tasks that are not there or were refused make it fail,
// though the others are done.
func changeCommand(o *clientOptions, cmd *cobra.Command,
	change func(ctx context.Context, c *client, ids []string, record *recordFlags) ([]*pb.TaskChange, error),
) *cobra.Command {
	var record recordFlags
	var ref taskRef
	cmd.Args = cobra.ArbitraryArgs
	ref.register(cmd)
	record.register(cmd, o.console)
	cmd.RunE = o.call(func(ctx context.Context, c *client, args []string) error {
		ids, err := ref.ids(ctx, c, args)
		if err != nil {
			return err
		}
		// The replies of the three calls are the same in JSON.
		all := &pb.CancelTasksResponse{}
		for from := 0; from < len(ids); from += maxBulk {
			results, err := change(ctx, c, ids[from:min(from+maxBulk, len(ids))], &record)
			if err != nil {
				if from > 0 {
					fmt.Fprintf(c.err, "%s before were seen to; repeating the command does them no harm\n", plural(from, "task"))
				}
				return err
			}
			all.Results = append(all.Results, results...)
		}
		if err := c.show(all, func() { writeChanges(c.out, all.GetResults()) }); err != nil {
			return err
		}
		failed := 0
		for _, r := range all.GetResults() {
			if refused(r) {
				failed++
			}
		}
		switch {
		case failed == 0:
			return nil
		case o.output == "json":
			return errReported
		default:
			return fmt.Errorf("%s not found or refused", plural(failed, "task"))
		}
	})
	return cmd
}

// refused reports whether a task could not be what was asked, now or before.
func refused(r *pb.TaskChange) bool {
	switch r.GetCode() {
	case pb.TaskChangeCode_TASK_CHANGE_CODE_NOT_FOUND, pb.TaskChangeCode_TASK_CHANGE_CODE_LIMITED, pb.TaskChangeCode_TASK_CHANGE_CODE_REFUSED:
		return true
	default:
		return false
	}
}

// writeChanges shows each result of a few tasks, of many those that were refused,
// and how many there are of each kind.
func writeChanges(out io.Writer, results []*pb.TaskChange) {
	t := newTable("RESULT", "TASK", "STATE", "WHY")
	var codes []pb.TaskChangeCode
	counts := map[pb.TaskChangeCode]int{}
	for _, r := range results {
		if counts[r.GetCode()]++; counts[r.GetCode()] == 1 {
			codes = append(codes, r.GetCode())
		}
		if len(results) <= shownResults || refused(r) && len(t.rows) < 5*shownResults {
			t.row(changeWord(r.GetCode()), r.GetTaskId(), word(r.GetState(), "TASK_STATE_"), r.GetMessage())
		}
	}
	if len(t.rows) > 0 {
		t.write(out)
	}
	if len(results) == 1 {
		return
	}
	text := plural(len(results), "task") + ": "
	for i, code := range codes {
		if i > 0 {
			text += ", "
		}
		text += count(counts[code]) + " " + changeWord(code)
	}
	fmt.Fprintln(out, text)
}

func changeWord(code pb.TaskChangeCode) string { return word(code, "TASK_CHANGE_CODE_") }
