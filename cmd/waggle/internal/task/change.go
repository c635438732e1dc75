package task

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newTaskCancel(o *client.Options) *cobra.Command {
	var b taskChoice
	cmd := changeCommand(o, &b, &cobra.Command{
		Use:   "cancel [ID...]",
		Short: "Cancel tasks",
		Long: `Cancel tasks. One that waits is CANCELED at once. The holder of a leased one learns of it with its next
heartbeat, and the task ends CANCELED with its lease. A canceled seed is not crawled until it is retried, or taken from its
source and added again.

Without IDs, --url or --key: all that match the other flags, seeds among them.`,
		Example: `  waggle task cancel 2741-5kq3m7x2wnd4ylhz6tbrc3vjua --reason 'a trap'
  waggle task cancel --source news.example --url https://example.com/a
  waggle task cancel --queue example.com --state scheduled,ready --dry-run`,
	}, func(ctx context.Context, c *client.Client, b *client.Bulk) (*pb.CancelTasksResponse, error) {
		return c.Tasks.CancelTasks(ctx, &pb.CancelTasksRequest{
			TaskIds: b.IDs, Filter: b.Filter, ValidateOnly: b.DryRun, PageToken: b.Token, By: b.By, Reason: b.Reason,
		})
	})
	stateVar(cmd.Flags(), &b.Match.States, pb.TaskState_TASK_STATE_SCHEDULED, pb.TaskState_TASK_STATE_READY, pb.TaskState_TASK_STATE_LEASED)
	return cmd
}

func newTaskRetry(o *client.Options) *cobra.Command {
	b := taskChoice{stateRequired: true}
	cmd := changeCommand(o, &b, &cobra.Command{
		Use:   "retry [ID...]",
		Short: "Make settled tasks due now",
		Long: `Make tasks that are DEAD, CANCELED or DONE due now, with new budgets. No flag matches DONE tasks: name each by
its ID, or by --source with --url or --key. A one-shot task that is DONE keeps its URL only in Redis; elsewhere it is refused:
submit it again. To crawl all pages of a source again, use waggle source trigger --revisit.`,
		Example: `  waggle task retry 2741-5kq3m7x2wnd4ylhz6tbrc3vjua
  waggle task retry --source news --state dead --failed timeout --dry-run`,
	}, func(ctx context.Context, c *client.Client, b *client.Bulk) (*pb.RetryTasksResponse, error) {
		return c.Tasks.RetryTasks(ctx, &pb.RetryTasksRequest{
			TaskIds: b.IDs, Filter: b.Filter, ValidateOnly: b.DryRun, PageToken: b.Token, By: b.By, Reason: b.Reason,
		})
	})
	stateVar(cmd.Flags(), &b.Match.States, pb.TaskState_TASK_STATE_DEAD, pb.TaskState_TASK_STATE_CANCELED)
	return cmd
}

// changeCommand completes a command that changes the tasks of the ids it is given, or those that flags name (more are names
// of them). Tasks that are not there or were refused make it fail, though the others are done.
func changeCommand[R changeReply](
	o *client.Options, b *taskChoice, cmd *cobra.Command, change func(context.Context, *client.Client, *client.Bulk) (R, error), more ...string,
) *cobra.Command {
	b.register(cmd, o.Console, more...)
	cmd.ValidArgsFunction = o.Offer("task")
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, args []string) error {
		if err := b.choose(ctx, c, cmd, args); err != nil {
			return err
		}
		total, err := client.RunBulk(ctx, c, &b.Bulk, "changed", change)
		if err == nil && len(total.GetResults()) == 0 && b.Filter != nil {
			err = noteUnmatched(ctx, c, b.Filter)
		}
		err = c.Show(total, err, func() { writeChanges(ctx, c, total.GetResults(), b.DryRun) })
		if err != nil {
			return err
		}
		wrong := 0
		for _, r := range total.GetResults() {
			if refused(r) {
				wrong++
			}
		}
		if wrong > 0 {
			return fmt.Errorf("%s not found or refused", human.Plural(wrong, "task"))
		}
		return nil
	})
	return cmd
}

