package task

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
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

// changeTally is what became of the tasks that a command changes. By a filter they may be millions: then those are kept that
// are shown, and the others counted.
type changeTally struct {
	keepAll                 bool
	total, matched, changed int
	codes                   []pb.TaskChangeCode // in the order in which they came
	counts                  map[pb.TaskChangeCode]int
	kept                    []*pb.TaskChange
	about                   map[string]*pb.Task // the first of them, of a dry run
}

func (t *changeTally) add(reply changeReply) {
	t.matched, t.changed = t.matched+int(reply.GetMatched()), t.changed+int(reply.GetChanged())
	for _, r := range reply.GetResults() {
		if t.counts[r.GetCode()]++; t.counts[r.GetCode()] == 1 {
			t.codes = append(t.codes, r.GetCode())
		}
		if t.total++; t.keepAll || t.total <= client.ShownResults || refused(r.GetCode()) && len(t.kept) < 5*client.ShownResults {
			t.kept = append(t.kept, r)
		}
	}
}

// look reads the first tasks of a dry run, so that people see what they would change.
func (t *changeTally) look(ctx context.Context, c *client.Client) error {
	t.about = map[string]*pb.Task{}
	for _, r := range t.kept[:min(len(t.kept), client.ShownResults)] {
		reply, err := c.Tasks.GetTask(ctx, &pb.GetTaskRequest{TaskId: r.GetTaskId()})
		switch status.Code(err) {
		case codes.OK:
			t.about[r.GetTaskId()] = reply.GetTask()
		case codes.NotFound:
		default:
			return err
		}
	}
	return nil
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

func (t *changeTally) refused() (sum int) {
	for code, n := range t.counts {
		if refused(code) {
			sum += n
		}
	}
	return sum
}

// showChanges writes what became of tasks, and fails where some could not be changed.
func showChanges(c *client.Client, t *changeTally, dryRun bool) error {
	// The replies of the three calls are the same in JSON.
	all := &pb.CancelTasksResponse{Results: t.kept, Matched: int32(t.matched), Changed: int32(t.changed)}
	if err := c.Show(all, nil, func() {
		if dryRun {
			fmt.Fprintln(c.Out, "nothing is changed; this is what would become of them")
		}
		t.write(c.Out)
	}); err != nil {
		return err
	}
	if rest := t.total - len(t.kept); rest > 0 && c.JSON {
		fmt.Fprintf(c.Err, "results has %s; the rest, %s, is counted in matched and changed only\n", human.Plural(len(t.kept), "task"), human.Count(rest))
	}
	switch failed := t.refused(); {
	case failed == 0:
		return nil
	case c.JSON:
		return cli.ErrReported
	default:
		return fmt.Errorf("%s not found or refused", human.Plural(failed, "task"))
	}
}

// write shows each result of a few tasks, of many those that were refused, and how many there are of each kind.
func (t *changeTally) write(out io.Writer) {
	if t.total == 0 {
		fmt.Fprintln(out, "no tasks match")
		return
	}
	columns := []string{"RESULT", "TASK", "STATE", "WHY"}
	if t.about != nil {
		columns = []string{"RESULT", "TASK", "STATE", "SOURCE", "QUEUE", "URL", "WHY"}
	}
	rows := human.NewTable(columns...)
	for _, r := range t.kept {
		task, sample := t.about[r.GetTaskId()]
		if !sample && t.total > client.ShownResults && !refused(r.GetCode()) || len(rows.Rows) >= 5*client.ShownResults {
			continue
		}
		cells := []string{changeWord(r.GetCode()), r.GetTaskId(), human.Word(r.GetState(), "TASK_STATE_")}
		if t.about != nil {
			cells = append(cells, task.GetSourceId(), task.GetQueue(), human.Brief(urlOrKey(task), human.URLWidth))
		}
		rows.Row(append(cells, r.GetMessage())...)
	}
	rows.Write(out, "")
	if t.total == 1 {
		return
	}
	if more := t.total - len(rows.Rows); more > 0 && t.about != nil {
		fmt.Fprintf(out, "and %s more\n", human.Count(more))
	}
	var parts []string
	for _, code := range t.codes {
		parts = append(parts, human.Count(t.counts[code])+" "+changeWord(code))
	}
	fmt.Fprintln(out, human.Plural(t.total, "task")+": "+strings.Join(parts, ", "))
}

func changeWord(code pb.TaskChangeCode) string { return human.Word(code, "TASK_CHANGE_CODE_") }

// changeReply is what the bulk calls on tasks answer.
type changeReply interface {
	GetResults() []*pb.TaskChange
	GetMatched() int32
	GetChanged() int32
	GetNextPageToken() string
}

// taskChoice is which tasks a bulk call acts on: ids, the one of a source with a URL or a key, or a filter.
type taskChoice struct {
	filter pb.Filter
	url    string
	key    string
	// states of tasks that the call changes; none: what is leased. Of some calls it has to be said which.
	states        []pb.TaskState
	stateRequired bool

	chosen, failed []string
}

// whichTasks are the flags that lead to tasks. One that is there and empty is a variable that was not set, and never "all".
var whichTasks = []string{"source", "url", "key", "queue", "prefix", "pool", "suffix", "collector"}

func (s *taskChoice) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	registerWhere(flags, &s.filter, "; with --url or --key: that one")
	flags.StringVar(&s.url, "url", "", "with --source: the task's `URL`")
	flags.StringVar(&s.key, "key", "", "with --source: the task's `key`")
	flags.StringSliceVar(&s.failed, "failed", nil, "only tasks that failed last for this `reason`, as not_found or timeout")
	if len(s.states) > 0 {
		flags.StringSliceVar(&s.chosen, "state", nil, "only tasks in this `state`: "+strings.Join(s.stateNames(), ", "))
	}
}

