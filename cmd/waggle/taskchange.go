package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newTaskCancel(o *clientOptions) *cobra.Command {
	choice := &taskChoice{states: []pb.TaskState{pb.TaskState_TASK_STATE_SCHEDULED, pb.TaskState_TASK_STATE_READY, pb.TaskState_TASK_STATE_LEASED}}
	return changeCommand(o, choice, &cobra.Command{
		Use:   "cancel [ID...]",
		Short: "Take tasks out; who works on one is told to stop",
		Long: `Take tasks out. One that waits is CANCELED at once; who works on one is told by its
next heartbeat, and the task ends CANCELED with its lease. A canceled seed stays out
until it is retried, or taken from its source and added again.

Without IDs, --url or --key: all that match the other flags, seeds among them.`,
		Example: `  waggle task cancel 2741-5kq3m7x2wnd4ylhz6tbrc3vjua --reason 'a trap'
  waggle task cancel --source news.example --url https://example.com/a
  waggle task cancel --queue example.com --state scheduled,ready --dry-run`,
	}, func(ctx context.Context, c *client, b *bulk) (changeReply, error) {
		return c.tasks.CancelTasks(ctx, &pb.CancelTasksRequest{
			TaskIds: b.ids, Filter: b.filter, ValidateOnly: b.dryRun, PageToken: b.token, By: b.by, Reason: b.reason,
		})
	})
}

func newTaskRetry(o *clientOptions) *cobra.Command {
	choice := &taskChoice{states: []pb.TaskState{pb.TaskState_TASK_STATE_DEAD, pb.TaskState_TASK_STATE_CANCELED}, stateRequired: true}
	return changeCommand(o, choice, &cobra.Command{
		Use:   "retry [ID...]",
		Short: "Make tasks that are DEAD, CANCELED or DONE due now, their budgets as new",
		Long: `Make tasks that are DEAD, CANCELED or DONE due now, their budgets as new. Those that are
DONE are listed nowhere: name each by its ID, or --source with --url or --key; to crawl all
pages of a source again, say waggle source trigger --revisit.`,
		Example: `  waggle task retry 2741-5kq3m7x2wnd4ylhz6tbrc3vjua
  waggle task retry --source news.example --state dead --failed timeout --failed connect --dry-run`,
	}, func(ctx context.Context, c *client, b *bulk) (changeReply, error) {
		return c.tasks.RetryTasks(ctx, &pb.RetryTasksRequest{
			TaskIds: b.ids, Filter: b.filter, ValidateOnly: b.dryRun, PageToken: b.token, By: b.by, Reason: b.reason,
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
	}, func(ctx context.Context, c *client, b *bulk) (changeReply, error) {
		revoke := &pb.RevokeLeasesRequest{
			Filter: b.filter, ValidateOnly: b.dryRun, PageToken: b.token, By: b.by, Reason: b.reason,
		}
		for _, lease := range b.ids {
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
		return "", 0, usagef("lease %q: the fence after @ has to be a number above 0, as `waggle lease list` shows it", lease)
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

// changeCommand completes a command that changes the tasks of the ids it is given, or those that flags name, in as many
// calls as that needs. Tasks that are not there or were refused make it fail, though the others are done.
func changeCommand(o *clientOptions, choice *taskChoice, cmd *cobra.Command,
	change func(ctx context.Context, c *client, b *bulk) (changeReply, error),
) *cobra.Command {
	var b bulk
	choice.register(cmd)
	b.register(cmd, o.console, "tasks")
	cmd.RunE = o.call(func(ctx context.Context, c *client, args []string) error {
		ids, filter, err := choice.of(ctx, c, cmd, args)
		if err != nil {
			return err
		}
		tally := changeTally{keepAll: filter == nil, counts: map[pb.TaskChangeCode]int{}}
		if err := b.run(ids, filter, func() (string, error) {
			reply, err := change(ctx, c, &b)
			if err != nil {
				return "", err
			}
			tally.add(reply)
			return reply.GetNextPageToken(), nil
		}); err != nil {
			if tally.total > 0 {
				fmt.Fprintf(c.err, "%s seen to before; repeating the command does no harm\n", pluralVerb(tally.total, "task", "was", "were"))
			}
			return err
		}
		if tally.total == 0 && filter != nil {
			if err := c.noteUnmatched(ctx, filter); err != nil {
				return err
			}
		}
		if b.dryRun && !c.json {
			if err := tally.look(ctx, c); err != nil {
				return err
			}
		}
		return c.showChanges(&tally, b.dryRun)
	})
	return cmd
}
