package server_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// group are dispatchers of one store, each with an operator for the time that it owns it.
type group struct {
	store   *faults
	members []*member
	epoch   uint64
}

// member is a bed whose clients call this dispatcher.
type member struct {
	*bed

	operator *operate.Operator
	higher   atomic.Uint64 // epoch that a passed call has named
	owns     atomic.Uint64 // epoch under which it owns by now
}

var secret = []byte("the secret that only readers of the store know")

// newGroup serves a store by n dispatchers. The first one owns it.
func newGroup(t testing.TB, n int, cfg server.Config) *group {
	t.Helper()
	return newGroupOn(t, newStore(t), n, cfg)
}

// newGroupOn is newGroup on a store, which it closes when the test ends.
func newGroupOn(t testing.TB, store *faults, n int, cfg server.Config) *group {
	t.Helper()
	g := &group{store: store}
	t.Cleanup(func() {
		if err := g.store.Close(); err != nil {
			t.Error(err)
		}
	})
	for i := range n {
		g.members = append(g.members, g.join(t, fmt.Sprintf("d%d", i+1), cfg))
	}
	g.own(t, 0)
	return g
}

func (g *group) join(t testing.TB, id string, cfg server.Config) *member {
	t.Helper()
	m := &member{bed: &bed{store: g.store, shown: server.NewMetrics()}}
	d, err := engine.New(engine.Config{Store: g.store, ID: id, Observer: m.shown})
	if err != nil {
		t.Fatal(err)
	}
	m.operator = operate.New(d)
	core, logs := observer.New(zapcore.DebugLevel)
	m.logs = logs
	cfg.Metrics, cfg.Listen, cfg.HTTP = m.shown, cmp.Or(cfg.Listen, "127.0.0.1:0"), "127.0.0.1:0"
	cfg.DrainTimeout = cmp.Or(cfg.DrainTimeout, 400*time.Millisecond)
	cfg.HealthInterval = 50 * time.Millisecond
	cfg.HigherEpoch = func(epoch uint64) bool {
		m.higher.Store(epoch)
		return epoch <= m.owns.Load()
	}
	if m.server, err = server.New(cfg, nil, zap.New(core)); err != nil {
		t.Fatal(err)
	}
	if err := m.server.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.server.Trust(secret)
	background := context.WithoutCancel(t.Context())
	loops, stopLoops := context.WithCancel(background)
	serving, stop := context.WithCancel(background)
	ran, stopped := make(chan error, 1), make(chan error, 1)
	go func() { ran <- d.Run(loops, m.operator.Chores()...) }()
	go func() { stopped <- m.server.Run(serving); close(stopped) }()
	m.stop, m.stopped = stop, stopped
	m.dial = func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", m.server.Address())
	}
	m.connect(t)
	t.Cleanup(func() {
		if err := m.conn.Close(); err != nil {
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
	})
	return m
}

// own makes a member the owner.
func (g *group) own(t testing.TB, i int) {
	t.Helper()
	g.epoch++
	g.members[i].server.Attach(g.members[i].operator, g.epoch)
	for j, m := range g.members {
		if j != i {
			g.follow(t, m, i)
		}
	}
}

func (g *group) follow(t testing.TB, m *member, owner int) {
	t.Helper()
	err := m.server.Follow(server.Owner{Name: fmt.Sprintf("d%d", owner+1), Address: g.members[owner].server.Address(), Epoch: g.epoch})
	if err != nil {
		t.Fatal(err)
	}
}

// newPassed is a bed whose clients call a dispatcher that does not own the store.
func newPassed(t testing.TB, cfg server.Config) *bed {
	t.Helper()
	return newGroup(t, 2, cfg).members[1].bed
}

// parked waits until so many fetches wait at a member.
func (m *member) parked(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d fetches are parked", n), func() bool { return m.operator.Dispatcher().Parked() == n })
}

// The same callers may do the same by a dispatcher that passes their calls on.
func TestPass_access(t *testing.T) {
	t.Parallel()
	t.Run("gRPC", func(t *testing.T) { t.Parallel(); testAccess(t, newPassed) })
	t.Run("HTTP", func(t *testing.T) {
		t.Parallel()
		testAccess(t, func(t testing.TB, cfg server.Config) *bed {
			t.Helper()
			cfg.Reflection = false
			b := newPassed(t, cfg)
			b.use(overHTTP(t, "http://"+b.server.HTTPAddress()))
			return b
		})
	})
}

