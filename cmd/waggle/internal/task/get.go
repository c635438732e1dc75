package task

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

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

func newTaskGet(o *client.Options) *cobra.Command {
	var ref Ref
	cmd := &cobra.Command{
		Use:   "get [ID]",
		Short: "Show a task, its holder and its attempts",
		Example: `  waggle task get 2741-5kq3m7x2wnd4ylhz6tbrc3vjua
  waggle task get --source news.example --url https://example.com/a`,
		Args: cli.AtMostOne,
	}
	ref.Register(cmd)
	cmd.ValidArgsFunction = o.Offer("task")
	return o.Look(cmd, func(ctx context.Context, c *client.Client, args []string) error {
		request, err := ref.request(args)
		if err != nil {
			return err
		}
		reply, err := c.Tasks.GetTask(ctx, request)
		return c.Show(reply.GetTask(), err, func() { writeTask(c.Out, c.Now, reply.GetTask()) })
	})
}

func writeTasks(out io.Writer, now time.Time, tasks []*pb.Task) {
	t := human.NewTable("TASK^11", "STATE", "SOURCE/4^10", "DUE/3", ">DEPTH/2=1", "HELD BY/2^8", "URL/6^28", "LAST ERROR/1~12")
	for _, task := range tasks {
		problem := ""
		if e := task.GetLastError(); e != nil {
			problem = describe.Error(e)
		}
		t.Row(task.GetId(), human.Word(task.GetState(), "TASK_STATE_"), task.GetSourceId(), human.Since(now, task.GetDueTime()), human.Count(task.GetDepth()),
			task.GetHolder().GetCollectorId(), urlOrKey(task), problem)
	}
	t.Write(out, "no tasks (DONE ones are not listed; `waggle task get` finds them)")
}

// urlOrKey is what people know a task by.
func urlOrKey(task *pb.Task) string { return cmp.Or(task.GetUrl(), task.GetKey()) }

func writeTask(out io.Writer, now time.Time, task *pb.Task) {
	var sh human.Sheet
	sh.Line("Task", task.GetId())
	sh.Line("URL", task.GetUrl())
	if task.GetKey() != task.GetUrl() {
		sh.Line("Key", task.GetKey())
	}
	sh.Line("Source", task.GetSourceId())
	sh.Linef("Queue", "%s, pool %s", task.GetQueue(), cmp.Or(task.GetPool(), "default"))
	sh.Line("State", stateText(task))
	sh.Line("Due", human.SinceAt(now, task.GetDueTime()))
	sh.Line("Place", placeText(task))
	budgets := human.Phrases{human.Plural(task.GetFailures(), "failure"), human.Plural(task.GetExpirations(), "expiration"), human.Count(task.GetThrottled()) + " throttled"}
	budgets.AddIf(task.GetReleases() > 0, "%s in a row", human.Plural(task.GetReleases(), "release"))
	sh.Linef("Cycle", "%d, attempt %d: %s", task.GetCycle(), task.GetAttempt(), budgets.Text())
	sh.Line("Created", human.SinceAt(now, task.GetCreateTime()))
	sh.LineIf(task.GetSettleTime() != nil, "Settled", "%s", human.SinceAt(now, task.GetSettleTime()))
	sh.Line("Last answer", answerText(task))
	sh.LineIf(task.GetCancellation() != nil, "Canceled", "%s", cancellationText(now, task))
	sh.LineIf(task.GetLastError() != nil, "Last error", "%s, %s", describe.Error(task.GetLastError()), human.Since(now, task.GetLastError().GetTime()))
	sh.Line("Metadata", human.Pairs(task.GetMetadata()))
	sh.LineIf(len(task.GetPayload()) > 0, "Payload", "%s", human.Bytes(len(task.GetPayload())))
	sh.LineIf(len(task.GetMemo()) > 0, "Memo", "%s", human.Bytes(len(task.GetMemo())))
	sh.LineIf(len(task.GetCursor()) > 0, "Cursor", "%s", human.Bytes(len(task.GetCursor())))
	sh.Write(out)
	if len(task.GetHistory()) > 0 {
		fmt.Fprintln(out)
		writeAttempts(out, now, task.GetHistory())
	}
}

// answered is what reports say of requests.
type answered interface {
	GetHttpStatus() int32
	GetBytes() int64
	GetFetchDuration() *durationpb.Duration
}

