package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// What a load generator can be asked to do.
const (
	opCreate  = "create"  // make the source and the queue rule of a series
	opDelete  = "delete"  // and delete them
	opSubmit  = "submit"  // submit tasks
	opDrain   = "drain"   // fetch and report until all are done
	opLife    = "life"    // both at once
	opCalls   = "calls"   // time single fetches and reports
	opWake    = "wake"    // time from submit to delivery at parked collectors
	opBeat    = "beat"    // time heartbeats
	opPark    = "park"    // keep collectors waiting for nothing
	opRequeue = "requeue" // let leases run out, time their next delivery
	opExpire  = "expire"  // let leases run out together, time until all are requeued
	opKeep    = "keep"    // hold leases
	opRenew   = "renew"   // renew what opKeep holds
	opFetch   = "fetch"   // fetch only, keep what was fetched
	opReport  = "report"  // report what opFetch kept
	opFloor   = "floor"   // raw pipelined Redis commands
	opEmpty   = "empty"   // gRPC calls that do nothing
)

// job is one line to a load generator.
type job struct {
	Op      string
	Servers []string
	Redis   string `json:",omitempty"` // opFloor
	// Series names the source, pool and queues, so that one series of a
	// bench does not meet the tasks of another.
	Series     string
	Workload   workload
	First      int // number of the first task to submit
	Tasks      int
	Batch      int
	Collectors int
	// Carry lets a fetch carry the reports of the one before.
	Carry bool
	// Rate bounds the tasks that opLife submits a second; 0: it does not.
	Rate int `json:",omitempty"`
	// Limit is when to give up, or how long to go on.
	Limit time.Duration
}

// outcome is the line that answers a job.
type outcome struct {
	Err     string             `json:",omitempty"`
	Count   int                // tasks, beats or commands, by the job
	Took    time.Duration      // from the first call to the last answer
	Samples map[string][]int64 `json:",omitempty"` // nanoseconds
	Retries int                // calls refused for load and made again
}

// maxSamples bounds what a job remembers.
const maxSamples = 200_000

// Load does jobs as they come in, until in ends or ctx does.
func Load(ctx context.Context, in io.Reader, out io.Writer) error {
	g := &load{session: fmt.Sprintf("%016x", rand.Uint64())}
	defer g.close()
	jobs, outcomes := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var j job
		switch err := jobs.Decode(&j); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read a job: %w", err)
		}
		o, err := g.do(ctx, &j)
		if o == nil {
			o = &outcome{}
		}
		if err != nil {
			o.Err = err.Error()
		}
		if err := outcomes.Encode(o); err != nil {
			return fmt.Errorf("write an outcome: %w", err)
		}
	}
}

// load is a load generator.
type load struct {
	session string
	servers []string
	conns   []*grpc.ClientConn
	kept    []*pb.TaskReport // of opFetch, for opReport
	holders []*held          // of opKeep, for opRenew
}

// connections is how many there are to each dispatcher: enough that none of
// them bounds the calls, few enough that they do not either.
const connections = 4

// window is how much of one answer a dispatcher may send ahead, and a quarter of what it may
// of all, since a connection is that of many collectors: fixed, as for one of package
// collector, since grpc-go pings otherwise to estimate it.
const window = 4 << 20

func (g *load) close() {
	for _, conn := range g.conns {
		_ = conn.Close() // it is closed once
	}
	g.conns = nil
}

func (g *load) dial(servers []string) error {
	if fmt.Sprint(servers) == fmt.Sprint(g.servers) {
		return nil
	}
	g.close()
	g.servers = servers
	for range connections {
		for _, server := range servers {
			conn, err := grpc.NewClient(server, grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)),
				grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(4*window))
			if err != nil {
				return fmt.Errorf("dial %s: %w", server, err)
			}
			g.conns = append(g.conns, conn)
		}
	}
	return nil
}

func (g *load) dispatch(i int) pb.DispatchServiceClient {
	return pb.NewDispatchServiceClient(g.conns[i%len(g.conns)])
}