// Each method answers the same, direct and passed, with the same status.
func TestPass_everyMethod(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 2, server.Config{})
	direct, passed := g.members[0].bed, g.members[1].bed
	direct.source(t, "news.a")
	direct.submit(t, "news.a", "https://a.example/", "https://b.example/")
	rows := accesses(passed.fetch(t, 1)[0])
	for _, method := range served(t, direct) {
		if !strings.HasPrefix(string(method.FullName()), "waggle.v1.") {
			continue
		}
		// An empty request first: most are refused with details.
		kind, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
		if err != nil {
			t.Fatal(err)
		}
		for _, request := range []proto.Message{kind.New().Interface(), rows[string(method.Name())].request} {
			_, want := direct.call(t.Context(), method, request)
			_, got := passed.call(t.Context(), method, request)
			// What a first call has changed is different for the second one.
			if code := status.Code(want); code == codes.OK && status.Code(got) == codes.AlreadyExists {
				continue
			}
			if !sameStatus(want, got) {
				t.Errorf("%s %v: direct %v, passed %v", method.Name(), request, want, got)
			}
		}
	}
	if _, err := passed.sources.GetSource(t.Context(), &pb.GetSourceRequest{Id: "none"}); err == nil {
		t.Error("a source that is none was found")
	} else {
		wantFault(t, err, codes.NotFound, "SOURCE_NOT_FOUND")
	}
}

// sameStatus compares codes, texts and details.
func sameStatus(a, b error) bool {
	x, y := status.Convert(a), status.Convert(b)
	return x.Code() == y.Code() && x.Message() == y.Message() && slices.EqualFunc(x.Details(), y.Details(), func(x, y any) bool {
		return proto.Equal(x.(proto.Message), y.(proto.Message)) //nolint:forcetypeassert // as all details are
	})
}

// Over HTTP calls are passed on likewise, in either encoding.
func TestPass_http(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 2, server.Config{})
	g.members[0].source(t, "news")
	for body, want := range map[string]string{`{"id":"news"}`: `"id":"news"`, `{"id":"none"}`: "SOURCE_NOT_FOUND", `{"idd":"x"}`: "no field"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			"http://"+g.members[1].server.HTTPAddress()+"/waggle.v1.SourceService/GetSource", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if text := bodyOf(t, req); !strings.Contains(text, want) {
			t.Errorf("%s: %s", body, text)
		}
	}
}

func bodyOf(t *testing.T, req *http.Request) string {
	t.Helper()
	client := &http.Client{Transport: new(http.Transport)}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var text strings.Builder
	if err := resp.Write(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// A fetch whose caller leaves ends at the owner at once.
func TestPass_cancel(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 2, server.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := g.members[1].park(ctx)
	g.members[0].parked(t, 1)
	cancel()
	if got := <-ended; status.Code(got.err) != codes.Canceled {
		t.Errorf("got %v", got.err)
	}
	g.members[0].parked(t, 0)
}

// fetched is the end of a fetch.
type fetched struct {
	resp *pb.FetchTaskResponse
	err  error
}

// park fetches as collector c1, and waits for up to 20 s.
func (m *member) park(ctx context.Context) <-chan fetched {
	ended := make(chan fetched, 1)
	go func() {
		resp, err := m.dispatch.FetchTask(ctx, &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1", Wait: durationpb.New(20 * time.Second)})
		ended <- fetched{resp, err}
	}()
	return ended
}

// A fetch is answered before its deadline.
func TestPass_deadline(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 2, server.Config{})
	ctx, cancel := withTimeout(t, time.Second)
	defer cancel()
	got := <-g.members[1].park(ctx)
	if got.err != nil || got.resp.GetEmptyReason() != pb.EmptyReason_EMPTY_REASON_NO_TASKS {
		t.Errorf("got %v", got)
	}
}

// A parked fetch moves with the ownership: at a dispatcher that passes on, at one that becomes the owner, and at the one that was.
func TestPass_movesParked(t *testing.T) {
	t.Parallel()
	for i, name := range []string{"at the former owner", "at the next owner", "at another dispatcher"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, 3, server.Config{})
			ended := g.members[i].park(t.Context())
			g.members[0].parked(t, 1)
			g.members[0].server.Detach()
			g.own(t, 1)
			g.members[1].parked(t, 1)
			g.members[2].source(t, "news")
			g.members[2].submit(t, "news", "https://example.com/a")
			got := <-ended
			if got.err != nil || len(got.resp.GetLeasedTasks()) != 1 {
				t.Errorf("got %v", got)
			}
		})
	}
}

