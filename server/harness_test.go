package server_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
	"github.com/waggle-crawl/waggle/store"
)

// faults is a store of which a test can break single calls.
type faults struct {
	dispatch.Store

	mu     sync.Mutex // guards what follows
	broken map[string]func() error
	pages  []int // bytes of payloads of each page of tasks
	owned  *dispatch.Ownership
	moves  int // times that the owner was to move
}

// breakCall makes a call run fault, until it is nil.
func (f *faults) breakCall(call string, fault func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken[call] = fault
}

// fault is the error of a call; one that hangs ends with ctx, as a call of a store does.
func (f *faults) fault(ctx context.Context, call string) error {
	f.mu.Lock()
	fault := f.broken[call]
	f.mu.Unlock()
	if fault == nil {
		return nil
	}
	var err error
	ended := make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		err = fault()
	}()
	select {
	case panicked := <-ended:
		if panicked != nil {
			panic(panicked)
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *faults) Ping(ctx context.Context) error {
	if err := f.fault(ctx, "Ping"); err != nil {
		return err
	}
	return f.Store.Ping(ctx)
}

func (f *faults) Stats(ctx context.Context) (dispatch.StoreStats, error) {
	if err := f.fault(ctx, "Stats"); err != nil {
		return dispatch.StoreStats{}, err
	}
	stats, err := f.Store.Stats(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	stats.Ownership = f.owned
	return stats, err
}

// MoveOwner implements [dispatch.Store]. The next owner owns the store at once, and this dispatcher can write nothing more.
func (f *faults) MoveOwner(ctx context.Context) (string, error) {
	if err := f.fault(ctx, "MoveOwner"); err != nil {
		return "", err
	}
	f.breakCall("AppendAudit", func() error { return dispatch.ErrStoreUnavailable })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moves++
	f.owned = &dispatch.Ownership{Owner: f.owned.Standby}
	return f.owned.Owner, nil
}

// own sets who owns the store, and lets it be written.
func (f *faults) own(o *dispatch.Ownership) {
	f.breakCall("AppendAudit", nil)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owned = o
}

func (f *faults) Submit(ctx context.Context, version int64, gates []dispatch.SourceGate, items []dispatch.Submission) ([]dispatch.SubmitResult, error) {
	if err := f.fault(ctx, "Submit"); err != nil {
		return nil, err
	}
	return f.Store.Submit(ctx, version, gates, items)
}

func (f *faults) Apply(ctx context.Context, transitions []dispatch.Transition) ([]dispatch.ApplyResult, error) {
	if err := f.fault(ctx, "Apply"); err != nil {
		return nil, err
	}
	return f.Store.Apply(ctx, transitions)
}

func (f *faults) BeginPoll(ctx context.Context, poll dispatch.Poll) (dispatch.PollState, error) {
	if err := f.fault(ctx, "BeginPoll"); err != nil {
		return dispatch.PollState{}, err
	}
	return f.Store.BeginPoll(ctx, poll)
}

func (f *faults) ListCollectors(ctx context.Context, filter dispatch.CollectorFilter, after string, limit int) ([]*dispatch.CollectorRecord, error) {
	call := "ListCollectors"
	if !filter.Since.IsZero() {
		call += " Since"
	}
	if err := f.fault(ctx, call); err != nil {
		return nil, err
	}
	return f.Store.ListCollectors(ctx, filter, after, limit)
}

func (f *faults) BindCollector(ctx context.Context, collectorID, identity string, ttl time.Duration) (string, error) {
	if err := f.fault(ctx, "BindCollector"); err != nil {
		return "", err
	}
	return f.Store.BindCollector(ctx, collectorID, identity, ttl)
}

func (f *faults) ReleaseCollector(ctx context.Context, collectorID string) (string, error) {
	if err := f.fault(ctx, "ReleaseCollector"); err != nil {
		return "", err
	}
	return f.Store.ReleaseCollector(ctx, collectorID)
}

func (f *faults) AppendAudit(ctx context.Context, entry dispatch.AuditEntry) error {
	if err := f.fault(ctx, "AppendAudit"); err != nil {
		return err
	}
	return f.Store.AppendAudit(ctx, entry)
}

func (f *faults) AuditEntries(ctx context.Context, by, before string, limit int) ([]dispatch.AuditEntry, string, error) {
	if err := f.fault(ctx, "AuditEntries"); err != nil {
		return nil, "", err
	}
	return f.Store.AuditEntries(ctx, by, before, limit)
}

func (f *faults) ListLeases(ctx context.Context, cursor string, limit int) ([]*dispatch.Task, string, error) {
	if err := f.fault(ctx, "ListLeases"); err != nil {
		return nil, "", err
	}
	return f.Store.ListLeases(ctx, cursor, limit)
}

func (f *faults) Tasks(ctx context.Context, ids []dispatch.TaskID, details bool) ([]*dispatch.Task, time.Time, error) {
	if err := f.fault(ctx, "Tasks"); err != nil {
		return nil, time.Time{}, err
	}
	return f.Store.Tasks(ctx, ids, details)
}

// bed is a server on a memory store, with clients connected to it.
type bed struct {
	store    *faults
	server   *server.Server
	operator *operate.Operator
	logs     *observer.ObservedLogs
	shown    *server.Metrics
	dial     func(context.Context, string) (net.Conn, error)
	http     net.Listener // nil: gRPC only
	conn     *grpc.ClientConn
	by       grpc.ClientConnInterface // of the clients below

	dispatch pb.DispatchServiceClient
	tasks    pb.TaskServiceClient
	sources  pb.SourceServiceClient
	queues   pb.QueueServiceClient
	holds    pb.HoldServiceClient
	admin    pb.AdminServiceClient
	health   grpc_health_v1.HealthClient

	// stop begins the server's drain, and stopped has what Run returned.
	stop    context.CancelFunc
	stopped <-chan error
}

func newStore(t testing.TB) *faults {
	t.Helper()
	memory, err := store.New(store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &faults{Store: memory, broken: make(map[string]func() error)}
}

// newBed serves with cfg until the test ends.
func newBed(t testing.TB, cfg server.Config) *bed {
	t.Helper()
	return newBedOn(t, newStore(t), "d1", cfg)
}

// newBedOn serves a dispatcher of this id on a store, which it closes when the test ends.
func newBedOn(t testing.TB, store *faults, id string, cfg server.Config) *bed {
	t.Helper()
	b := &bed{store: store}
	core, logs := observer.New(zapcore.DebugLevel)
	b.logs = logs
	b.shown = server.NewMetrics()
	cfg.Metrics = b.shown
	cfg.DrainTimeout = cmp.Or(cfg.DrainTimeout, 4*time.Second) // tests leave leases behind
	d, err := engine.New(engine.Config{Store: b.store, ID: id, Observer: b.shown})
	if err != nil {
		t.Fatal(err)
	}
	b.operator = operate.New(d)
	if b.server, err = server.New(cfg, b.operator, zap.New(core)); err != nil {
		t.Fatal(err)
	}
	if cfg.HTTP != "" && cfg.HTTP != server.Off {
		if b.http, err = new(net.ListenConfig).Listen(t.Context(), "tcp", cfg.HTTP); err != nil {
			t.Fatal(err)
		}
	}
	b.run(t, d)
	return b
}

func (b *bed) run(t testing.TB, d *engine.Dispatcher) {
	t.Helper()
	// Order of the end: the server drains, then the dispatcher's loops stop,
	// then the store closes.
	background := context.WithoutCancel(t.Context())
	loops, stopLoops := context.WithCancel(background)
	serving, stop := context.WithCancel(background)
	ran, stopped := make(chan error, 1), make(chan error, 1)
	listener := bufconn.Listen(1 << 20)
	go func() { ran <- d.Run(loops, cmp.Or(b.operator, operate.New(d)).Chores()...) }()
	go func() { stopped <- b.server.RunOn(serving, listener, b.http); close(stopped) }()
	b.stop, b.stopped = stop, stopped
	b.dial = func(context.Context, string) (net.Conn, error) { return listener.DialContext(background) }
	b.connect(t)
	t.Cleanup(func() {
		if err := b.conn.Close(); err != nil {
			t.Error(err)
		}
		stop()
		if err := <-stopped; err != nil {
			t.Errorf("server: %v", err)
		}
		stopLoops()
		if err := <-ran; err != nil {
			t.Errorf("dispatcher: %v", err)
		}
		if err := b.store.Close(); err != nil {
			t.Error(err)
		}
		if b.logs == nil {
			return
		}
		for _, line := range b.logs.All() {
			if text := fmt.Sprint(line.Message, line.ContextMap()); strings.Contains(text, "wgl_") {
				t.Errorf("the log shows a token: %s", text)
			}
		}
	})
}

func (b *bed) connect(t testing.TB) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///bufconn", grpc.WithContextDialer(b.dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	b.conn = conn
	b.use(conn)
}

// use makes the clients call by conn.
func (b *bed) use(conn grpc.ClientConnInterface) {
	b.by = conn
	b.dispatch, b.tasks = pb.NewDispatchServiceClient(conn), pb.NewTaskServiceClient(conn)
	b.sources, b.queues = pb.NewSourceServiceClient(conn), pb.NewQueueServiceClient(conn)
	b.holds, b.admin, b.health = pb.NewHoldServiceClient(conn), pb.NewAdminServiceClient(conn), grpc_health_v1.NewHealthClient(conn)
}

// source creates a source without seeds.
func (b *bed) source(t testing.TB, id string) *pb.Source {
	t.Helper()
	resp, err := b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: &pb.SourceSpec{Id: id}})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetSource()
}

