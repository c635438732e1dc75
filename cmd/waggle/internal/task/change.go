package task

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newTaskCancel(o *client.Options) *cobra.Command {
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
	}, func(ctx context.Context, c *client.Client, b *client.Bulk) (changeReply, error) {
		return c.Tasks.CancelTasks(ctx, &pb.CancelTasksRequest{
			TaskIds: b.IDs, Filter: b.Filter, ValidateOnly: b.DryRun, PageToken: b.Token, By: b.By, Reason: b.Reason,
		})
	})
}

func newTaskRetry(o *client.Options) *cobra.Command {
	choice := &taskChoice{states: []pb.TaskState{pb.TaskState_TASK_STATE_DEAD, pb.TaskState_TASK_STATE_CANCELED}, stateRequired: true}
	return changeCommand(o, choice, &cobra.Command{
		Use:   "retry [ID...]",
		Short: "Make tasks that are DEAD, CANCELED or DONE due now, their budgets as new",
		Long: `Make tasks that are DEAD, CANCELED or DONE due now, their budgets as new. Those that are
DONE are listed nowhere: name each by its ID, or --source with --url or --key; to crawl all
pages of a source again, say waggle source trigger --revisit.`,
		Example: `  waggle task retry 2741-5kq3m7x2wnd4ylhz6tbrc3vjua
  waggle task retry --source news.example --state dead --failed timeout --failed connect --dry-run`,
	}, func(ctx context.Context, c *client.Client, b *client.Bulk) (changeReply, error) {
		return c.Tasks.RetryTasks(ctx, &pb.RetryTasksRequest{
			TaskIds: b.IDs, Filter: b.Filter, ValidateOnly: b.DryRun, PageToken: b.Token, By: b.By, Reason: b.Reason,
		})
	})
}

// changeCommand completes a command that changes the tasks of the ids it is given, or those that flags name, in as many
// calls as that needs. Tasks that are not there or were refused make it fail, though the others are done.
func changeCommand(o *client.Options, choice *taskChoice, cmd *cobra.Command,
	change func(ctx context.Context, c *client.Client, b *client.Bulk) (changeReply, error),
) *cobra.Command {
	var b client.Bulk
	choice.register(cmd)
	b.Register(cmd, o.Console, "tasks")
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, args []string) error {
		ids, filter, err := choice.of(ctx, c, cmd, args)
		if err != nil {
			return err
		}
		tally := changeTally{keepAll: filter == nil, counts: map[pb.TaskChangeCode]int{}}
		if err := b.Run(ids, filter, func() (string, error) {
			reply, err := change(ctx, c, &b)
			if err != nil {
				return "", err
			}
			tally.add(reply)
			return reply.GetNextPageToken(), nil
		}); err != nil {
			if tally.total > 0 {
				fmt.Fprintf(c.Err, "%s seen to before; repeating the command does no harm\n", human.PluralVerb(tally.total, "task", "was", "were"))
			}
			return err
		}
		if tally.total == 0 && filter != nil {
			if err := noteUnmatched(ctx, c, filter); err != nil {
				return err
			}
		}
		if b.DryRun && !c.JSON {
			if err := tally.look(ctx, c); err != nil {
				return err
			}
		}
		return showChanges(c, &tally, b.DryRun)
	})
	return cmd
}