// While nobody owns the store calls wait, and are refused after five seconds.
func TestPass_waits(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 2, server.Config{})
	g.members[0].server.Detach()
	ended := make(chan error, 1)
	began := time.Now()
	go func() {
		_, err := g.members[0].sources.ListSources(t.Context(), &pb.ListSourcesRequest{})
		ended <- err
	}()
	_, err := g.members[1].sources.ListSources(t.Context(), &pb.ListSourcesRequest{})
	wantFault(t, err, codes.Unavailable, "STORE_UNAVAILABLE")
	wantFault(t, <-ended, codes.Unavailable, "STORE_UNAVAILABLE")
	if took := time.Since(began); took < 4*time.Second || took > 7*time.Second {
		t.Errorf("refused after %v", took)
	}
	go func() {
		_, err := g.members[0].sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: &pb.SourceSpec{Id: "news"}})
		ended <- err
	}()
	g.own(t, 1)
	if err := <-ended; err != nil {
		t.Errorf("a call that waited: %v", err)
	}
}

// Of calls that are at the owner when ownership moves, those are repeated, once, that may be; others are refused.
func TestPass_movesSent(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 2, server.Config{})
	g.members[0].source(t, "news")
	reached, release := make(chan struct{}, 10), make(chan struct{})
	defer close(release)
	block := func() error { reached <- struct{}{}; <-release; return nil }
	g.store.breakCall("Submit", block)
	g.store.breakCall("ListLeases", block)
	submitted, listed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := g.members[1].tasks.SubmitTasks(t.Context(), &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{{SourceId: "news", Url: "https://a.example/"}}})
		submitted <- err
	}()
	go func() {
		_, err := g.members[1].admin.ListLeases(t.Context(), &pb.ListLeasesRequest{})
		listed <- err
	}()
	<-reached
	<-reached
	g.store.breakCall("Submit", nil)
	g.store.breakCall("ListLeases", nil)
	g.members[0].server.Detach()
	g.own(t, 1)
	if err := <-listed; err != nil {
		t.Errorf("a read: %v", err)
	}
	f := wantFault(t, <-submitted, codes.Unavailable, "STORE_UNAVAILABLE")
	if !strings.Contains(f.message, "may have been done") {
		t.Errorf("a submit: %s", f.message)
	}
}

// A heartbeat stream moves, and its client sees no error; what is pushed comes from the next owner.
func TestPass_movesHeartbeat(t *testing.T) {
	t.Parallel()
	for i, name := range []string{"at the former owner", "at the next owner", "at another dispatcher"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, 3, server.Config{})
			m := g.members[i]
			leased := m.leased(t)
			stream := open(t, m.bed)
			exchange(t, stream, beatOf(held(leased)))
			g.members[0].server.Detach()
			g.own(t, 1)
			if again, err := stream.Recv(); err != nil || again.GetStatus().GetNextHeartbeat() != nil || again.GetStatus().GetLeaseDuration() != nil {
				t.Fatalf("the last beat was answered twice: %v, %v", again, err) // the repeated one is pushed
			}
			exchange(t, stream, beatOf(held(leased)))
			if _, err := m.tasks.CancelTasks(t.Context(), &pb.CancelTasksRequest{TaskIds: []string{leased.GetTask().GetId()}, By: "a", Reason: "b"}); err != nil {
				t.Fatal(err)
			}
			pushed, err := stream.Recv()
			if err != nil || len(pushed.GetStatus().GetCancel()) != 1 {
				t.Errorf("pushed %v, %v", pushed, err)
			}
			if err := stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Recv(); err == nil || err.Error() != "EOF" {
				t.Errorf("the end: %v", err)
			}
		})
	}
}

// A dispatcher that knows the next owner already passes calls on when it stops to serve.
func TestPass_detachedLate(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 2, server.Config{})
	g.own(t, 1) // the first one follows
	g.members[0].server.Detach()
	ctx, cancel := withTimeout(t, time.Second)
	defer cancel()
	if _, err := g.members[0].sources.ListSources(ctx, &pb.ListSourcesRequest{}); err != nil {
		t.Error(err)
	}
}

