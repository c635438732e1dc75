package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newTask(o *clientOptions) *cobra.Command {
	return o.group(&cobra.Command{Use: "task", Short: "Submit tasks, look at them, cancel or retry them"},
		newTaskSubmit(o), newTaskGet(o), newTaskList(o), newTaskCancel(o), newTaskRetry(o))
}

func newTaskGet(o *clientOptions) *cobra.Command {
	var ref taskRef
	cmd := &cobra.Command{
		Use:   "get [ID]",
		Short: "Show a task with its holder and its attempts",
		Example: `  waggle task get 2741-5kq3m7x2wnd4ylhz6tbrc3vjua
  waggle task get --source news.example --url https://example.com/a`,
		Args: atMostOne,
	}
	ref.register(cmd)
	cmd.RunE = o.call(func(ctx context.Context, c *client, args []string) error {
		request, err := ref.request(args)
		if err != nil {
			return err
		}
		reply, err := c.tasks.GetTask(ctx, request)
		return c.show(reply.GetTask(), err, func() { writeTask(c.out, c.now, reply.GetTask()) })
	})
	return cmd
}

// taskRef is how people name a task: by its id, or by its source and URL or key.
type taskRef struct{ by pb.GetTaskRequest }

func (r *taskRef) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&r.by.SourceId, "source", "", "the task's `source`, instead of an ID")
	flags.StringVar(&r.by.Url, "url", "", "with --source: the task's `URL`")
	flags.StringVar(&r.by.Key, "key", "", "with --source: the task's `key`")
	queueVar(flags, &r.by.Queue, "queue", "with --key: the task's `queue`")
}

// named reports whether flags name a task.
func (r *taskRef) named() bool {
	return r.by.GetSourceId() != "" || r.by.GetUrl() != "" || r.by.GetKey() != "" || r.by.GetQueue() != ""
}

// request finds the task that args and flags name.
func (r *taskRef) request(args []string) (*pb.GetTaskRequest, error) {
	by := &r.by
	switch {
	case len(args) > 0 && r.named():
		return nil, usagef("say the task's ID, or --source with --url or --key, not both")
	case len(args) == 1:
		by.TaskId = args[0]
	case by.GetSourceId() == "" || by.GetUrl() == "" && by.GetKey() == "":
		return nil, usagef("which task? say its ID, or --source with --url or --key")
	case by.GetUrl() == "" && by.GetQueue() == "":
		return nil, usagef("--key names a task of a queue: say --queue, too; of a task whose key is its URL, --url")
	}
	return by, nil
}

// ids are those in args, or that of the task which flags name.
func (r *taskRef) ids(ctx context.Context, c *client, args []string) ([]string, error) {
	if len(args) > 0 && !r.named() {
		return args, nil
	}
	request, err := r.request(args)
	if err != nil {
		return nil, err
	}
	reply, err := c.tasks.GetTask(ctx, request)
	return []string{reply.GetTask().GetId()}, err
}

func writeTasks(out io.Writer, now time.Time, tasks []*pb.Task) {
	t := newTable("TASK", "STATE", "SOURCE", "DUE", ">DEPTH", "HELD BY", "URL", "LAST ERROR")
	for _, task := range tasks {
		problem := none
		if e := task.GetLastError(); e != nil {
			problem = brief(errorText(e), messageWidth)
		}
		t.row(task.GetId(), word(task.GetState(), "TASK_STATE_"), task.GetSourceId(), since(now, task.GetDueTime()), count(task.GetDepth()),
			task.GetHolder().GetCollectorId(), brief(urlOrKey(task), urlWidth), problem)
	}
	t.write(out, "no tasks (DONE ones are not listed; `waggle task get` finds them)")
}

// urlOrKey is what people know a task by.
func urlOrKey(task *pb.Task) string { return or(task.GetUrl(), task.GetKey()) }

