package main

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// taskList lists tasks. The API lists those of one source or queue: of several, one after the
// other is asked, which their counts tell to have some.
type taskList struct {
	where  pb.Filter
	states []pb.TaskState
	limit  int

	client *client
	found  pb.ListTasksResponse
}

func newTaskList(o *clientOptions) *cobra.Command {
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
		Args: exactly(),
	}
	registerWhere(cmd.Flags(), &l.where, "")
	cmd.Flags().StringSliceVar(&states, "state", nil, "only tasks in this `state`: scheduled, ready, leased, dead, canceled")
	limit := limitFlag(cmd)
	cmd.RunE = o.call(func(ctx context.Context, c *client, _ []string) error {
		if err := checkLimit(*limit); err != nil {
			return err
		}
		var err error
		if l.states, err = listedStates(states); err != nil {
			return err
		}
		if err := l.check(); err != nil {
			return err
		}
		l.client, l.limit = c, *limit
		more, err := l.read(ctx)
		if err != nil {
			return err
		}
		c.noteMore(more, *limit)
		if len(l.found.GetTasks()) == 0 {
			if err := c.noteUnmatched(ctx, &l.where); err != nil {
				return err
			}
		}
		return c.show(&l.found, func() { writeTasks(c.out, c.now, l.found.GetTasks()) })
	})
	return cmd
}

// listedStates reads names of states in which tasks can be listed.
func listedStates(names []string) (states []pb.TaskState, err error) {
	listed := maps.Clone(pb.TaskState_value)
	delete(listed, pb.TaskState_TASK_STATE_DONE.String())
	for _, name := range names {
		if strings.EqualFold(name, "done") {
			return nil, usagef(nil, "--state done: DONE tasks are not listed; `waggle task get --source ID --url URL` finds one")
		}
		value, err := enumValue("--state", name, "TASK_STATE_", listed)
		if err != nil {
			return nil, err
		}
		states = append(states, pb.TaskState(value))
	}
	return states, nil
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
		return usagef(nil, "tasks of what? say --source, --queue, --prefix, --suffix, --pool, --label or --all")
	case f.GetAll() && (one || f.GetSourceIdPrefix() != "" || f.GetPool() != "" || len(f.GetLabels()) > 0):
		return usagef(nil, "--all lists the tasks of all sources; the other flags say of which: leave it or them out")
	case f.GetSourceId() != "" && l.ofSources():
		return usagef(nil, "--source names one source; leave --prefix, --pool and --label out")
	case f.GetQueueSuffix() == "":
	case f.GetQueue() != "" || l.ofSources():
		return usagef(nil, "--suffix lists queue by queue; of the other flags only --source and --state go with it")
	case len(l.states) == 0:
		l.states = waiting()
	case slices.ContainsFunc(l.states, func(s pb.TaskState) bool { return !slices.Contains(waiting(), s) }):
		return usagef(nil, "--suffix lists tasks that wait or are leased; dead and canceled ones are listed by --queue, --source, --prefix or --all")
	}
	return nil
}

// read lists what is wanted; more is true when some was left out.
func (l *taskList) read(ctx context.Context) (more bool, err error) {
	switch {
	case l.ofSources():
		return eachOf(func(size int32, token string) (*pb.ListSourcesResponse, error) {
			return l.client.sources.ListSources(ctx, &pb.ListSourcesRequest{
				IdPrefix: l.where.GetSourceIdPrefix(), Pool: l.where.GetPool(), Labels: l.where.GetLabels(), PageSize: size, PageToken: token,
			})
		}, (*pb.ListSourcesResponse).GetSources, func(s *pb.Source) (bool, error) {
			if !l.holds(s.GetStatus().GetTasks()) {
				return false, nil
			}
			return l.readOne(ctx, s.GetId(), l.where.GetQueue())
		})
	case l.where.GetQueueSuffix() != "":
		return eachOf(func(size int32, token string) (*pb.ListQueuesResponse, error) {
			return l.client.queues.ListQueues(ctx, &pb.ListQueuesRequest{Suffix: l.where.GetQueueSuffix(), PageSize: size, PageToken: token})
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
func eachOf[P page, T any](ask func(size int32, token string) (P, error), places func(P) []T, read func(T) (bool, error)) (more bool, err error) {
	for token := ""; ; {
		reply, err := ask(pageSize, token)
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
	if len(l.states) == 0 {
		return c.GetScheduled()+c.GetReady()+c.GetLeased()+c.GetDead()+c.GetCanceled() > 0
	}
	for _, state := range l.states {
		n := c.GetScheduled()
		switch state {
		case pb.TaskState_TASK_STATE_READY:
			n += c.GetReady()
		case pb.TaskState_TASK_STATE_LEASED:
			n = c.GetLeased()
		case pb.TaskState_TASK_STATE_DEAD:
			n = c.GetDead()
		case pb.TaskState_TASK_STATE_CANCELED:
			n = c.GetCanceled()
		default:
		}
		if n > 0 {
			return true
		}
	}
	return false
}

// readOne lists the tasks of a source, a queue or both, as far as the list may grow.
func (l *taskList) readOne(ctx context.Context, source, queue string) (more bool, err error) {
	ask := func(size int32, token string) (*pb.ListTasksResponse, error) {
		reply, err := l.client.tasks.ListTasks(ctx, &pb.ListTasksRequest{SourceId: source, Queue: queue, States: l.states, PageSize: size, PageToken: token})
		if l.ofSources() && status.Code(err) == codes.NotFound {
			return nil, nil //nolint:nilnil // it was deleted since it was listed: a reply without tasks
		}
		return reply, err
	}
	if l.limit > 0 && len(l.found.GetTasks()) == l.limit {
		return hasAny(ask, func(p *pb.ListTasksResponse) int { return len(p.GetTasks()) })
	}
	return readPages(max(l.limit-len(l.found.GetTasks()), 0), ask, func(p *pb.ListTasksResponse) int {
		l.found.Tasks = append(l.found.Tasks, p.GetTasks()...)
		return len(p.GetTasks())
	})
}