// changeReply is what the bulk calls on tasks answer.
type changeReply interface {
	client.BulkReply
	GetResults() []*pb.TaskChange
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

// writeChanges shows each result of a few tasks, of many those that were refused, and how many there are of each kind. Of a
// dry run the first are shown with their URLs, so that people see what they would change.
func writeChanges(ctx context.Context, c *client.Client, results []*pb.TaskChange, dryRun bool) {
	columns := []string{"RESULT", "TASK^11", "STATE/2", "WHY~18"}
	if dryRun {
		fmt.Fprintln(c.Out, "nothing is changed; this is what would become of them")
		columns = slices.Insert(columns, 3, "URL/1^18")
	}
	rows, counts := human.NewTable(columns...), map[pb.TaskChangeCode]int{}
	for i, r := range results {
		counts[r.GetCode()]++
		first := i < client.ShownResults && (dryRun || len(results) <= client.ShownResults)
		if !first && (!refused(r) || len(rows.Rows) >= 5*client.ShownResults) {
			continue
		}
		cells := []string{human.Word(r.GetCode(), codePrefix), r.GetTaskId(), human.Word(r.GetState(), "TASK_STATE_"), r.GetMessage()}
		if dryRun {
			reply, _ := c.Tasks.GetTask(ctx, &pb.GetTaskRequest{TaskId: r.GetTaskId()}) // without it the URL is left out
			cells = slices.Insert(cells, 3, urlOrKey(reply.GetTask()))
		}
		rows.Row(cells...)
	}
	if len(results) == 0 {
		fmt.Fprintln(c.Out, "no tasks match")
	}
	rows.Write(c.Out, "")
	if len(results) < 2 {
		return
	}
	var parts human.Phrases
	for _, code := range slices.Sorted(maps.Keys(counts)) {
		parts.AddIf(true, "%s %s", human.Count(counts[code]), human.Word(code, codePrefix))
	}
	fmt.Fprintln(c.Out, human.Plural(len(results), "task")+": "+parts.Text())
}

const codePrefix = "TASK_CHANGE_CODE_"

// taskChoice is which tasks a bulk call acts on, beside what all bulk calls have: the one of a source with a URL or a key.
type taskChoice struct {
	client.Bulk

	url, key      string
	stateRequired bool // flags have to say which states
}

func (b *taskChoice) register(cmd *cobra.Command, c cli.Console, more ...string) {
	b.Register(cmd, c, "tasks", append([]string{"source", "queue", "suffix", "prefix", "pool", "label", "all"}, more...)...)
	flags := cmd.Flags()
	flags.StringVar(&b.url, "url", "", "with --source: the task's `URL`")
	flags.StringVar(&b.key, "key", "", "with --source: the task's `key`")
	cli.EnumsVar(flags, &b.Match.FailureReasons, "failed", "only tasks that failed last for this `reason`", "FAILURE_REASON_", pb.FailureReason_value)
}

// choose takes the tasks that args and flags name.
func (b *taskChoice) choose(ctx context.Context, c *client.Client, cmd *cobra.Command, ids []string) error {
	one := cmd.Flags().Changed("url") || cmd.Flags().Changed("key")
	if one && len(ids) > 0 {
		return cli.Usagef("say ids, or --source with --url or --key, not both")
	}
	if !one {
		err := b.Choose(cmd, ids)
		if err == nil && b.stateRequired && b.Filter != nil && len(b.Match.GetStates()) == 0 {
			err = cli.Usagef("which of them? say --state dead, --state canceled or both")
		}
		return err
	}
	f := &b.Match
	if narrow := (&pb.Filter{SourceId: f.GetSourceId(), Queue: f.GetQueue()}); !proto.Equal(f, narrow) {
		return cli.Usagef("--url and --key name one task; of the other flags only --source and --queue go with them")
	}
	ref := Ref{pb.GetTaskRequest{SourceId: f.GetSourceId(), Url: b.url, Key: b.key, Queue: f.GetQueue()}}
	found, err := ref.IDs(ctx, c, nil)
	b.Take(found)
	return err
}
