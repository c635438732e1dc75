package task

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
	return o.List(cmd, func(ctx context.Context, c *client.Client, part client.Part) error {
		reply, err := listTasks(ctx, c, &where, states, part)
		if err == nil && len(reply.GetTasks()) == 0 {
			err = noteUnmatched(ctx, c, &where)
		}
		return c.ShowList(part, reply, err, func() { writeTasks(c.Out, c.Now, reply.GetTasks()) })
	})
}

// listTasks lists a part of the tasks. The API lists those of one source or queue: of several sources, those are asked one after the
// other whose counts are not zero. Then a token is the source that it is of, and the token of its tasks behind a space.
func listTasks(ctx context.Context, c *client.Client, f *pb.Filter, states []pb.TaskState, part client.Part) (*pb.ListTasksResponse, error) {
	of := func(source string, part client.Part) (*pb.ListTasksResponse, error) {
		request := &pb.ListTasksRequest{Filter: &pb.Filter{SourceId: source, Queue: f.GetQueue(), States: states}}
		return client.ReadPart(ctx, part, c.Tasks.ListTasks, request)
	}
	switch several := client.Wide(f); {
	case !several && f.GetSourceId() == "" && f.GetQueue() == "":
		return nil, cli.Usagef("tasks of what? say --source, --queue, --prefix, --pool, --label or --all")
	case several && f.GetSourceId() != "":
		return nil, cli.Usagef("--source names one source; leave --prefix, --pool, --label and --all out")
	case !several:
		return of(f.GetSourceId(), part)
	}
	all := &pb.ListTasksResponse{}
	first, token, _ := strings.Cut(part.Token, " ")
	err := client.EachPage(ctx, c.Sources.ListSources, sourcesOf(f), func(page *pb.ListSourcesResponse) (bool, error) {
		for _, s := range page.GetSources() {
			if s.GetId() < first || !holdsTasks(s.GetStatus().GetTasks(), states) {
				continue
			}
			rest, full := client.Part{}, part.Limit > 0 && len(all.GetTasks()) == part.Limit
			if part.Limit > 0 {
				rest.Limit = max(part.Limit-len(all.GetTasks()), 1) // of a list that is full, one shows that more follow
			}
			if s.GetId() == first {
				rest.Token = token
			}
			reply, err := of(s.GetId(), rest)
			switch {
			case status.Code(err) == codes.NotFound: // it may be deleted by now
				continue
			case err != nil:
				return false, err
			case full && len(reply.GetTasks()) > 0:
				all.NextPageToken = s.GetId()
				return false, nil
			case !full:
				all.Tasks = append(all.Tasks, reply.GetTasks()...)
			}
			if next := reply.GetNextPageToken(); next != "" && !full {
				all.NextPageToken = s.GetId() + " " + next
				return false, nil
			}
		}
		return true, nil
	})
	return all, err
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
		reply, err := client.ReadPart(ctx, client.Part{Limit: 1}, c.Sources.ListSources, sourcesOf(f))
		if err == nil && len(reply.GetSources()) == 0 {
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
