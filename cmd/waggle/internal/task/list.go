package task

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newTaskList(o *client.Options) *cobra.Command {
	var where pb.Filter
	var states []pb.TaskState
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tasks that are not DONE",
		Long:  "List tasks of a source, of a queue, or of several sources. DONE tasks are not listed:\n`waggle task get --source ID --url URL` finds one.",
		Example: `  waggle task list --source news.example
  waggle task list --queue example.com --state leased
  waggle task list --all --state dead --limit 0`,
	}
	client.FilterVars(cmd.Flags(), &where, "tasks", "source", "queue", "prefix", "pool", "label", "all")
	stateVar(cmd.Flags(), &states, pb.TaskState_TASK_STATE_SCHEDULED, pb.TaskState_TASK_STATE_READY, pb.TaskState_TASK_STATE_LEASED,
		pb.TaskState_TASK_STATE_DEAD, pb.TaskState_TASK_STATE_CANCELED)
	return o.List(cmd, func(ctx context.Context, c *client.Client, limit int) (proto.Message, bool, func(), error) {
		tasks, more, err := listTasks(ctx, c, &where, states, limit)
		if err == nil && len(tasks) == 0 {
			err = noteUnmatched(ctx, c, &where)
		}
		return &pb.ListTasksResponse{Tasks: tasks}, more, func() { writeTasks(c.Out, c.Now, tasks) }, err
	})
}

// listTasks lists at most limit tasks, and reports whether more follow. The API lists those of one source or queue: of several
// sources, those are asked one after the other whose counts are not zero.
func listTasks(ctx context.Context, c *client.Client, f *pb.Filter, states []pb.TaskState, limit int) (all []*pb.Task, more bool, err error) {
	one := func(source string) error {
		room := limit
		if limit > 0 {
			room = max(limit-len(all), 1) // of a list that is full, one shows that more follow
		}
		request := &pb.ListTasksRequest{Filter: &pb.Filter{SourceId: source, Queue: f.GetQueue(), States: states}}
		var tasks []*pb.Task
		tasks, more, err = client.ReadPages(ctx, room, c.Tasks.ListTasks, request, (*pb.ListTasksResponse).GetTasks)
		if all = append(all, tasks...); limit > 0 && len(all) > limit {
			all, more = all[:limit], true
		}
		return err
	}
	switch several := client.Wide(f); {
	case !several && f.GetSourceId() == "" && f.GetQueue() == "":
		return nil, false, cli.Usagef("tasks of what? say --source, --queue, --prefix, --pool, --label or --all")
	case several && f.GetSourceId() != "":
		return nil, false, cli.Usagef("--source names one source; leave --prefix, --pool, --label and --all out")
	case !several:
		err = one(f.GetSourceId())
		return all, more, err
	}
	err = client.EachPage(ctx, c.Sources.ListSources, sourcesOf(f), func(page *pb.ListSourcesResponse) (bool, error) {
		for _, s := range page.GetSources() {
			if !holdsTasks(s.GetStatus().GetTasks(), states) {
				continue
			}
			err := one(s.GetId())
			if err != nil && status.Code(err) != codes.NotFound || more { // it may be deleted by now
				return false, err
			}
		}
		return true, nil
	})
	return all, more, err
}

// holdsTasks reports whether a source has tasks in one of the states; none means any. What is scheduled may be ready by now.
func holdsTasks(c *pb.TaskCounts, states []pb.TaskState) bool {
	counts := map[pb.TaskState]int64{
		pb.TaskState_TASK_STATE_SCHEDULED: c.GetScheduled(), pb.TaskState_TASK_STATE_READY: c.GetScheduled() + c.GetReady(),
		pb.TaskState_TASK_STATE_LEASED: c.GetLeased(), pb.TaskState_TASK_STATE_DEAD: c.GetDead(), pb.TaskState_TASK_STATE_CANCELED: c.GetCanceled(),
	}
	for state, n := range counts {
		if n > 0 && (len(states) == 0 || slices.Contains(states, state)) {
			return true
		}
	}
	return false
}

// noteUnmatched notes, if no task matches a filter, whether anything is known by its names: a misspelled one matches nothing
// either.
func noteUnmatched(ctx context.Context, c *client.Client, f *pb.Filter) error {
	if f.GetQueue() != "" {
		reply, err := c.Queues.GetQueue(ctx, &pb.GetQueueRequest{Name: f.GetQueue()})
		if status.Code(err) == codes.PermissionDenied {
			return nil // who is narrowed to some sources sees no queues
		}
		if err != nil {
			return err
		}
		if to := reply.GetQueue().GetMapsTo(); to != "" {
			c.Note("new tasks of this host go to the queue %s, by a rule", human.Plain(to))
		} else if reply.GetQueue().GetUnknown() {
			c.Note("%s", describe.UnknownQueue(f.GetQueue()))
		}
	}
	if client.Wide(f) && !f.GetAll() {
		sources, _, err := client.ReadPages(ctx, 1, c.Sources.ListSources, sourcesOf(f), (*pb.ListSourcesResponse).GetSources)
		if err == nil && len(sources) == 0 {
			c.Note("no source matches --prefix, --pool and --label")
		}
		return err
	}
	return nil
}

// sourcesOf asks for the sources that a filter matches.
func sourcesOf(f *pb.Filter) *pb.ListSourcesRequest {
	return &pb.ListSourcesRequest{Filter: &pb.Filter{SourceIdPrefix: f.GetSourceIdPrefix(), Pool: f.GetPool(), Labels: f.GetLabels()}}
}
