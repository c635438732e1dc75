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
		Long: `Cancel tasks. One that waits is CANCELED at once. The holder of a leased one learns of it
with its next heartbeat, and the task ends CANCELED with its lease. A canceled seed is not
crawled until it is retried, or taken from its source and added again.

Without IDs, --url or --key: all that match the other flags, seeds among them.`,
		Example: `  waggle task cancel 2741-5kq3m7x2wnd4ylhz6tbrc3vjua --reason 'a trap'
  waggle task cancel --source news.example --url https://example.com/a
  waggle task cancel --queue example.com --state scheduled,ready --dry-run`,
	}, func(ctx context.Context, c *client.Client, b *client.Bulk) (changeReply, error) {
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
		Long: `Make tasks that are DEAD, CANCELED or DONE due now, with new budgets. No flag matches DONE
tasks: name each by its ID, or by --source with --url or --key. To crawl all pages of a
source again, use waggle source trigger --revisit.`,
		Example: `  waggle task retry 2741-5kq3m7x2wnd4ylhz6tbrc3vjua
  waggle task retry --source news.example --state dead --failed timeout --failed connect --dry-run`,
	}, func(ctx context.Context, c *client.Client, b *client.Bulk) (changeReply, error) {
		return c.Tasks.RetryTasks(ctx, &pb.RetryTasksRequest{
			TaskIds: b.IDs, Filter: b.Filter, ValidateOnly: b.DryRun, PageToken: b.Token, By: b.By, Reason: b.Reason,
		})
	})
	stateVar(cmd.Flags(), &b.Match.States, pb.TaskState_TASK_STATE_DEAD, pb.TaskState_TASK_STATE_CANCELED)
	return cmd
}

// changeCommand completes a command that changes the tasks of the ids it is given, or those that flags name (more are names of them), in as
// many calls as that needs. Tasks that are not there or were refused make it fail, though the others are done.
func changeCommand(o *client.Options, b *taskChoice, cmd *cobra.Command,
	change func(ctx context.Context, c *client.Client, b *client.Bulk) (changeReply, error), more ...string,
) *cobra.Command {
	b.register(cmd, o.Console, more...)
	cmd.ValidArgsFunction = o.Offer("task")
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, args []string) error {
		if err := b.choose(ctx, c, cmd, args); err != nil {
			return err
		}
		done := changes{keepAll: b.Filter == nil, counts: map[pb.TaskChangeCode]int{}}
		if err := b.Run(func() (string, error) {
			reply, err := change(ctx, c, &b.Bulk)
			if err != nil {
				return "", err
			}
			done.add(reply)
			return reply.GetNextPageToken(), nil
		}); err != nil {
			if done.total > 0 {
				c.Note("stopped after %s; repeating the command does no harm", human.Plural(done.total, "task"))
			}
			return err
		}
		if done.total == 0 && b.Filter != nil {
			if err := noteUnmatched(ctx, c, b.Filter); err != nil {
				return err
			}
		}
		return done.show(ctx, c, b.DryRun)
	})
	return cmd
}

// changes are what became of tasks. By a filter they may be millions: then the first are kept, with some of those that were
// refused, and the others are counted.
type changes struct {
	keepAll                        bool
	total, matched, changed, wrong int
	counts                         map[pb.TaskChangeCode]int
	kept                           []*pb.TaskChange
}

func (t *changes) add(reply changeReply) {
	t.matched, t.changed = t.matched+int(reply.GetMatched()), t.changed+int(reply.GetChanged())
	for _, r := range reply.GetResults() {
		t.total++
		t.counts[r.GetCode()]++
		if refused(r.GetCode()) {
			t.wrong++
		}
		if t.keepAll || t.total <= client.ShownResults || refused(r.GetCode()) && len(t.kept) < 5*client.ShownResults {
			t.kept = append(t.kept, r)
		}
	}
}

// refused reports whether a task could not be what was asked, now or before.
func refused(code pb.TaskChangeCode) bool {
	switch code {
	case pb.TaskChangeCode_TASK_CHANGE_CODE_NOT_FOUND, pb.TaskChangeCode_TASK_CHANGE_CODE_LIMITED, pb.TaskChangeCode_TASK_CHANGE_CODE_REFUSED:
		return true
	default:
		return false
	}
}

// show writes what became of tasks, and fails where some could not be changed.
func (t *changes) show(ctx context.Context, c *client.Client, dryRun bool) error {
	// The replies of the three calls are the same in JSON.
	all := &pb.CancelTasksResponse{Results: t.kept, Matched: int32(t.matched), Changed: int32(t.changed)}
	if err := c.Show(all, nil, func() {
		if dryRun {
			fmt.Fprintln(c.Out, "nothing is changed; this is what would become of them")
		}
		t.write(ctx, c, dryRun)
	}); err != nil {
		return err
	}
	if rest := t.total - len(t.kept); rest > 0 && c.JSON {
		c.Note("results has %s; the rest, %s, is only counted", human.Plural(len(t.kept), "task"), human.Count(rest))
	}
	switch {
	case t.wrong == 0:
		return nil
	case c.JSON:
		return cli.ErrReported
	default:
		return fmt.Errorf("%s not found or refused", human.Plural(t.wrong, "task"))
	}
}

// write shows each result of a few tasks, of many those that were refused, and how many there are of each kind. Of a dry run
// the first are shown, so that people see what they would change.
func (t *changes) write(ctx context.Context, c *client.Client, dryRun bool) {
	if t.total == 0 {
		fmt.Fprintln(c.Out, "no tasks match")
		return
	}
	columns := []string{"RESULT", "TASK", "STATE/2", "WHY~18"}
	if dryRun {
		columns = slices.Insert(columns, 3, "URL/1~18")
	}
	rows := human.NewTable(columns...)
	for i, r := range t.kept {
		first := i < client.ShownResults && (dryRun || t.total <= client.ShownResults)
		if first || refused(r.GetCode()) && len(rows.Rows) < 5*client.ShownResults {
			cells := []string{human.Word(r.GetCode(), codePrefix), r.GetTaskId(), human.Word(r.GetState(), "TASK_STATE_"), r.GetMessage()}
			if dryRun {
				reply, _ := c.Tasks.GetTask(ctx, &pb.GetTaskRequest{TaskId: r.GetTaskId()}) // without it the URL is left out
				cells = slices.Insert(cells, 3, urlOrKey(reply.GetTask()))
			}
			rows.Row(cells...)
		}
	}
	rows.Write(c.Out, "")
	if t.total == 1 {
		return
	}
	var parts human.Phrases
	for _, code := range slices.Sorted(maps.Keys(t.counts)) {
		parts.AddIf(true, "%s %s", human.Count(t.counts[code]), human.Word(code, codePrefix))
	}
	fmt.Fprintln(c.Out, human.Plural(t.total, "task")+": "+parts.Text())
}

const codePrefix = "TASK_CHANGE_CODE_"

// changeReply is what the bulk calls on tasks answer.
type changeReply interface {
	GetResults() []*pb.TaskChange
	GetMatched() int32
	GetChanged() int32
	GetNextPageToken() string
}

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
