package task

import (
	"context"
	"maps"
	"slices"
	"strings"

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

// taskList lists tasks. The API lists those of one source or queue: of several, those are asked one after the other whose
// counts are not zero.
type taskList struct {
	where  pb.Filter
	states []pb.TaskState
	limit  int

	client *client.Client
	found  []*pb.Task
}

func newTaskList(o *client.Options) *cobra.Command {
	l := &taskList{}
	var states []string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tasks that are not DONE",
		Long: `List tasks that are not DONE: of a source, of a queue, or of several. With --suffix only
those that wait or are leased are listed, as queues are forgotten when they hold neither.`,
		Example: `  waggle task list --source news.example
  waggle task list --queue example.com --state leased
  waggle task list --all --state dead --limit 0`,
	}
	registerWhere(cmd.Flags(), &l.where, "")
	cmd.Flags().StringSliceVar(&states, "state", nil, "only tasks in this `state`: scheduled, ready, leased, dead, canceled")
	return o.List(cmd, func(ctx context.Context, c *client.Client, limit int) (_ proto.Message, more bool, _ func(), err error) {
		if l.states, err = listedStates(states); err == nil {
			err = l.check()
		}
		if err != nil {
			return nil, false, nil, err
		}
		l.client, l.limit = c, limit
		more, err = l.read(ctx)
		if err == nil && len(l.found) == 0 {
			err = noteUnmatched(ctx, c, &l.where)
		}
		return &pb.ListTasksResponse{Tasks: l.found}, more, func() { writeTasks(c.Out, c.Now, l.found) }, err
	})
}

// listedStates reads names of states in which tasks can be listed.
func listedStates(names []string) (states []pb.TaskState, err error) {
	listed := maps.Clone(pb.TaskState_value)
	delete(listed, pb.TaskState_TASK_STATE_DONE.String())
	for _, name := range names {
		if strings.EqualFold(name, "done") {
			return nil, cli.Usagef("--state done: DONE tasks are not listed; `waggle task get --source ID --url URL` finds one")
		}
	}
	return cli.Enums[pb.TaskState]("--state", names, "TASK_STATE_", listed)
}

// waiting are the states of tasks by which queues are known.
func waiting() []pb.TaskState {
	return []pb.TaskState{pb.TaskState_TASK_STATE_SCHEDULED, pb.TaskState_TASK_STATE_READY, pb.TaskState_TASK_STATE_LEASED}
}

// ofSources reports whether flags say which sources, other than by the id of one.
func (l *taskList) ofSources() bool {
	return l.where.GetSourceIdPrefix() != "" || l.where.GetPool() != "" || len(l.where.GetLabels()) > 0 || l.where.GetAll()
}

func (l *taskList) check() error {
	f := &l.where
	one := f.GetSourceId() != "" || f.GetQueue() != "" || f.GetQueueSuffix() != ""
	switch {
	case !one && !l.ofSources():
		return cli.Usagef("tasks of what? say --source, --queue, --prefix, --suffix, --pool, --label or --all")
	case f.GetAll() && (one || f.GetSourceIdPrefix() != "" || f.GetPool() != "" || len(f.GetLabels()) > 0):
		return cli.Usagef("--all lists the tasks of all sources; the other flags say of which: leave it or them out")
	case f.GetSourceId() != "" && l.ofSources():
		return cli.Usagef("--source names one source; leave --prefix, --pool and --label out")
	case f.GetQueueSuffix() == "":
	case f.GetQueue() != "" || l.ofSources():
		return cli.Usagef("--suffix lists queue by queue; of the other flags only --source and --state go with it")
	case len(l.states) == 0:
		l.states = waiting()
	case slices.ContainsFunc(l.states, func(s pb.TaskState) bool { return !slices.Contains(waiting(), s) }):
		return cli.Usagef("--suffix lists tasks that wait or are leased; dead and canceled ones are listed by --queue, --source, --prefix or --all")
	}
	return nil
}

// read lists what is wanted; more is true when some was left out.
func (l *taskList) read(ctx context.Context) (more bool, err error) {
	switch {
	case l.ofSources():
		return eachOf(sourcesOf(ctx, l.client, &l.where), (*pb.ListSourcesResponse).GetSources, func(s *pb.Source) (bool, error) {
			if !l.holds(s.GetStatus().GetTasks()) {
				return false, nil
			}
			return l.readOne(ctx, s.GetId(), l.where.GetQueue())
		})
	case l.where.GetQueueSuffix() != "":
		return eachOf(func(size int32, token string) (*pb.ListQueuesResponse, error) {
			return l.client.Queues.ListQueues(ctx, &pb.ListQueuesRequest{Suffix: l.where.GetQueueSuffix(), PageSize: size, PageToken: token})
		}, (*pb.ListQueuesResponse).GetQueues, func(q *pb.Queue) (bool, error) {
			if q.GetWaiting()+q.GetLeased() == 0 {
				return false, nil
			}
			return l.readOne(ctx, l.where.GetSourceId(), q.GetName())
		})
	}
	return l.readOne(ctx, l.where.GetSourceId(), l.where.GetQueue())
}

// eachOf goes over the pages of places until one has more tasks than the list may take.
func eachOf[P client.Page, T any](ask func(size int32, token string) (P, error), places func(P) []T, read func(T) (bool, error)) (more bool, err error) {
	for token := ""; ; {
		reply, err := ask(client.PageSize, token)
		if err != nil {
			return false, err
		}
		for _, place := range places(reply) {
			if more, err := read(place); err != nil || more {
				return more, err
			}
		}
		if token = reply.GetNextPageToken(); token == "" {
			return false, nil
		}
	}
}

