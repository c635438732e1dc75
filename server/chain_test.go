package server_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// Every method that is served has a policy, and every policy a method.
func TestServer_policies(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{Reflection: true})
	policies := server.Policies()
	methods := b.server.Methods()
	for _, method := range methods {
		if !policies[method] {
			t.Errorf("%s has no policy", method)
		}
	}
	for method := range policies {
		if !slices.Contains(methods, method) {
			t.Errorf("the policy of %s is of no method", method)
		}
	}
}

// A method without a policy is refused.
func TestServer_policies_failClosed(t *testing.T) {
	t.Parallel()
	memory := newStore(t)
	d, err := engine.New(engine.Config{Store: memory, ID: "d1"})
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{store: memory}
	if b.server, err = server.New(server.Config{}, operate.New(d), nil); err != nil {
		t.Fatal(err)
	}
	called := false
	b.server.Register(&grpc.ServiceDesc{
		ServiceName: "test.Unlisted", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Call", Handler: func(_ any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			in := new(pb.GetStatsRequest)
			if err := decode(in); err != nil {
				return nil, err
			}
			return interceptor(ctx, in, &grpc.UnaryServerInfo{FullMethod: "/test.Unlisted/Call"}, func(context.Context, any) (any, error) {
				called = true
				return &pb.GetStatsResponse{}, nil
			})
		}}},
		Streams: []grpc.StreamDesc{{StreamName: "Stream", ServerStreams: true, ClientStreams: true, Handler: func(any, grpc.ServerStream) error {
			called = true
			return nil
		}}},
	}, struct{}{})
	b.run(t, d)
	err = b.conn.Invoke(t.Context(), "/test.Unlisted/Call", &pb.GetStatsRequest{}, &pb.GetStatsResponse{})
	if f := faultOf(t, err); f.code != codes.PermissionDenied || !strings.Contains(f.message, "/test.Unlisted/Call") {
		t.Errorf("got %v", err)
	}
	stream, err := b.conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/test.Unlisted/Stream")
	if err != nil {
		t.Fatal(err)
	}
	if f := faultOf(t, stream.RecvMsg(&pb.GetStatsResponse{})); f.code != codes.PermissionDenied {
		t.Errorf("got %v", f)
	}
	if called {
		t.Error("a method without a policy was called")
	}
}

// faultLines are the log lines at level error.
func faultLines(b *bed) []map[string]any {
	var out []map[string]any
	for _, line := range b.logs.FilterLevelExact(zapcore.ErrorLevel).All() {
		out = append(out, line.ContextMap())
	}
	return out
}

// An unknown error and a panic are INTERNAL with nothing of theirs, and logged
// once under the id that the caller got.
func TestServer_faults(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func() error{
		"unknown error": func() error { return errors.New("secret of the store") },
		"panic":         func() error { panic("secret of the store") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, server.Config{})
			b.store.breakCall("ListLeases", fault)
			_, err := b.admin.ListLeases(t.Context(), &pb.ListLeasesRequest{})
			f := wantFault(t, err, codes.Internal, "INTERNAL")
			if strings.Contains(f.message, "secret") || f.metadata["error_id"] == "" || !strings.Contains(f.message, f.metadata["error_id"]) {
				t.Errorf("%q, %v", f.message, f.metadata)
			}
			eventually(t, "it is logged", func() bool { return len(faultLines(b)) > 0 })
			lines := faultLines(b)
			if len(lines) != 1 || lines[0]["error_id"] != f.metadata["error_id"] || !strings.Contains(lines[0]["cause"].(string), "secret") {
				t.Errorf("lines %v", lines)
			}
			if _, ok := lines[0]["stack"]; ok != (name == "panic") {
				t.Errorf("stack in %v", lines[0])
			}
			b.store.breakCall("ListLeases", nil)
			if _, err := b.admin.ListLeases(t.Context(), &pb.ListLeasesRequest{}); err != nil {
				t.Errorf("the next call: %v", err)
			}
		})
	}
}

// What the store cannot do is told as what it is, with a time to wait.
func TestServer_storeFaults(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.source(t, "news")
	submit := func() error {
		_, err := b.tasks.SubmitTasks(t.Context(), &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{{SourceId: "news", Url: "http://a.com"}}})
		return err
	}
	for _, broken := range []struct {
		err    error
		code   codes.Code
		reason string
	}{
		{dispatch.ErrStoreFull, codes.ResourceExhausted, "STORE_FULL"},
		{dispatch.ErrStoreUnavailable, codes.Unavailable, "STORE_UNAVAILABLE"},
	} {
		b.store.breakCall("Submit", func() error { return broken.err })
		wantFault(t, submit(), broken.code, broken.reason)
		b.store.breakCall("BeginPoll", func() error { return broken.err })
		_, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1", Wait: durationpb.New(0)})
		wantFault(t, err, broken.code, broken.reason)
	}
	b.store.breakCall("Submit", nil)
	b.store.breakCall("BeginPoll", nil)
	if err := submit(); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// Load sheds submits and reads first, then fetches, and never renewals, reports