// Who passes a call on and has seen a higher epoch is heard: the owner serves no more of such calls, unless that epoch is its own.
func TestPass_higherEpoch(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 2, server.Config{})
	g.epoch = 9
	g.follow(t, g.members[1], 0) // whose epoch is 1
	ctx, cancel := withTimeout(t, 300*time.Millisecond)
	defer cancel()
	_, err := g.members[1].sources.ListSources(ctx, &pb.ListSourcesRequest{})
	if code := status.Code(err); code != codes.Unavailable && code != codes.DeadlineExceeded {
		t.Errorf("got %v", err)
	}
	if got := g.members[0].higher.Load(); got != 9 {
		t.Errorf("the owner was given epoch %d", got)
	}
	g.members[0].owns.Store(9) // it has acquired the store anew, and kept its memory
	if _, err := g.members[1].sources.ListSources(t.Context(), &pb.ListSourcesRequest{}); err != nil {
		t.Errorf("an owner that has a new epoch itself: %v", err)
	}
}

// What operators change is recorded once, at the owner, with who made the call and from where.
func TestPass_audited(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 2, server.Config{})
	if _, err := g.members[1].sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: &pb.SourceSpec{Id: "news"}, By: "ann", Reason: "new"}); err != nil {
		t.Fatal(err)
	}
	entries, err := g.members[1].admin.ListAuditEntries(t.Context(), &pb.ListAuditEntriesRequest{})
	if err != nil || len(entries.GetEntries()) != 1 {
		t.Fatal(entries, err)
	}
	if e := entries.GetEntries()[0]; e.GetFrom() != "127.0.0.1" || e.GetMethod() != "CreateSource" {
		t.Errorf("got %v", e)
	}
	if n := len(g.members[0].logs.FilterMessage("operator's call").All()); n != 1 {
		t.Errorf("the owner logged %d changes", n)
	}
}

// The owner counts new collectors by who made the call, not by the dispatcher that passed it on.
func TestPass_newcomers(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 2, server.Config{MaxNewCollectors: 3})
	call := func(m *member, id string) error {
		_, err := m.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: id, Session: "s", Wait: durationpb.New(0)})
		return err
	}
	for i := range 3 {
		if err := call(g.members[i%2], fmt.Sprintf("c%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	wantFault(t, call(g.members[1], "c8"), codes.ResourceExhausted, "RATE_LIMITED")
	wantFault(t, call(g.members[0], "c9"), codes.ResourceExhausted, "RATE_LIMITED")
}

// ready is what /readyz answers.
func (m *member) ready(t *testing.T) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+m.server.HTTPAddress()+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	return bodyOf(t, req)
}

// A dispatcher whose owner cannot be reached is not ready.
func TestPass_ready(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 2, server.Config{})
	eventually(t, "ready", func() bool { return strings.HasPrefix(g.members[1].ready(t), "HTTP/1.1 200 ") })
	if err := g.members[1].server.Follow(server.Owner{Name: "gone", Address: "127.0.0.1:1", Epoch: 5}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "not ready", func() bool {
		text := g.members[1].ready(t)
		return strings.HasPrefix(text, "HTTP/1.1 503 ") && strings.Contains(text, "gone at 127.0.0.1:1") && strings.Contains(text, "--advertise")
	})
}

// A dispatcher that drains sends its callers elsewhere, and those of others wait for the next owner.
func TestPass_drains(t *testing.T) {
	t.Parallel()
	t.Run("the one that passes on", func(t *testing.T) {
		t.Parallel()
		g := newGroup(t, 2, server.Config{})
		ended, stream := g.members[1].park(t.Context()), open(t, g.members[1].bed)
		exchange(t, stream, beatOf())
		g.members[0].parked(t, 1)
		g.members[1].stop()
		if got := <-ended; got.err != nil || got.resp.GetEmptyReason() != pb.EmptyReason_EMPTY_REASON_DISPATCHER_DRAINING {
			t.Errorf("got %v", got)
		}
		if resp, err := stream.Recv(); err != nil || !resp.GetReconnect() {
			t.Errorf("got %v, %v; want reconnect", resp, err)
		}
		_, err := stream.Recv()
		wantFault(t, err, codes.Unavailable, "DISPATCHER_DRAINING")
		g.members[0].parked(t, 0)
	})
	t.Run("the owner", func(t *testing.T) {
		t.Parallel()
		g := newGroup(t, 2, server.Config{})
		ended, stream := g.members[1].park(t.Context()), open(t, g.members[1].bed)
		exchange(t, stream, beatOf())
		g.members[0].parked(t, 1)
		g.members[0].stop()
		if err := <-g.members[0].stopped; err != nil {
			t.Fatal(err)
		}
		g.own(t, 1)
		g.members[1].source(t, "news")
		g.members[1].submit(t, "news", "https://example.com/a")
		if got := <-ended; got.err != nil || len(got.resp.GetLeasedTasks()) != 1 {
			t.Errorf("got %v", got)
		}
		if resp, err := stream.Recv(); err != nil || resp.GetReconnect() {
			t.Errorf("got %v, %v; want the answer of the next owner", resp, err)
		}
	})
}

