package task

import (
	"context"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// changeTally is what became of the tasks that a command changes. By a filter they may
// be millions: then those are kept that are shown, and the others counted.
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
		if status.Code(err) == codes.NotFound {
			continue
		}
		if err != nil {
			return err
		}
		t.about[r.GetTaskId()] = reply.GetTask()
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

// write shows each result of a few tasks, of many those that were refused, and how
// many there are of each kind.
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