// and steering.
func TestServer_overload(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{Busy: 10})
	leased := b.leased(t)
	ctx := t.Context()
	submit := func() error {
		_, err := b.tasks.SubmitTasks(ctx, &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{{SourceId: "news", Url: "http://a.com"}}})
		return err
	}
	read := func() error { _, err := b.admin.GetStats(ctx, &pb.GetStatsRequest{}); return err }
	fetch := func() error {
		_, err := b.dispatch.FetchTask(ctx, &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1", Wait: durationpb.New(0)})
		return err
	}
	kept := func(t *testing.T) {
		t.Helper()
		_, renew := b.dispatch.RenewLease(ctx, &pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: "c1", Session: "s1"}, Leases: []*pb.LeaseBeat{held(leased)}})
		_, report := b.dispatch.ReportTask(ctx, &pb.ReportTaskRequest{CollectorId: "c1", Session: "s1", Reports: []*pb.TaskReport{succeeded(leased)}})
		_, hold := b.holds.SetHolds(ctx, &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{{Pool: "none"}}})
		_, health := b.health.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err := errors.Join(renew, report, hold, health); err != nil {
			t.Errorf("shed: %v", err)
		}
	}
	t.Run("busy", func(t *testing.T) {
		defer b.server.HoldCalls(10)()
		f := wantFault(t, submit(), codes.ResourceExhausted, "RATE_LIMITED")
		if f.metadata["limit"] != "10" || f.metadata["method"] != pb.TaskService_SubmitTasks_FullMethodName {
			t.Errorf("metadata %v", f.metadata)
		}
		wantFault(t, read(), codes.ResourceExhausted, "RATE_LIMITED")
		if err := fetch(); err != nil {
			t.Errorf("fetch was shed: %v", err)
		}
		kept(t)
	})
	t.Run("twice as busy", func(t *testing.T) {
		defer b.server.HoldCalls(20)()
		wantFault(t, fetch(), codes.ResourceExhausted, "RATE_LIMITED")
		kept(t)
	})
	t.Run("after it", func(t *testing.T) {
		if err := errors.Join(submit(), read(), fetch()); err != nil {
			t.Error(err)
		}
	})
}

// So many calls of a class run at once, and no more; other classes are not told.
func TestServer_callsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{MaxReads: 1, MaxSubmits: 1})
		b.source(t, "news")
		stuck := make(chan struct{})
		release := sync.OnceFunc(func() { close(stuck) })
		defer release()
		ctx, cancel := withTimeout(t, time.Minute)
		defer cancel()
		wait := func() error { <-stuck; return nil }
		b.store.breakCall("ListLeases", wait)
		b.store.breakCall("Submit", wait)
		read := func() error { _, err := b.admin.ListLeases(ctx, &pb.ListLeasesRequest{}); return err }
		submit := func() error {
			_, err := b.tasks.SubmitTasks(ctx, &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{{SourceId: "news", Url: "http://a.com"}}})
			return err
		}
		ended := make(chan error, 2)
		for _, call := range []func() error{read, submit} {
			go func() { ended <- call() }()
			synctest.Wait()
			if f := wantFault(t, call(), codes.ResourceExhausted, "RATE_LIMITED"); f.metadata["limit"] != "1" {
				t.Errorf("metadata %v", f.metadata)
			}
		}
		release()
		if err := errors.Join(<-ended, <-ended, read(), submit()); err != nil {
			t.Error(err)
		}
	})
}

func TestServer_rates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{ReadsPerSecond: 2})
		read := func() error {
			_, err := b.admin.GetStats(t.Context(), &pb.GetStatsRequest{})
			return err
		}
		if err := errors.Join(read(), read()); err != nil {
			t.Fatal(err)
		}
		f := wantFault(t, read(), codes.ResourceExhausted, "RATE_LIMITED")
		if f.metadata["limit"] != "2" {
			t.Errorf("metadata %v", f.metadata)
		}
		time.Sleep(f.retry) // virtual
		if err := read(); err != nil {
			t.Errorf("after %v: %v", f.retry, err)
		}
	})
}

func TestServer_reflection(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{true, false} {
		b := newBed(t, server.Config{Reflection: on})
		stream, err := grpc_reflection_v1.NewServerReflectionClient(b.conn).ServerReflectionInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
			MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{},
		})
		// A stream that was refused already ends with EOF here, and says why to who receives.
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		resp, err := stream.Recv()
		if !on {
			wantFault(t, err, codes.Unimplemented, "")
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, service := range resp.GetListServicesResponse().GetService() {
			names = append(names, service.GetName())
		}
		for _, want := range []string{"waggle.v1.DispatchService", "waggle.v1.AdminService", "grpc.health.v1.Health"} {
			if !slices.Contains(names, want) {
				t.Errorf("services %v", names)
			}
		}
	}
}
