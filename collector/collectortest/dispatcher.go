package collectortest

import (
	"context"
	"net"
	"testing"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
	"github.com/waggle-crawl/waggle/store"
)

const (
	// target is how a collector names the dispatcher; where it leads is for its machine to say.
	target = "passthrough:///collectortest"
	// buffer of a connection to the dispatcher, in bytes.
	buffer = 1 << 20
	// drainTimeout is how long the dispatcher waits for calls that have not ended when the test does.
	drainTimeout = 2 * time.Second
)

// Dispatcher is a dispatcher of a test's own. Its methods may be called from any goroutine of the test, and end the test
// when the dispatcher refuses what they ask.
type Dispatcher struct {
	t        testing.TB
	listener *bufconn.Listener
	conn     *grpc.ClientConn
}

// Start runs a dispatcher on an empty memory store until the test ends. A queue rule "*" lets all hosts be asked without
// delay, by up to 1,000 tasks at once; SetQueueRule over Conn makes others.
func Start(t testing.TB) *Dispatcher {
	t.Helper()
	store, err := store.New(store.Config{})
	if err != nil {
		t.Fatalf("make a store: %v", err)
	}
	return startOn(t, store)
}

func startOn(t testing.TB, store dispatch.Store) *Dispatcher {
	t.Helper()
	d, err := engine.New(engine.Config{Store: store, ID: "test"})
	if err != nil {
		t.Fatalf("make a dispatcher: %v", err)
	}
	o := operate.New(d)
	s, err := server.New(server.Config{HTTP: server.Off, DrainTimeout: drainTimeout}, o, zap.NewNop())
	if err != nil {
		t.Fatalf("make a server: %v", err)
	}
	// The server ends first and takes the last reports, then the dispatcher's loops, then the store.
	background := context.WithoutCancel(t.Context())
	loops, stopLoops := context.WithCancel(background)
	serving, stopServing := context.WithCancel(background)
	listener := bufconn.Listen(buffer)
	looped, served := make(chan error, 1), make(chan error, 1)
	go func() { looped <- d.Run(loops, o.Chores()...) }()
	go func() { served <- s.RunOn(serving, listener, nil) }()
	t.Cleanup(func() {
		stopServing()
		if err := <-served; err != nil {
			t.Errorf("server: %v", err)
		}
		stopLoops()
		if err := <-looped; err != nil {
			t.Errorf("dispatcher: %v", err)
		}
		if err := store.Close(); err != nil {
			t.Errorf("store: %v", err)
		}
	})
	started := &Dispatcher{t: t, listener: listener}
	started.connect()
	started.beImpolite()
	return started
}

// connect opens the test's own connection.
func (d *Dispatcher) connect() {
	d.t.Helper()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return d.listener.DialContext(ctx) }))
	if err != nil {
		d.t.Fatalf("connect to the dispatcher: %v", err)
	}
	d.conn = conn
	d.t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			d.t.Errorf("close the connection: %v", err)
		}
	})
}

func (d *Dispatcher) beImpolite() {
	d.t.Helper()
	_, err := wagglev1.NewQueueServiceClient(d.conn).SetQueueRule(d.t.Context(), &wagglev1.SetQueueRuleRequest{
		Rule: &wagglev1.QueueRule{Pattern: "*", MinDelay: durationpb.New(0), MaxInFlight: proto.Int32(1000)},
		By:   "collectortest", Reason: "no hosts are there to be spared",
	})
	if err != nil {
		d.t.Fatalf("set the queue rule: %v", err)
	}
}

// Conn is a connection to the dispatcher, for all of its services.
func (d *Dispatcher) Conn() *grpc.ClientConn { return d.conn }

// CreateSource registers a source; its seeds are due at once.
func (d *Dispatcher) CreateSource(spec *wagglev1.SourceSpec) *wagglev1.Source {
	d.t.Helper()
	reply, err := wagglev1.NewSourceServiceClient(d.conn).CreateSource(d.t.Context(), &wagglev1.CreateSourceRequest{Spec: spec})
	if err != nil {
		d.t.Fatalf("create source %q: %v", spec.GetId(), err)
	}
	return reply.GetSource()
}

// Submit submits tasks to sources that exist. It ends the test when one is refused.
func (d *Dispatcher) Submit(items ...*wagglev1.SubmitItem) {
	d.t.Helper()
	reply, err := wagglev1.NewTaskServiceClient(d.conn).SubmitTasks(d.t.Context(), &wagglev1.SubmitTasksRequest{Items: items})
	if err != nil {
		d.t.Fatalf("submit tasks: %v", err)
	}
	for i, result := range reply.GetResults() {
		switch result.GetCode() {
		case wagglev1.SubmitCode_SUBMIT_CODE_CREATED, wagglev1.SubmitCode_SUBMIT_CODE_EXISTS, wagglev1.SubmitCode_SUBMIT_CODE_REVISIT:
		default:
			d.t.Fatalf("submit %q to source %q: %s: %s", items[i].GetUrl(), items[i].GetSourceId(), result.GetCode(), result.GetMessage())
		}
	}
}

// Task is the task of a source with that URL; nil when there is none.
func (d *Dispatcher) Task(source, url string) *wagglev1.Task {
	d.t.Helper()
	reply, err := wagglev1.NewTaskServiceClient(d.conn).GetTask(d.t.Context(), &wagglev1.GetTaskRequest{SourceId: source, Url: url})
	if status.Code(err) == codes.NotFound {
		return nil
	}
	if err != nil {
		d.t.Fatalf("get the task of source %q with URL %q: %v", source, url, err)
	}
	return reply.GetTask()
}

// idle reports whether no task is due or worked on.
func (d *Dispatcher) idle() bool {
	d.t.Helper()
	reply, err := wagglev1.NewAdminServiceClient(d.conn).GetStats(d.t.Context(), &wagglev1.GetStatsRequest{})
	if err != nil {
		d.t.Fatalf("read the stats: %v", err)
	}
	return reply.GetTasks().GetReady()+reply.GetTasks().GetLeased() == 0
}
