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
	var yes bool
	choice := &taskChoice{states: []pb.TaskState{pb.TaskState_TASK_STATE_SCHEDULED, pb.TaskState_TASK_STATE_READY, pb.TaskState_TASK_STATE_LEASED}}
	cmd := changeCommand(o, choice, &cobra.Command{
		Use:   "cancel [ID...]",
		Short: "Take tasks out; who works on one is told to stop",
		Long: `Take tasks out. One that waits is CANCELED at once; who works on one is told by its
next heartbeat, and the task ends CANCELED with its lease. A canceled seed stays out
until it is retried, or taken from its source and added again.

Without IDs, --url or --key: all that match the other flags, seeds among them.`,
		Example: `  waggle task cancel 2741-5kq3m7x2wnd4ylhz6tbrc3vjua --reason 'a trap'
  waggle task cancel --source news.example --url https://example.com/a
  waggle task cancel --queue example.com --state scheduled,ready --dry-run`,
	}, func(ctx context.Context, c *client, req *changeCall) (changeReply, error) {
		if req.filter != nil && !yes && !req.dryRun {
			return nil, usagef(nil, "a filter cancels whatever it matches: look with --dry-run, then say --yes")
		}
		return c.tasks.CancelTasks(ctx, &pb.CancelTasksRequest{
			TaskIds: req.ids, Filter: req.filter, ValidateOnly: req.dryRun, PageToken: req.token, By: req.by, Reason: req.reason,
		})
	})
	cmd.Flags().BoolVar(&yes, "yes", false, "cancel without tasks being named one by one")
	return cmd
}

func newTaskRetry(o *clientOptions) *cobra.Command {
	choice := &taskChoice{states: []pb.TaskState{pb.TaskState_TASK_STATE_DEAD, pb.TaskState_TASK_STATE_CANCELED}}
	return changeCommand(o, choice, &cobra.Command{
		Use:   "retry [ID...]",
		Short: "Make tasks that are DEAD, CANCELED or DONE due now, their budgets as new",
		Example: `  waggle task retry 2741-5kq3m7x2wnd4ylhz6tbrc3vjua
  waggle task retry --source news.example --state dead --failed timeout --failed connect`,
	}, func(ctx context.Context, c *client, req *changeCall) (changeReply, error) {
		if req.filter != nil && len(req.filter.GetStates()) == 0 {
			return nil, usagef(nil, "which of them? say --state dead, --state canceled or both")
		}
		return c.tasks.RetryTasks(ctx, &pb.RetryTasksRequest{
			TaskIds: req.ids, Filter: req.filter, ValidateOnly: req.dryRun, PageToken: req.token, By: req.by, Reason: req.reason,
		})
	})
}

func newLeaseRevoke(o *clientOptions) *cobra.Command {
	choice := &taskChoice{}
	cmd := changeCommand(o, choice, &cobra.Command{
		Use:   "revoke [TASK[@FENCE]...]",
		Short: "Take tasks from their holders; they are due again at once",
		Long: `Take tasks from their holders. They are due again at once, with no attempt spent. The
holder hears of it by its next heartbeat, and works on until then; what it reports
changes nothing. To end the work for good, say waggle task cancel.

With the fence that waggle lease list shows, a task stays with who has it if that is
another lease by now.`,
		Example: `  waggle lease revoke 2741-5kq3m7x2wnd4ylhz6tbrc3vjua --reason 'it hangs'
  waggle lease revoke --collector paris-1 --dry-run`,
	}, func(ctx context.Context, c *client, req *changeCall) (changeReply, error) {
		revoke := &pb.RevokeLeasesRequest{
			Filter: req.filter, ValidateOnly: req.dryRun, PageToken: req.token, By: req.by, Reason: req.reason,
		}
		for _, lease := range req.ids {
			id, fence, err := parseLease(lease)
			if err != nil {
				return nil, err
			}
			revoke.TaskIds, revoke.Fences = append(revoke.TaskIds, id), append(revoke.Fences, fence)
		}
		return c.tasks.RevokeLeases(ctx, revoke)
	})
	cmd.Flags().StringVar(&choice.filter.CollectorId, "collector", "", "what the collector of this `id` holds")
	return cmd
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

// changeReply is what the bulk calls on tasks answer.
type changeReply interface {
	GetResults() []*pb.TaskChange
	GetMatched() int32
	GetChanged() int32
	GetNextPageToken() string
}

// changeCall is what the bulk calls on tasks are made with.
type changeCall struct {
	ids    []string
	filter *pb.Filter
	token  string
	dryRun bool
	recordFlags
}

// changeCommand completes a command that changes the tasks of the ids it is given, or
// those that flags name, in as many calls as that needs. Tasks that are not there or
// were refused make it fail, though the others are done.
func changeCommand(o *clientOptions, choice *taskChoice, cmd *cobra.Command,
	change func(ctx context.Context, c *client, call *changeCall) (changeReply, error),
) *cobra.Command {
	var call changeCall
	cmd.Args = cobra.ArbitraryArgs
	choice.register(cmd)
	cmd.Flags().BoolVar(&call.dryRun, "dry-run", false, "change nothing; say what would become of each")
	call.register(cmd, o.console)
	cmd.RunE = o.call(func(ctx context.Context, c *client, args []string) error {
		ids, filter, err := choice.of(ctx, c, cmd, args)
		if err != nil {
			return err
		}
		call.filter = filter
		// The replies of the three calls are the same in JSON.
		all := &pb.CancelTasksResponse{}
		for more := true; more; more = len(ids) > 0 || call.token != "" {
			call.ids = ids[:min(len(ids), maxBulk)]
			ids = ids[len(call.ids):]
			reply, err := change(ctx, c, &call)
			if err != nil {
				if n := len(all.GetResults()); n > 0 {
					fmt.Fprintf(c.err, "%s before were seen to; repeating the command does them no harm\n", plural(n, "task"))
				}
				return err
			}
			call.token = reply.GetNextPageToken()
			all.Results = append(all.Results, reply.GetResults()...)
			all.Matched, all.Changed = all.GetMatched()+reply.GetMatched(), all.GetChanged()+reply.GetChanged()
		}
		return c.showChanges(all, call.dryRun)
	})
	return cmd
}

// showChanges writes what became of tasks, and fails where some could not be changed.
func (c *client) showChanges(all *pb.CancelTasksResponse, dryRun bool) error {
	err := c.show(all, func() {
		if dryRun {
			fmt.Fprintln(c.out, "nothing is changed; this is what would become of them")
		}
		writeChanges(c.out, all.GetResults())
	})
	if err != nil {
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
	case c.options.output == "json":
		return errReported
	default:
		return fmt.Errorf("%s not found or refused", plural(failed, "task"))
	}
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
	if len(results) == 0 {
		fmt.Fprintln(out, "no tasks match")
		return
	}
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