// submit submits URLs to a source, and wants all of them created.
func (b *bed) submit(t testing.TB, source string, urls ...string) []string {
	t.Helper()
	req := &pb.SubmitTasksRequest{}
	for _, url := range urls {
		req.Items = append(req.Items, &pb.SubmitItem{SourceId: source, Url: url})
	}
	resp, err := b.tasks.SubmitTasks(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i, r := range resp.GetResults() {
		if r.GetCode() != pb.SubmitCode_SUBMIT_CODE_CREATED {
			t.Fatalf("submit %s: %v", urls[i], r)
		}
		ids = append(ids, r.GetTaskId())
	}
	return ids
}

// fetch asks for up to n tasks as collector c1, without waiting.
func (b *bed) fetch(t testing.TB, n int32) []*pb.LeasedTask {
	t.Helper()
	resp, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{
		CollectorId: "c1", Session: "s1", MaxTasks: n, Wait: durationpb.New(0),
	})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetLeasedTasks()
}

// leased sets up a source with one task under a lease.
func (b *bed) leased(t *testing.T) *pb.LeasedTask {
	t.Helper()
	b.source(t, "news")
	b.submit(t, "news", "https://example.com/a")
	leased := b.fetch(t, 1)
	if len(leased) != 1 {
		t.Fatalf("fetched %d tasks, want 1", len(leased))
	}
	return leased[0]
}

