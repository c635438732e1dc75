// Package load measures a dispatcher from outside: it starts one with its Redis, submits tasks, and fetches and reports
// them as collectors do, by plain gRPC calls that every build of Waggle serves. It needs Linux, for /proc.
package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	// collectorsPerConn share a connection.
	collectorsPerConn = 4
	// window is how much of one answer a dispatcher may send ahead; fixed, as the collector library has it, since
	// grpc-go sends pings to estimate it otherwise.
	window = 4 << 20
	// producers submit at once.
	producers = 16
	// wait is how long a fetch waits for tasks.
	wait = 5 * time.Second
	// lease is long enough that none expires while tasks are worked on.
	lease = 2 * time.Minute
	// limit is when submitting or working on tasks has failed.
	limit = 10 * time.Minute
)

// Load submits tasks of a workload to a dispatcher and works on them. It checks that each is handed out exactly once.
type Load struct {
	workload Workload
	session  string
	conns    []*grpc.ClientConn
	reserved atomic.Int64 // tasks that Work may yet fetch

	mu        sync.Mutex // guards what follows
	submitted int
	given     []bool // by number: handed out
	settled   int
	fetches   []time.Duration
}

// Open connects to a dispatcher and creates the sources and the queue rule of a workload. The caller closes the load.
func Open(ctx context.Context, address string, w Workload) (*Load, error) {
	l := &Load{workload: w, session: uuid.NewString()}
	for range (w.Collectors + collectorsPerConn - 1) / collectorsPerConn {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(4*window))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("dial %s: %w", address, err), l.Close())
		}
		l.conns = append(l.conns, conn)
	}
	if err := l.create(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Close ends the connections.
func (l *Load) Close() error {
	var err error
	for _, conn := range l.conns {
		err = errors.Join(err, conn.Close())
	}
	return err
}

func (l *Load) conn(i int) *grpc.ClientConn { return l.conns[i%len(l.conns)] }

func (l *Load) create(ctx context.Context) error {
	_, err := pb.NewQueueServiceClient(l.conn(0)).SetQueueRule(ctx, &pb.SetQueueRuleRequest{
		Rule: &pb.QueueRule{Pattern: queuePattern, MinDelay: durationpb.New(0), MaxInFlight: &l.workload.InFlight},
		By:   "bench", Reason: "bench",
	}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("set the queue rule: %w", err)
	}
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(producers)
	for i := range l.workload.Sources {
		all.Go(func() error {
			_, err := pb.NewSourceServiceClient(l.conn(i)).CreateSource(ctx, &pb.CreateSourceRequest{Spec: &pb.SourceSpec{Id: sourceID(i)}})
			if err != nil {
				return fmt.Errorf("create source %s: %w", sourceID(i), err)
			}
			return nil
		})
	}
	return all.Wait()
}

// Submit submits n new tasks, perCall at a time, and returns how long that took.
func (l *Load) Submit(ctx context.Context, n, perCall int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	l.mu.Lock()
	first := l.submitted
	l.submitted += n
	l.given = append(l.given, make([]bool, n)...)
	l.mu.Unlock()
	var next atomic.Int64
	all, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for p := range producers {
		all.Go(func() error {
			client := pb.NewTaskServiceClient(l.conn(p))
			for from := int(next.Add(int64(perCall))) - perCall; from < n; from = int(next.Add(int64(perCall))) - perCall {
				items := make([]*pb.SubmitItem, min(perCall, n-from))
				for i := range items {
					items[i] = l.workload.item(first + from + i)
				}
				reply, err := client.SubmitTasks(ctx, &pb.SubmitTasksRequest{Items: items})
				if err != nil {
					return fmt.Errorf("submit: %w", err)
				}
				if err := created(reply.GetResults(), len(items)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := all.Wait()
	return time.Since(began), err
}

func created(results []*pb.SubmitResult, want int) error {
	if len(results) != want {
		return fmt.Errorf("%d tasks got %d results", want, len(results))
	}
	for _, r := range results {
		if r.GetCode() != pb.SubmitCode_SUBMIT_CODE_CREATED {
			return fmt.Errorf("a new task was answered %s: %s", r.GetCode(), r.GetMessage())
		}
	}
	return nil
}

// Outcome is what Work did.
type Outcome struct {
	// Took is the time from the first call to the last answer.
	Took time.Duration
	// Fetches is how long each fetch took that handed something out.
	Fetches []time.Duration
}

// Work fetches and reports n tasks.
func (l *Load) Work(ctx context.Context, n int) (*Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	l.mu.Lock()
	want := l.settled + n
	l.fetches = nil
	l.mu.Unlock()
	l.reserved.Store(int64(n))
	all, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for c := range l.workload.Collectors {
		all.Go(func() error { return l.collect(ctx, c) })
	}
	err := all.Wait()
	took := time.Since(began)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settled != want || err != nil {
		return nil, fmt.Errorf("%d tasks were settled, not %d: %w", l.settled, want, errors.Join(err, ctx.Err()))
	}
	return &Outcome{Took: took, Fetches: l.fetches}, nil
}

// reserve takes at most n of the tasks that Work may yet fetch. Without it the last fetches would wait for nothing.
func (l *Load) reserve(n int) int {
	for {
		left := l.reserved.Load()
		n = min(n, int(left))
		if n == 0 || l.reserved.CompareAndSwap(left, left-int64(n)) {
			return n
		}
	}
}

// collect is one collector: it fetches, works in no time, reports, and fetches again.
func (l *Load) collect(ctx context.Context, c int) error {
	client, id := pb.NewDispatchServiceClient(l.conn(c)), fmt.Sprintf("bench-%d", c)
	var carried []*pb.TaskReport
	for n := l.reserve(l.workload.Batch); n > 0; n = l.reserve(l.workload.Batch) {
		sent := time.Now()
		reply, err := client.FetchTask(ctx, &pb.FetchTaskRequest{
			CollectorId: id, Session: l.session, ClientToken: uuid.NewString(), MaxTasks: int32(n),
			Wait: durationpb.New(wait), LeaseDuration: durationpb.New(lease), Reports: carried,
		})
		if err != nil {
			return fmt.Errorf("fetch: %w", err)
		}
		took := time.Since(sent)
		if err := l.settle(reply.GetReportResults(), len(carried)); err != nil {
			return err
		}
		reports, err := l.receive(reply.GetLeasedTasks(), n, took)
		if err != nil {
			return err
		}
		l.reserved.Add(int64(n - len(reports)))
		carried = reports
		if !l.workload.Carried {
			if err := l.report(ctx, client, id, reports); err != nil {
				return err
			}
			carried = nil
		}
	}
	return l.report(ctx, client, id, carried)
}

// receive notes what a fetch handed out, and makes the reports.
func (l *Load) receive(tasks []*pb.LeasedTask, asked int, took time.Duration) ([]*pb.TaskReport, error) {
	if len(tasks) > asked {
		return nil, fmt.Errorf("a fetch of %d tasks got %d", asked, len(tasks))
	}
	reports := make([]*pb.TaskReport, len(tasks))
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(tasks) > 0 {
		l.fetches = append(l.fetches, took)
	}
	for i, t := range tasks {
		number := numberOf(t.GetTask())
		switch {
		case number < 0 || number >= len(l.given):
			return nil, fmt.Errorf("task %s was never submitted", t.GetTask().GetId())
		case l.given[number]:
			return nil, fmt.Errorf("task %s was handed out twice", t.GetTask().GetId())
		}
		l.given[number] = true
		reports[i] = &pb.TaskReport{
			TaskId: t.GetLease().GetTaskId(), LeaseToken: t.GetLease().GetLeaseToken(),
			Outcome: &pb.Outcome{Result: &pb.Outcome_Succeeded{Succeeded: &pb.Succeeded{HttpStatus: 200}}},
		}
	}
	return reports, nil
}

// report reports in a call of its own.
func (l *Load) report(ctx context.Context, client pb.DispatchServiceClient, id string, reports []*pb.TaskReport) error {
	if len(reports) == 0 {
		return nil
	}
	reply, err := client.ReportTask(ctx, &pb.ReportTaskRequest{CollectorId: id, Session: l.session, Reports: reports})
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return l.settle(reply.GetResults(), len(reports))
}

// settle counts the results of reports.
func (l *Load) settle(results []*pb.ReportResult, want int) error {
	if len(results) != want {
		return fmt.Errorf("%d reports got %d results", want, len(results))
	}
	for _, r := range results {
		if r.GetCode() != pb.ReportCode_REPORT_CODE_OK || r.GetState() != pb.TaskState_TASK_STATE_DONE {
			return fmt.Errorf("the report of task %s was answered %s, its task is %s", r.GetTaskId(), r.GetCode(), r.GetState())
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settled += want
	return nil
}

// CheckDone fails unless every submitted task was handed out and settled, and the dispatcher has no other.
func (l *Load) CheckDone(ctx context.Context) error {
	reply, err := pb.NewDispatchServiceClient(l.conn(0)).FetchTask(ctx, &pb.FetchTaskRequest{
		CollectorId: "bench-check", Session: l.session, ClientToken: uuid.NewString(), Wait: durationpb.New(0),
	})
	if err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(reply.GetLeasedTasks()) > 0 || reply.GetEmptyReason() != pb.EmptyReason_EMPTY_REASON_NO_TASKS || l.settled != l.submitted {
		return fmt.Errorf("%d tasks of %d were settled; the next fetch got %d (%s)", l.settled, l.submitted, len(reply.GetLeasedTasks()), reply.GetEmptyReason())
	}
	for number, given := range l.given {
		if !given {
			return fmt.Errorf("task %d was never handed out", number)
		}
	}
	return nil
}
