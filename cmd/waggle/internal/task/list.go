package task

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
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
	more   bool // some was left out
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
	return o.List(cmd, func(ctx context.Context, c *client.Client, limit int) (_ proto.Message, _ bool, _ func(), err error) {
		if l.states, err = listedStates(states); err == nil {
			err = l.check()
		}
		if err != nil {
			return nil, false, nil, err
		}
		l.client, l.limit = c, limit
		err = l.read(ctx)
		if err == nil && len(l.found) == 0 {
			err = noteUnmatched(ctx, c, &l.where)
		}
		return &pb.ListTasksResponse{Tasks: l.found}, l.more, func() { writeTasks(c.Out, c.Now, l.found) }, err
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

// read lists what is wanted.
func (l *taskList) read(ctx context.Context) error {
	switch {
	case l.ofSources():
		return client.EachPage(ctx, l.client.Sources.ListSources, sourcesOf(&l.where), func(page *pb.ListSourcesResponse) (bool, error) {
			for _, s := range page.GetSources() {
				if l.holds(s.GetStatus().GetTasks()) {
					if err := l.readOne(ctx, s.GetId(), l.where.GetQueue()); err != nil || l.more {
						return false, err
					}
				}
			}
			return true, nil
		})
	case l.where.GetQueueSuffix() != "":
		request := &pb.ListQueuesRequest{Suffix: l.where.GetQueueSuffix()}
		return client.EachPage(ctx, l.client.Queues.ListQueues, request, func(page *pb.ListQueuesResponse) (bool, error) {
			for _, q := range page.GetQueues() {
				if q.GetWaiting()+q.GetLeased() > 0 {
					if err := l.readOne(ctx, l.where.GetSourceId(), q.GetName()); err != nil || l.more {
						return false, err
					}
				}
			}
			return true, nil
		})
	}
	return l.readOne(ctx, l.where.GetSourceId(), l.where.GetQueue())
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
func (l *taskList) readOne(ctx context.Context, source, queue string) error {
	list := func(ctx context.Context, request *pb.ListTasksRequest, _ ...grpc.CallOption) (*pb.ListTasksResponse, error) {
		reply, err := l.client.Tasks.ListTasks(ctx, request)
		if l.ofSources() && status.Code(err) == codes.NotFound {
			return nil, nil //nolint:nilnil // it was deleted since it was listed: a reply without tasks
		}
		return reply, err
	}
	limit := l.limit
	if limit > 0 {
		limit = max(limit-len(l.found), 1) // of a list that is full, one shows that more follow
	}
	request := &pb.ListTasksRequest{SourceId: source, Queue: queue, States: l.states}
	tasks, more, err := client.ReadPages(ctx, limit, list, request, (*pb.ListTasksResponse).GetTasks)
	if l.found, l.more = append(l.found, tasks...), more; l.limit > 0 && len(l.found) > l.limit {
		l.found, l.more = l.found[:l.limit], true
	}
	return err
}

// noteUnmatched notes, if no task matches a filter, by which of its names nothing is known: a misspelled one matches nothing
// either.
func noteUnmatched(ctx context.Context, c *client.Client, f *pb.Filter) (err error) {
	if f.GetQueue() != "" {
		err = noteEmptyQueue(ctx, c, f.GetQueue())
	}
	if suffix := f.GetQueueSuffix(); suffix != "" && err == nil {
		var queues []*pb.Queue
		queues, _, err = client.ReadPages(ctx, 1, c.Queues.ListQueues, &pb.ListQueuesRequest{Suffix: suffix}, (*pb.ListQueuesResponse).GetQueues)
		if err == nil && len(queues) == 0 {
			c.Note("no queue %s, nor one below it, holds a task that waits or is leased", human.Plain(suffix))
		}
	}
	var of human.Phrases
	of.AddIf(f.GetSourceIdPrefix() != "", "an id that begins with %s", f.GetSourceIdPrefix())
	of.AddIf(f.GetPool() != "", "the pool %s", f.GetPool())
	of.AddIf(len(f.GetLabels()) > 0, "the label %s", human.Pairs(f.GetLabels()))
	if len(of) > 0 && err == nil {
		var sources []*pb.Source
		sources, _, err = client.ReadPages(ctx, 1, c.Sources.ListSources, sourcesOf(f), (*pb.ListSourcesResponse).GetSources)
		if err == nil && len(sources) == 0 {
			c.Note("no source has %s", human.Plain(strings.Join(of, " and ")))
		}
	}
	if id := f.GetCollectorId(); id != "" && err == nil {
		var all []*pb.Collector
		all, _, err = client.ReadPages(ctx, 0, c.Admin.ListCollectors, &pb.ListCollectorsRequest{}, (*pb.ListCollectorsResponse).GetCollectors)
		if err == nil && !slices.ContainsFunc(all, func(k *pb.Collector) bool { return k.GetInfo().GetId() == id }) {
			c.Note("no collector %s has been heard of in the last 24 h", human.Plain(id))
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

// sourcesOf asks for the sources that a filter matches.
func sourcesOf(f *pb.Filter) *pb.ListSourcesRequest {
	return &pb.ListSourcesRequest{IdPrefix: f.GetSourceIdPrefix(), Pool: f.GetPool(), Labels: f.GetLabels()}
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