// An owner that stops does not wait for reports which the next owner takes.
func TestPass_drainsWithLeases(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 2, server.Config{DrainTimeout: 40 * time.Second})
	g.members[1].leased(t)
	began := time.Now()
	g.members[0].stop()
	if err := <-g.members[0].stopped; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("the drain took %v", took)
	}
	g.own(t, 1)
}

// An owner that stops takes no more calls of dispatchers, which go on to call: its drain does not wait for a moment without calls.
func TestPass_drainsUnderLoad(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 2, server.Config{DrainTimeout: 10 * time.Second})
	g.store.breakCall("Stats", func() error {
		<-time.After(20 * time.Millisecond)
		return nil
	})
	var callers, called sync.WaitGroup
	stopped := make(chan struct{})
	called.Add(64)
	for range 64 {
		callers.Go(func() {
			for n := 0; ; n++ {
				if n == 1 {
					called.Done()
				}
				select {
				case <-stopped:
					return
				default:
				}
				if _, err := g.members[1].admin.GetStats(t.Context(), &pb.GetStatsRequest{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	called.Wait()
	began := time.Now()
	g.members[0].stop()
	if err := <-g.members[0].stopped; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("the drain took %v", took)
	}
	g.own(t, 1)
	close(stopped)
	callers.Wait()
}

// While ownership moves again and again, callers of all dispatchers get all work done, and no call fails but by UNAVAILABLE.
func TestPass_movesUnderLoad(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3, server.Config{})
	submit := hundredTasks(t, g.members[0].conn)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var done atomic.Int64
	again := func(call func() error) {
		for err := call(); err != nil && ctx.Err() == nil; err = call() {
			if code := status.Code(err); code != codes.Unavailable && ctx.Err() == nil {
				t.Errorf("a call failed: %v", err)
				return
			}
		}
	}
	for i := range 9 {
		m, id := g.members[i%3], fmt.Sprintf("c%d", i)
		wg.Go(func() {
			for ctx.Err() == nil {
				var got *pb.FetchTaskResponse
				again(func() (err error) {
					got, err = m.dispatch.FetchTask(ctx, &pb.FetchTaskRequest{CollectorId: id, Session: "s", MaxTasks: 2, Wait: durationpb.New(200 * time.Millisecond)})
					return err
				})
				if len(got.GetLeasedTasks()) == 0 {
					continue
				}
				report := &pb.ReportTaskRequest{CollectorId: id, Session: "s"}
				for _, l := range got.GetLeasedTasks() {
					report.Reports = append(report.Reports, succeeded(l))
				}
				again(func() error {
					resp, err := m.dispatch.ReportTask(ctx, report)
					for _, r := range resp.GetResults() {
						if code := r.GetCode(); code != pb.ReportCode_REPORT_CODE_OK && code != pb.ReportCode_REPORT_CODE_ALREADY_REPORTED {
							t.Errorf("report: %v", r)
						}
						done.Add(1)
					}
					return err
				})
			}
		})
	}
	for round := range 12 {
		g.members[round%3].server.Detach()
		g.own(t, (round+1)%3)
		before := done.Load()
		again(func() error { _, err := g.members[round%3].tasks.SubmitTasks(ctx, submit); return err })
		eventually(t, "work goes on", func() bool { return done.Load() >= before+20 })
	}
	eventually(t, "all is done", func() bool {
		stats, err := g.store.Stats(t.Context())
		return err == nil && stats.Counts.Done == 100
	})
	stop()
	wg.Wait()
}

// An address that the owner on another machine cannot reach is refused.
func TestServer_Follow_unreachable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		own, owner string
		refused    bool
	}{
		{"127.0.0.1:0", "192.0.2.1:7070", true},
		{"unix:" + t.TempDir() + "/s", "192.0.2.1:7070", true},
		{"127.0.0.1:0", "127.0.0.1:7070", false},
		{"127.0.0.1:0", "unix:/run/waggle", false},
	} {
		s, err := server.New(server.Config{Listen: c.own, HTTP: server.Off}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- s.Run(ctx) }()
		if err := s.Follow(server.Owner{Name: "d1", Address: c.owner}); (err != nil) != c.refused {
			t.Errorf("%s follows %s: %v", c.own, c.owner, err)
		}
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	}
}