func writeTask(out io.Writer, now time.Time, task *pb.Task) {
	var sh sheet
	sh.line("Task", task.GetId())
	sh.line("URL", task.GetUrl())
	if task.GetKey() != task.GetUrl() {
		sh.line("Key", task.GetKey())
	}
	sh.line("Source", task.GetSourceId())
	sh.linef("Queue", "%s, pool %s", task.GetQueue(), or(task.GetPool(), "default"))
	sh.line("State", stateText(task))
	sh.line("Due", both(now, task.GetDueTime()))
	sh.line("Place", placeText(task))
	sh.linef("Cycle", "%d, attempt %d: %s, %s, %s", task.GetCycle(), task.GetAttempt(),
		plural(task.GetFailures(), "failure"), plural(task.GetExpirations(), "expiration"), count(task.GetThrottled())+" throttled")
	sh.line("Created", both(now, task.GetCreateTime()))
	sh.lineIf(task.GetSettleTime() != nil, "Settled", "%s", both(now, task.GetSettleTime()))
	sh.lineIf(task.GetCancellation() != nil, "Canceled", "%s", cancellationText(now, task))
	sh.lineIf(task.GetLastError() != nil, "Last error", "%s, %s", errorText(task.GetLastError()), since(now, task.GetLastError().GetTime()))
	sh.line("Metadata", pairs(task.GetMetadata()))
	sh.lineIf(len(task.GetPayload()) > 0, "Payload", "%s", bytesText(len(task.GetPayload())))
	sh.lineIf(len(task.GetMemo()) > 0, "Memo", "%s", bytesText(len(task.GetMemo())))
	sh.lineIf(len(task.GetCursor()) > 0, "Cursor", "%s", bytesText(len(task.GetCursor())))
	sh.write(out)
	if len(task.GetHistory()) > 0 {
		fmt.Fprintln(out)
		writeAttempts(out, now, task.GetHistory())
	}
}

func stateText(task *pb.Task) string {
	state := word(task.GetState(), "TASK_STATE_")
	holder := task.GetHolder()
	if holder == nil {
		return state
	}
	text := fmt.Sprintf("%s by %s for %s, %s (fence %d)", state, holder.GetCollectorId(), span(holder.GetAge().AsDuration()),
		leftText(holder.GetRemaining().AsDuration()), holder.GetFence())
	if task.GetCancelRequested() {
		text += "; a cancel is asked for: it ends CANCELED with its lease"
	}
	return text
}

// cancellationText says who canceled the task, or asked for that.
func cancellationText(now time.Time, task *pb.Task) string {
	c := task.GetCancellation()
	text := fmt.Sprintf("by %s, %s", c.GetBy(), since(now, c.GetTime()))
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

// placeText says where the task came from and how it counts.
func placeText(task *pb.Task) string {
	kind := "submitted"
	switch {
	case task.GetRecurring():
		kind = "seed"
	case task.GetDepth() > 0:
		kind = fmt.Sprintf("discovered at depth %d", task.GetDepth())
	}
	if relation := task.GetRelation(); relation > pb.Relation_RELATION_LINK {
		kind += " as " + word(relation, "RELATION_")
	}
	text := phrases{kind, fmt.Sprintf("priority %d", task.GetPriority())}
	text.addIf(task.GetRun() != 0, "in the pass of %s", time.UnixMilli(task.GetRun()).UTC().Format("2006-01-02 15:04:05Z"))
	text.addIf(task.GetKind() != "", "kind %s", task.GetKind())
	return text.text()
}

func writeAttempts(out io.Writer, now time.Time, attempts []*pb.Attempt) {
	t := newTable(">CYCLE", "COLLECTOR", "STARTED", ">TOOK", "RESULT", "DETAIL")
	for _, a := range attempts {
		cycle, started, took, result := count(a.GetCycle()), since(now, a.GetStartTime()), none, "under way"
		if a.GetResult() == pb.AttemptResult_ATTEMPT_RESULT_CANCELED { // no attempt
			cycle, started = none, since(now, a.GetEndTime())
		} else if a.GetEndTime() != nil {
			took = span(a.GetEndTime().AsTime().Sub(a.GetStartTime().AsTime()))
		}
		if a.GetResult() != pb.AttemptResult_ATTEMPT_RESULT_UNSPECIFIED {
			result = word(a.GetResult(), "ATTEMPT_RESULT_")
		}
		var detail phrases
		detail.addIf(a.GetReason() != pb.FailureReason_FAILURE_REASON_UNSPECIFIED, "%s", word(a.GetReason(), "FAILURE_REASON_"))
		detail.addIf(a.GetHttpStatus() != 0, "HTTP %d", a.GetHttpStatus())
		detail.addIf(a.GetMessage() != "", "%s", brief(a.GetMessage(), messageWidth))
		t.row(cycle, or(a.GetCollectorId(), none), started, took, result, detail.text())
	}
	t.write(out, "")
}
