// Package load is what benchmarks have in common: it starts a dispatcher and its Redis as processes, submits tasks, and
// fetches and reports them as collectors do, by plain gRPC calls that every build of Waggle serves.
package load

import (
	"cmp"
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
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	// collectorsPerConn share a connection.
	collectorsPerConn = 4
	// window is how much of one answer a dispatcher may send ahead; fixed, as the collector library has it, since
	// grpc-go sends pings to estimate it otherwise.
	window = 4 << 20
	// wait is how long a fetch waits for tasks.
	wait = 5 * time.Second
	// longLease is long enough that none expires while tasks are worked on.
	longLease = 2 * time.Minute
	// limit is when submitting or working on tasks has failed.
	limit = 10 * time.Minute
)

// Load submits tasks of a workload to a dispatcher and works on them. It checks that each is handed out exactly once.
type Load struct {
	node     *Node
	workload Workload
	session  string
	conns    []*grpc.ClientConn
	reserved []atomic.Int64     // tasks that Work may yet fetch
	held     [][]*pb.TaskReport // by collector: what Fetch got, and Report has not reported

	mu      sync.Mutex  // guards what follows
	given   []time.Time // by a submitted task's number: when it was handed out
	settled int
	outcome *Outcome // of the Work that runs
}

// Run runs f on a new node to which a workload's load is open, and ends both.
func Run(ctx context.Context, cfg Config, w Workload, f func(*Node, *Load) error) (err error) {
	n, err := StartRedis(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if err := n.startDispatcher(ctx, cfg); err != nil {
		return err
	}
	l, err := Open(ctx, n, w)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return f(n, l)
}

// Open connects to the dispatcher of a node and creates the sources and the queue rule of a workload. The caller closes the load.
func Open(ctx context.Context, n *Node, w Workload) (*Load, error) {
	l := &Load{node: n, workload: w, session: uuid.NewString(), held: make([][]*pb.TaskReport, w.Collectors)}
	err := l.connect()
	if err == nil {
		err = l.create(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Load) connect() error {
	perConn := cmp.Or(l.workload.PerConn, collectorsPerConn)
	l.conns = nil
	for range (l.workload.Collectors + perConn - 1) / perConn {
		conn, err := grpc.NewClient(l.node.Address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(4*window))
		if err != nil {
			return fmt.Errorf("dial %s: %w", l.node.Address, err)
		}
		l.conns = append(l.conns, conn)
	}
	return nil
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
	rule := &pb.SetQueueRuleRequest{
		Rule: &pb.QueueRule{Pattern: queuePattern, MinDelay: durationpb.New(0), MaxInFlight: &l.workload.InFlight},
		By:   "bench", Reason: "bench",
	}
	// The answer is not read: older builds number its fields in another way.
	err := l.conn(0).Invoke(ctx, pb.QueueService_SetQueueRule_FullMethodName, rule, new(emptypb.Empty), grpc.WaitForReady(true))
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

// Outcome is what producers or collectors did.
type Outcome struct {
	// Took is the time from the first call to the last answer, Used the processor time meanwhile.
	Took time.Duration
	Used CPU
	// Fetches is how long each fetch took that handed something out, Reports how long each ReportTask took.
	Fetches, Reports []time.Duration
}

// Work fetches and reports n tasks.
func (l *Load) Work(ctx context.Context, n int) (*Outcome, error) {
	return l.fetch(ctx, n, false)
}

// Fetch fetches n tasks, and does not report them.
func (l *Load) Fetch(ctx context.Context, n int) (*Outcome, error) {
	return l.fetch(ctx, n, true)
}

func (l *Load) fetch(ctx context.Context, n int, hold bool) (*Outcome, error) {
	l.reserved = make([]atomic.Int64, 1)
	if l.workload.Narrowed {
		l.reserved = make([]atomic.Int64, l.workload.Collectors)
	}
	for number := range n {
		l.reserved[l.workload.queueOf(number)%l.workload.Sources%len(l.reserved)].Add(1)
	}
	return l.measure(ctx, func(ctx context.Context, c int) error { return l.collect(ctx, c, hold) })
}

// measure runs all collectors and measures what they did.
func (l *Load) measure(ctx context.Context, collect func(context.Context, int) error) (*Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	o := &Outcome{}
	l.mu.Lock()
	l.outcome = o
	l.mu.Unlock()
	used, err := l.node.Used(func() error {
		all, ctx := errgroup.WithContext(ctx)
		began := time.Now()
		for c := range l.workload.Collectors {
			all.Go(func() error { return collect(ctx, c) })
		}
		err := all.Wait()
		o.Took = time.Since(began)
		return err
	})
	o.Used = used
	return o, err
}

// reserve takes at most n of the tasks that a collector may yet fetch. Without it the last fetches would wait for nothing.
func (l *Load) reserve(c, n int) int {
	of := &l.reserved[c%len(l.reserved)]
	for {
		left := of.Load()
		n = min(n, int(left))
		if n == 0 || of.CompareAndSwap(left, left-int64(n)) {
			return n
		}
	}
}

func collectorID(c int) string { return fmt.Sprintf("bench-%d", c) }

// pause waits.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// collect is one collector: it fetches, works in no time, reports unless it holds what it fetched, and fetches again.
func (l *Load) collect(ctx context.Context, c int, hold bool) error {
	client, id, lease := pb.NewDispatchServiceClient(l.conn(c)), collectorID(c), cmp.Or(l.workload.Lease, longLease)
	var sources []string
	if l.workload.Narrowed {
		sources = []string{sourceID(c)}
	}
	if l.workload.Streamed && !hold {
		return l.stream(ctx, c, lease, sources)
	}
	var carried []*pb.TaskReport
	for n := l.reserve(c, l.workload.Batch); n > 0; n = l.reserve(c, l.workload.Batch) {
		sent := time.Now()
		reply, err := client.FetchTask(ctx, &pb.FetchTaskRequest{
			CollectorId: id, Session: l.session, ClientToken: uuid.NewString(), MaxTasks: int32(n), Sources: sources,
			Wait: durationpb.New(wait), LeaseDuration: durationpb.New(lease), Reports: carried,
		})
		if err != nil {
			return fmt.Errorf("fetch: %w", err)
		}
		reports, err := l.receive(reply.GetLeasedTasks(), n, sent)
		if err != nil {
			return err
		}
		if err := l.settle(reply.GetReportResults(), len(carried)); err != nil {
			return err
		}
		l.reserved[c%len(l.reserved)].Add(int64(n - len(reports)))
		switch {
		case hold:
			l.held[c] = append(l.held[c], reports...)
		case l.workload.Carried:
			carried = reports
		default:
			if err := errors.Join(l.report(ctx, client, id, reports), pause(ctx, l.workload.Pause)); err != nil {
				return err
			}
		}
	}
	return l.report(ctx, client, id, carried)
}

// receive notes what a fetch handed out that was sent at some time, and makes the reports.
func (l *Load) receive(tasks []*pb.LeasedTask, asked int, sent time.Time) ([]*pb.TaskReport, error) {
	now := time.Now()
	if len(tasks) > asked {
		return nil, fmt.Errorf("a fetch of %d tasks got %d", asked, len(tasks))
	}
	reports := make([]*pb.TaskReport, len(tasks))
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(tasks) > 0 {
		l.outcome.Fetches = append(l.outcome.Fetches, now.Sub(sent))
	}
	for i, t := range tasks {
		number := numberOf(t.GetTask())
		switch {
		case number < 0 || number >= len(l.given):
			return nil, fmt.Errorf("task %s was never submitted", t.GetTask().GetId())
		case !l.given[number].IsZero():
			return nil, fmt.Errorf("task %s was handed out twice", t.GetTask().GetId())
		}
		l.given[number] = now
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
	sent := time.Now()
	reply, err := client.ReportTask(ctx, &pb.ReportTaskRequest{CollectorId: id, Session: l.session, Reports: reports})
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	l.mu.Lock()
	l.outcome.Reports = append(l.outcome.Reports, time.Since(sent))
	l.mu.Unlock()
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

// Wake submits n tasks, one each pace, while the collectors wait for them, and returns how long after that each was
// handed out.
func (l *Load) Wake(ctx context.Context, n int, pace time.Duration) ([]time.Duration, error) {
	l.mu.Lock()
	first := len(l.given)
	l.mu.Unlock()
	sent := make([]time.Time, n)
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error {
		_, err := l.Work(ctx, n)
		return err
	})
	both.Go(func() error {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for i := range sent {
			<-tick.C
			sent[i] = time.Now()
			if err := l.submit(ctx, 1, 1); err != nil {
				return err
			}
		}
		return nil
	})
	if err := both.Wait(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	lags := make([]time.Duration, n)
	for i := range lags {
		lags[i] = l.given[first+i].Sub(sent[i])
	}
	return lags, nil
}

// EmptyCalls makes calls that do nothing, one at a time for each collector, and returns how long that took.
func (l *Load) EmptyCalls(ctx context.Context, calls int) (time.Duration, error) {
	var next atomic.Int64
	all, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for c := range l.workload.Collectors {
		all.Go(func() error {
			client := healthpb.NewHealthClient(l.conn(c))
			for next.Add(1) <= int64(calls) {
				if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
					return fmt.Errorf("empty call: %w", err)
				}
			}
			return nil
		})
	}
	err := all.Wait()
	return time.Since(began), err
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
	if len(reply.GetLeasedTasks()) > 0 || reply.GetEmptyReason() != pb.EmptyReason_EMPTY_REASON_NO_TASKS || l.settled != len(l.given) {
		return fmt.Errorf("%d tasks of %d were settled; the next fetch got %d (%s)",
			l.settled, len(l.given), len(reply.GetLeasedTasks()), reply.GetEmptyReason())
	}
	return nil // receive has refused what was handed out twice, so each was handed out once
}