// holds reports whether a source has tasks to list. What is scheduled may be ready by now.
func (l *taskList) holds(c *pb.TaskCounts) bool {
	counts := map[pb.TaskState]int64{
		pb.TaskState_TASK_STATE_SCHEDULED: c.GetScheduled(), pb.TaskState_TASK_STATE_READY: c.GetScheduled() + c.GetReady(),
		pb.TaskState_TASK_STATE_LEASED: c.GetLeased(), pb.TaskState_TASK_STATE_DEAD: c.GetDead(), pb.TaskState_TASK_STATE_CANCELED: c.GetCanceled(),
	}
	for state, n := range counts {
		if n > 0 && (len(l.states) == 0 || slices.Contains(l.states, state)) {
			return true
		}
	}
	return false
}

// readOne lists the tasks of a source, a queue or both, as far as the list may grow.
func (l *taskList) readOne(ctx context.Context, source, queue string) (more bool, err error) {
	ask := func(size int32, token string) (*pb.ListTasksResponse, error) {
		reply, err := l.client.Tasks.ListTasks(ctx, &pb.ListTasksRequest{SourceId: source, Queue: queue, States: l.states, PageSize: size, PageToken: token})
		if l.ofSources() && status.Code(err) == codes.NotFound {
			return nil, nil //nolint:nilnil // it was deleted since it was listed: a reply without tasks
		}
		return reply, err
	}
	if l.limit > 0 && len(l.found) == l.limit {
		return client.HasAny(ask, (*pb.ListTasksResponse).GetTasks)
	}
	tasks, more, err := client.ReadPages(max(l.limit-len(l.found), 0), ask, (*pb.ListTasksResponse).GetTasks)
	l.found = append(l.found, tasks...)
	return more, err
}

// noteUnmatched notes, if no task matches a filter, by which of its names nothing is known: a misspelled one matches nothing
// either.
func noteUnmatched(ctx context.Context, c *client.Client, f *pb.Filter) (err error) {
	known := true
	if f.GetQueue() != "" {
		err = noteEmptyQueue(ctx, c, f.GetQueue())
	}
	if f.GetQueueSuffix() != "" && err == nil {
		known, err = client.HasAny(func(size int32, token string) (*pb.ListQueuesResponse, error) {
			return c.Queues.ListQueues(ctx, &pb.ListQueuesRequest{Suffix: f.GetQueueSuffix(), PageSize: size, PageToken: token})
		}, (*pb.ListQueuesResponse).GetQueues)
		if err == nil && !known {
			c.Note("no queue %s, nor one below it, holds a task that waits or is leased", human.Plain(f.GetQueueSuffix()))
		}
	}
	var of human.Phrases
	of.AddIf(f.GetSourceIdPrefix() != "", "an id that begins with %s", f.GetSourceIdPrefix())
	of.AddIf(f.GetPool() != "", "the pool %s", f.GetPool())
	of.AddIf(len(f.GetLabels()) > 0, "the label %s", human.Pairs(f.GetLabels()))
	if len(of) > 0 && err == nil {
		if known, err = client.HasAny(sourcesOf(ctx, c, f), (*pb.ListSourcesResponse).GetSources); err == nil && !known {
			c.Note("no source has %s", human.Plain(strings.Join(of, " and ")))
		}
	}
	if f.GetCollectorId() != "" && err == nil {
		known, err = client.HasAny(func(size int32, token string) (*pb.ListCollectorsResponse, error) {
			return c.Admin.ListCollectors(ctx, &pb.ListCollectorsRequest{PageSize: client.PageSize, PageToken: token})
		}, func(p *pb.ListCollectorsResponse) []*pb.Collector {
			return slices.DeleteFunc(p.GetCollectors(), func(k *pb.Collector) bool { return k.GetInfo().GetId() != f.GetCollectorId() })
		})
		if err == nil && !known {
			c.Note("no collector %s has been heard of in the last 24 h", human.Plain(f.GetCollectorId()))
		}
	}
	return err
}

// noteEmptyQueue notes of a queue without tasks that nothing is known of it, or where the tasks of its host are.
func noteEmptyQueue(ctx context.Context, c *client.Client, name string) error {
	reply, err := c.Queues.GetQueue(ctx, &pb.GetQueueRequest{Name: name})
	if err != nil {
		return err
	}
	switch queue := reply.GetQueue(); {
	case queue.GetMapsTo() != "":
		c.Note("new tasks of this host go to the queue %s, by a rule", human.Plain(queue.GetMapsTo()))
	case queue.GetUnknown():
		c.Note("%s", describe.UnknownQueue(name))
	}
	return nil
}

// sourcesOf reads the sources that a filter matches.
func sourcesOf(ctx context.Context, c *client.Client, f *pb.Filter) func(size int32, token string) (*pb.ListSourcesResponse, error) {
	return func(size int32, token string) (*pb.ListSourcesResponse, error) {
		return c.Sources.ListSources(ctx, &pb.ListSourcesRequest{
			IdPrefix: f.GetSourceIdPrefix(), Pool: f.GetPool(), Labels: f.GetLabels(), PageSize: size, PageToken: token,
		})
	}
}
