package server_test

import (
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// newUnattached serves without a dispatcher until the test attaches d.
func newUnattached(t *testing.T) (b *bed, d *engine.Dispatcher) {
	t.Helper()
	b = &bed{store: newStore(t)}
	d, err := engine.New(engine.Config{Store: b.store, ID: "d1"})
	if err != nil {
		t.Fatal(err)
	}
	if b.server, err = server.New(server.Config{}, nil, nil); err != nil {
		t.Fatal(err)
	}
	b.run(t, d)
	return b, d
}

// A server without a dispatcher refuses calls of every kind, and serves from the moment
// that it has one.
func TestServer_Attach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, d := newUnattached(t)
		health := func() grpc_health_v1.HealthCheckResponse_ServingStatus {
			resp, err := b.health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "waggle.v1.DispatchService"})
			if err != nil {
				t.Fatal(err)
			}
			return resp.GetStatus()
		}
		fetch := &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1"}
		calls := map[string]func() error{
			"FetchTask":    func() error { _, err := b.dispatch.FetchTask(t.Context(), fetch); return err },
			"RenewLease":   func() error { _, err := b.dispatch.RenewLease(t.Context(), &pb.RenewLeaseRequest{}); return err },
			"SubmitTasks":  func() error { _, err := b.tasks.SubmitTasks(t.Context(), &pb.SubmitTasksRequest{}); return err },
			"ListSources":  func() error { _, err := b.sources.ListSources(t.Context(), &pb.ListSourcesRequest{}); return err },
			"SetQueueRule": func() error { _, err := b.queues.SetQueueRule(t.Context(), &pb.SetQueueRuleRequest{}); return err },
			"GetStats":     func() error { _, err := b.admin.GetStats(t.Context(), &pb.GetStatsRequest{}); return err },
			"Heartbeat":    func() error { _, err := open(t, b).Recv(); return err },
		}
		for name, call := range calls {
			if f := wantFault(t, call(), codes.Unavailable, "STORE_UNAVAILABLE"); f.retry <= 0 {
				t.Errorf("%s does not ask to come again", name)
			}
		}
		if status := health(); status != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
			t.Errorf("health without a dispatcher: %v", status)
		}
		b.server.Attach(operate.New(d), 0)
		synctest.Wait()
		if status := health(); status != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("health with one: %v", status)
		}
		b.leased(t)
	})
}

// A dispatcher that comes when its server drains drains, too.
func TestServer_Attach_whileDraining(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, d := newUnattached(t)
		b.stop()
		synctest.Wait()
		b.server.Attach(operate.New(d), 0)
		if !d.Draining() {
			t.Error("the dispatcher does not drain")
		}
	})
}