func (g *load) do(ctx context.Context, j *job) (*outcome, error) {
	if j.Op == opFloor {
		return floor(ctx, j)
	}
	if err := g.dial(j.Servers); err != nil {
		return nil, err
	}
	switch j.Op {
	case opCreate:
		return nil, g.create(ctx, j)
	case opDelete:
		return nil, g.remove(ctx, j)
	case opSubmit:
		return g.submit(ctx, j)
	case opDrain:
		return g.drain(ctx, j)
	case opLife:
		return g.life(ctx, j)
	case opCalls:
		return g.calls(ctx, j)
	case opWake:
		return g.wake(ctx, j)
	case opBeat:
		return g.beat(ctx, j)
	case opPark:
		return g.park(ctx, j)
	case opRequeue:
		return g.requeue(ctx, j)
	case opExpire:
		return g.expire(ctx, j)
	case opKeep:
		return g.keep(ctx, j)
	case opRenew:
		return g.renew(ctx, j)
	case opFetch:
		return g.fetch(ctx, j)
	case opReport:
		return g.report(ctx, j)
	case opEmpty:
		return g.empty(ctx, j)
	default:
		return nil, fmt.Errorf("there is no job %q", j.Op)
	}
}

func sourceOf(j *job) string  { return "bench." + j.Series }
func patternOf(j *job) string { return "*." + j.Series + ".bench.invalid" }
func urlOf(j *job, task int) string {
	queue := task / max(1, j.Workload.Burst) % j.Workload.Queues
	return "https://q" + strconv.Itoa(queue) + "." + j.Series + ".bench.invalid/task/" + strconv.Itoa(task)
}

// create makes the source of the series, which only takes what is submitted,
// and the rule of its queues.
func (g *load) create(ctx context.Context, j *job) error {
	conn := g.conns[0]
	_, err := pb.NewQueueServiceClient(conn).SetQueueRule(ctx, &pb.SetQueueRuleRequest{
		Rule: &pb.QueueRule{Pattern: patternOf(j), MinDelay: durationpb.New(j.Workload.Delay), MaxInFlight: proto.Int32(1000)},
		By:   "bench", Reason: "waggle bench",
	}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("set the queue rule: %w", err)
	}
	_, err = pb.NewSourceServiceClient(conn).CreateSource(ctx, &pb.CreateSourceRequest{Spec: &pb.SourceSpec{
		Id: sourceOf(j), Pool: j.Series, Remember: durationpb.New(time.Minute),
	}})
	if err != nil {
		return fmt.Errorf("create the source: %w", err)
	}
	return nil
}

func (g *load) remove(ctx context.Context, j *job) error {
	conn := g.conns[0]
	_, err := pb.NewSourceServiceClient(conn).DeleteSources(ctx, &pb.DeleteSourcesRequest{Ids: []string{sourceOf(j)}, By: "bench", Reason: "waggle bench"})
	if err != nil {
		err = fmt.Errorf("delete the source: %w", err)
	}
	_, ruleErr := pb.NewQueueServiceClient(conn).DeleteQueueRule(ctx, &pb.DeleteQueueRuleRequest{Pattern: patternOf(j)})
	if ruleErr != nil {
		ruleErr = fmt.Errorf("delete the queue rule: %w", ruleErr)
	}
	return errors.Join(err, ruleErr)
}

// tally collects what concurrent collectors count and time.
type tally struct {
	asked atomic.Int64 // tasks that were fetched, or that fetches under way ask for

	mu      sync.Mutex // guards all below
	count   int
	retries int
	samples map[string][]int64
	last    time.Time
}

// ask notes a fetch of so many tasks, at most n, of all; 0: others ask for all that is left.
func (t *tally) ask(n, all int) int {
	for {
		asked := t.asked.Load()
		n = min(n, all-int(asked))
		if n <= 0 {
			return 0
		}
		if t.asked.CompareAndSwap(asked, asked+int64(n)) {
			return n
		}
	}
}

func (t *tally) add(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count += n
	t.last = time.Now()
}

func (t *tally) sample(kind string, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.samples == nil {
		t.samples = map[string][]int64{}
	}
	if len(t.samples[kind]) < maxSamples {
		t.samples[kind] = append(t.samples[kind], took.Nanoseconds())
	}
}

func (t *tally) reached() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count
}

func (t *tally) outcome(began time.Time) *outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := &outcome{Count: t.count, Samples: t.samples, Retries: t.retries}
	if t.count > 0 {
		o.Took = t.last.Sub(began)
	}
	return o
}

// again makes a call, and makes it again while the dispatcher sheds load, as
// every client does.
func again(ctx context.Context, t *tally, call func() error) error {
	for {
		err := call()
		if code := status.Code(err); code != codes.ResourceExhausted && code != codes.Unavailable {
			return err
		}
		t.mu.Lock()
		t.retries++
		t.mu.Unlock()
		select {
		case <-ctx.Done():
			return err
		case <-time.After(5 * time.Millisecond):
		}
	}
}