// succeed reports that tasks are done, as collector c1.
func (b *bed) succeed(t *testing.T, tasks ...*pb.LeasedTask) {
	t.Helper()
	req := &pb.ReportTaskRequest{CollectorId: "c1", Session: "s1"}
	for _, task := range tasks {
		req.Reports = append(req.Reports, succeeded(task))
	}
	if len(tasks) == 0 {
		return
	}
	resp, err := b.dispatch.ReportTask(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range resp.GetResults() {
		if result.GetCode() != pb.ReportCode_REPORT_CODE_OK {
			t.Fatalf("report: %v", result)
		}
	}
}

// fault is what a status tells.
type fault struct {
	code       codes.Code
	message    string
	reason     string
	domain     string
	metadata   map[string]string
	violations []*errdetails.BadRequest_FieldViolation
	retry      time.Duration
}

func faultOf(t *testing.T, err error) fault {
	t.Helper()
	st, ok := status.FromError(err)
	if !ok {
		t.Fatalf("%v is no status", err)
	}
	f := fault{code: st.Code(), message: st.Message()}
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			f.reason, f.domain, f.metadata = d.GetReason(), d.GetDomain(), d.GetMetadata()
		case *errdetails.BadRequest:
			f.violations = d.GetFieldViolations()
		case *errdetails.RetryInfo:
			f.retry = d.GetRetryDelay().AsDuration()
		default:
			t.Fatalf("detail %T", d)
		}
	}
	return f
}

// wantFault fails the test unless err is told with this code and reason.
func wantFault(t *testing.T, err error, code codes.Code, reason string) fault {
	t.Helper()
	f := faultOf(t, err)
	if f.code != code || f.reason != reason {
		t.Fatalf("got %v %s (%v), want %v %s", f.code, f.reason, err, code, reason)
	}
	if reason != "" && f.domain != "waggle" {
		t.Errorf("domain is %q", f.domain)
	}
	if (code == codes.Unavailable || code == codes.ResourceExhausted) && f.retry <= 0 {
		t.Errorf("%v %s has no RetryInfo", code, reason)
	}
	return f
}

// eventually waits for a condition that others bring about.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	within(t, 10*time.Second, what, condition)
}

// within is eventually with a limit of its own.
func within(t *testing.T, limit time.Duration, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

func withTimeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), d)
}
