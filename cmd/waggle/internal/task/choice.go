package task

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

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

// registerWhere gives a command the flags that say where tasks are; ofSource is what else --source does there.
func registerWhere(flags *pflag.FlagSet, f *pb.Filter, ofSource string) {
	flags.StringVar(&f.SourceId, "source", "", "tasks of this `source`"+ofSource)
	cli.QueueVar(flags, &f.Queue, "queue", "tasks in this `queue`")
	cli.QueueVar(flags, &f.QueueSuffix, "suffix", "tasks in the queue with this `name` and those that end with .SUFFIX, as example.com")
	flags.StringVar(&f.SourceIdPrefix, "prefix", "", "tasks of sources whose id begins with this `prefix`, as news.")
	flags.StringVar(&f.Pool, "pool", "", "tasks of sources of this `pool`")
	cli.PairsVar(flags, &f.Labels, "label", "tasks of sources with this label")
	flags.BoolVar(&f.All, "all", false, "tasks of all sources")
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

// Ref is how people name a task: by its id, or by its source and URL or key.
type Ref struct{ by pb.GetTaskRequest }

// Register adds the flags.
func (r *Ref) Register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&r.by.SourceId, "source", "", "the task's `source`, instead of an ID")
	flags.StringVar(&r.by.Url, "url", "", "with --source: the task's `URL`")
	flags.StringVar(&r.by.Key, "key", "", "with --source: the task's `key`")
	cli.QueueVar(flags, &r.by.Queue, "queue", "with --key: the task's `queue`")
}

// named reports whether flags name a task.
func (r *Ref) named() bool {
	return r.by.GetSourceId() != "" || r.by.GetUrl() != "" || r.by.GetKey() != "" || r.by.GetQueue() != ""
}

// request finds the task that args and flags name.
func (r *Ref) request(args []string) (*pb.GetTaskRequest, error) {
	by := &r.by
	switch {
	case len(args) > 0 && r.named():
		return nil, cli.Usagef("say the task's ID, or --source with --url or --key, not both")
	case len(args) == 1:
		by.TaskId = args[0]
	case by.GetSourceId() == "" || by.GetUrl() == "" && by.GetKey() == "":
		return nil, cli.Usagef("which task? say its ID, or --source with --url or --key")
	case by.GetUrl() == "" && by.GetQueue() == "":
		return nil, cli.Usagef("--key names a task of a queue: say --queue, too; of a task whose key is its URL, --url")
	}
	return by, nil
}

// IDs are those in args, or that of the task which flags name.
func (r *Ref) IDs(ctx context.Context, c *client.Client, args []string) ([]string, error) {
	if len(args) > 0 && !r.named() {
		return args, nil
	}
	request, err := r.request(args)
	if err != nil {
		return nil, err
	}
	reply, err := c.Tasks.GetTask(ctx, request)
	return []string{reply.GetTask().GetId()}, err
}