// answerText is what a report has said of its request.
func answerText(of answered) string {
	var text human.Phrases
	text.AddIf(of.GetHttpStatus() != 0, "HTTP %d", of.GetHttpStatus())
	text.AddIf(of.GetBytes() != 0, "%s", human.Bytes(of.GetBytes()))
	text.AddIf(of.GetFetchDuration() != nil, "fetched in %s", human.Span(of.GetFetchDuration().AsDuration()))
	return text.Text()
}

func stateText(task *pb.Task) string {
	state := human.Word(task.GetState(), "TASK_STATE_")
	holder := task.GetHolder()
	if holder == nil {
		return state
	}
	text := fmt.Sprintf("%s by %s for %s, %s (fence %d)", state, holder.GetCollectorId(), human.Span(holder.GetAge().AsDuration()),
		describe.LeaseLeft(holder.GetRemaining().AsDuration()), holder.GetFence())
	if task.GetCancelRequested() {
		text += "; a cancel is asked for: it ends CANCELED with its lease"
	}
	return text
}

// cancellationText is who canceled the task, or asked for that.
func cancellationText(now time.Time, task *pb.Task) string {
	c := task.GetCancellation()
	text := fmt.Sprintf("by %s, %s", c.GetBy(), human.Since(now, c.GetTime()))
	switch {
	case c.GetSourceDeleted():
		text = "its source was deleted " + text
	case task.GetCancelRequested():
		text = "asked for " + text
	}
	if c.GetReason() != "" {
		text += ": " + c.GetReason()
	}
	return text
}

// placeText is where the task came from and how it counts.
func placeText(task *pb.Task) string {
	kind := "submitted"
	switch {
	case task.GetRecurring():
		kind = "seed"
	case task.GetDepth() > 0:
		kind = fmt.Sprintf("discovered at depth %d", task.GetDepth())
	}
	if relation := task.GetRelation(); relation > pb.Relation_RELATION_LINK {
		kind += " as " + human.Word(relation, "RELATION_")
	}
	text := human.Phrases{kind, fmt.Sprintf("priority %d", task.GetPriority())}
	text.AddIf(task.GetRun() != 0, "in the pass of %s", time.UnixMilli(task.GetRun()).UTC().Format("2006-01-02 15:04:05Z"))
	text.AddIf(task.GetKind() != "", "kind %s", task.GetKind())
	return text.Text()
}

func writeAttempts(out io.Writer, now time.Time, attempts []*pb.Attempt) {
	t := human.NewTable(">CYCLE", "COLLECTOR/1^8", "STARTED", ">TOOK/2", "RESULT", "DETAIL~20")
	for _, a := range attempts {
		cycle, started, took, result := human.Count(a.GetCycle()), human.Since(now, a.GetStartTime()), human.None, "under way"
		if result := a.GetResult(); result == pb.AttemptResult_ATTEMPT_RESULT_CANCELED || result == pb.AttemptResult_ATTEMPT_RESULT_HELD { // no attempt
			cycle, started = human.None, human.Since(now, a.GetEndTime())
		} else if a.GetEndTime() != nil {
			took = human.Span(a.GetEndTime().AsTime().Sub(a.GetStartTime().AsTime()))
		}
		if a.GetResult() != pb.AttemptResult_ATTEMPT_RESULT_UNSPECIFIED {
			result = human.Word(a.GetResult(), "ATTEMPT_RESULT_")
		}
		var detail human.Phrases
		detail.AddIf(a.GetReason() != pb.FailureReason_FAILURE_REASON_UNSPECIFIED, "%s", human.Word(a.GetReason(), "FAILURE_REASON_"))
		detail.AddIf(answerText(a) != "", "%s", answerText(a))
		detail.AddIf(a.GetMovedTo() != "", "moved to %s", a.GetMovedTo())
		detail.AddIf(a.GetMessage() != "", "%s", a.GetMessage())
		t.Row(cycle, cmp.Or(a.GetCollectorId(), human.None), started, took, result, detail.Text())
	}
	t.Write(out, "")
}

// stateVar adds a flag for some of the states of tasks.
func stateVar(flags *pflag.FlagSet, into *[]pb.TaskState, states ...pb.TaskState) {
	values := map[string]int32{}
	for _, state := range states {
		values[state.String()] = int32(state)
	}
	cli.EnumsVar(flags, into, "state", "only tasks in this `state`", "TASK_STATE_", values)
}
