package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	payloadBytes = 200
	// workLease is long enough that no lease runs out while throughput is measured.
	workLease = 2 * time.Minute
	// pollWait is how long a fetch waits for tasks, after which its collector notices the end of the job.
	pollWait = 100 * time.Millisecond
)

// submit submits the tasks of the job from as many producers as it has
// collectors.
func (g *load) submit(ctx context.Context, j *job) (*outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, j.Limit)
	defer cancel()
	var t tally
	began := time.Now()
	err := g.produce(ctx, j, &t, j.Collectors, t.add)
	return t.outcome(began), err
}

// produce submits from n producers, together at the job's rate; done is told how many were
// taken.
func (g *load) produce(ctx context.Context, j *job, t *tally, n int, done func(int)) error {
	var next atomic.Int64
	var all errgroup.Group
	payload := make([]byte, payloadBytes)
	pace := rate.NewLimiter(rate.Inf, 0)
	if j.Rate > 0 {
		pace = rate.NewLimiter(rate.Limit(j.Rate), j.Batch)
	}
	for p := range n {
		all.Go(func() error {
			client := pb.NewTaskServiceClient(g.conns[p%len(g.conns)])
			// Calls are over when the next is made: all of a producer's are made of the same items.
			items := submitItems(j, payload)
			for {
				from := int(next.Add(int64(j.Batch))) - j.Batch
				to := min(from+j.Batch, j.Tasks)
				if from >= to {
					return nil
				}
				if err := pace.WaitN(ctx, to-from); err != nil {
					return fmt.Errorf("wait to submit at %d tasks a second: %w", j.Rate, err)
				}
				request := &pb.SubmitTasksRequest{Items: items[:to-from]}
				for i, item := range request.Items {
					item.Url = urlOf(j, j.First+from+i)
				}
				err := again(ctx, t, func() error {
					reply, err := client.SubmitTasks(ctx, request)
					return errors.Join(err, refusedSubmit(reply))
				})
				if err != nil {
					return fmt.Errorf("submit: %w", err)
				}
				done(to - from)
			}
		})
	}
	return all.Wait()
}

// submitItems are items for a call, which have no URL yet.
func submitItems(j *job, payload []byte) []*pb.SubmitItem {
	items := make([]*pb.SubmitItem, j.Batch)
	for i := range items {
		items[i] = &pb.SubmitItem{SourceId: sourceOf(j), Payload: payload}
	}
	return items
}

func refusedSubmit(reply *pb.SubmitTasksResponse) error {
	for _, r := range reply.GetResults() {
		// A call that was made again may have taken effect before.
		if c := r.GetCode(); c != pb.SubmitCode_SUBMIT_CODE_CREATED && c != pb.SubmitCode_SUBMIT_CODE_EXISTS {
			return fmt.Errorf("a task was answered %s: %s", c, r.GetMessage())
		}
	}
	return nil
}

// drain fetches and reports until as many tasks as the job has are done.
func (g *load) drain(ctx context.Context, j *job) (*outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, j.Limit)
	defer cancel()
	var t tally
	began := time.Now()
	err := g.consume(ctx, j, &t)
	return t.outcome(began), err
}

// life submits as submit does and drains as drain does, both at once.
func (g *load) life(ctx context.Context, j *job) (*outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, j.Limit)
	defer cancel()
	var t tally
	var both errgroup.Group
	began := time.Now()
	both.Go(func() error { return g.produce(ctx, j, &t, j.Collectors, func(int) {}) })
	both.Go(func() error { return g.consume(ctx, j, &t) })
	err := both.Wait()
	return t.outcome(began), err
}

// consume lets the collectors of the job work until its tasks are done.
func (g *load) consume(ctx context.Context, j *job, t *tally) error {
	var all errgroup.Group
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	for c := range j.Collectors {
		all.Go(func() error {
			err := g.collect(running, j, t, c)
			if err != nil {
				cancel()
			}
			return err
		})
	}
	err := all.Wait()
	if err == nil && t.reached() < j.Tasks {
		err = errors.New("the collectors have ended")
	}
	if err != nil {
		return fmt.Errorf("%d of %d tasks were done: %w", t.reached(), j.Tasks, err)
	}
	return nil
}

// collect is one collector: it fetches a batch, reports it, fetches the next.
// Reports are carried in the next fetch when the job says so. It ends when others ask
// for all that is left: a fetch for nothing would hold what it carries until its wait
// is over.
func (g *load) collect(ctx context.Context, j *job, t *tally, c int) error {
	client := g.dispatch(c)
	id := fmt.Sprintf("bench-%s-%d", j.Series, c)
	var carried []*pb.TaskReport
	for n := t.ask(j.Batch, j.Tasks); n > 0; n = t.ask(j.Batch, j.Tasks) {
		request := g.fetchRequest(j, id)
		request.MaxTasks, request.Reports = int32(n), carried
		var reply *pb.FetchTaskResponse
		err := again(ctx, t, func() (err error) {
			reply, err = client.FetchTask(ctx, request)
			return err
		})
		if err != nil {
			return fmt.Errorf("fetch: %w", err)
		}
		if err := reported(t, reply.GetReportResults(), len(carried)); err != nil {
			return err
		}
		carried = reportsOf(reply)
		t.asked.Add(int64(len(carried) - n))
		if len(carried) == 0 || j.Carry {
			continue
		}
		if err := g.send(ctx, client, t, id, carried); err != nil {
			return err
		}
		carried = nil
	}
	if len(carried) == 0 {
		return nil
	}
	return g.send(ctx, client, t, id, carried)
}

func (g *load) fetchRequest(j *job, id string) *pb.FetchTaskRequest {
	return &pb.FetchTaskRequest{
		CollectorId: id, Session: g.session, ClientToken: uuid.NewString(), Pools: []string{j.Series},
		MaxTasks: int32(j.Batch), Wait: durationpb.New(pollWait), LeaseDuration: durationpb.New(workLease),
	}
}

func reportsOf(reply *pb.FetchTaskResponse) []*pb.TaskReport {
	var reports []*pb.TaskReport
	for _, lt := range reply.GetLeasedTasks() {
		reports = append(reports, &pb.TaskReport{
			TaskId: lt.GetLease().GetTaskId(), LeaseToken: lt.GetLease().GetLeaseToken(),
			Outcome: &pb.Outcome{Result: &pb.Outcome_Succeeded{Succeeded: &pb.Succeeded{HttpStatus: 200}}},
		})
	}
	return reports
}

// send reports in a call of its own.
func (g *load) send(ctx context.Context, client pb.DispatchServiceClient, t *tally, id string, reports []*pb.TaskReport) error {
	var reply *pb.ReportTaskResponse
	err := again(ctx, t, func() (err error) {
		reply, err = client.ReportTask(ctx, &pb.ReportTaskRequest{CollectorId: id, Session: g.session, Reports: reports})
		return err
	})
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return reported(t, reply.GetResults(), len(reports))
}

// reported counts reports.
func reported(t *tally, results []*pb.ReportResult, want int) error {
	if len(results) != want {
		return fmt.Errorf("%d reports got %d results", want, len(results))
	}
	if want == 0 {
		return nil
	}
	for _, r := range results {
		if c := r.GetCode(); c != pb.ReportCode_REPORT_CODE_OK && c != pb.ReportCode_REPORT_CODE_ALREADY_REPORTED {
			return fmt.Errorf("a report was answered %s", c)
		}
	}
	t.add(want)
	return nil
}

// canceled reports whether a call ended because its caller did.
func canceled(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (status.Code(err) == codes.Canceled || status.Code(err) == codes.DeadlineExceeded)
}