func (s *taskChoice) stateNames() []string {
	var names []string
	for _, state := range s.states {
		names = append(names, strings.ToLower(human.Word(state, "TASK_STATE_")))
	}
	return names
}

// of are the ids that args and flags name, or else their filter.
func (s *taskChoice) of(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) ([]string, *pb.Filter, error) {
	for _, name := range whichTasks {
		if flag := cmd.Flags().Lookup(name); flag != nil && flag.Changed && flag.Value.String() == "" {
			return nil, nil, cli.Usagef("--%s is empty: which one?", name)
		}
	}
	f := &s.filter
	one := s.url != "" || s.key != ""
	wide := f.GetSourceIdPrefix() != "" || f.GetPool() != "" || len(f.GetLabels()) > 0 || f.GetAll() || f.GetQueueSuffix() != "" || f.GetCollectorId() != ""
	where := wide || f.GetSourceId() != "" || f.GetQueue() != ""
	narrowed := len(s.chosen) > 0 || len(s.failed) > 0
	switch {
	case len(args) > 0 && (one || where || narrowed):
		return nil, nil, cli.Usagef("say the tasks' IDs, or flags that name them, not both")
	case len(args) > 0:
		return args, nil, nil
	case one && (wide || narrowed):
		return nil, nil, cli.Usagef("--url and --key name one task; of the other flags only --source and --queue go with them")
	case one:
		ref := Ref{pb.GetTaskRequest{SourceId: f.GetSourceId(), Url: s.url, Key: s.key, Queue: f.GetQueue()}}
		ids, err := ref.IDs(ctx, c, nil)
		return ids, nil, err
	case !where:
		return nil, nil, cli.Usagef("which tasks? say their IDs, as `waggle task list` and `waggle lease list` show them, --source with --url or --key, or --source, --queue or another flag that matches them")
	}
	if s.stateRequired && len(s.chosen) == 0 {
		return nil, nil, cli.Usagef("which of them? say --state %s or both", strings.Join(s.stateNames(), ", --state "))
	}
	return nil, f, s.readEnums()
}

// readEnums reads the states and reasons of the filter.
func (s *taskChoice) readEnums() (err error) {
	known := map[string]int32{}
	for _, state := range s.states {
		known[state.String()] = int32(state)
	}
	for _, name := range s.chosen {
		if strings.EqualFold(name, "done") && s.stateRequired {
			return cli.Usagef("--state done: say dead, canceled; DONE tasks are listed nowhere, so that no filter finds them: say the task's ID, or --source with --url or --key")
		}
	}
	if s.filter.States, err = cli.Enums[pb.TaskState]("--state", s.chosen, "TASK_STATE_", known); err != nil {
		return err
	}
	s.filter.FailureReasons, err = cli.Enums[pb.FailureReason]("--failed", s.failed, "FAILURE_REASON_", pb.FailureReason_value)
	return err
}
