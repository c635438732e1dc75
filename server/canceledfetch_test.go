package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend/dir"
	"github.com/waggle-crawl/waggle/store/backend/redis"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// hundredTasks submits 100 tasks that can be leased at once, and returns the request to submit them again.
func hundredTasks(t *testing.T, conn grpc.ClientConnInterface) *pb.SubmitTasksRequest {
	t.Helper()
	rule := &pb.QueueRule{Pattern: "*", MinDelay: durationpb.New(0), MaxInFlight: proto.Int32(100)}
	if _, err := pb.NewQueueServiceClient(conn).SetQueueRule(t.Context(), &pb.SetQueueRuleRequest{Rule: rule}); err != nil {
		t.Fatal(err)
	}
	if _, err := pb.NewSourceServiceClient(conn).CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: &pb.SourceSpec{Id: "news"}}); err != nil {
		t.Fatal(err)
	}
	submit := &pb.SubmitTasksRequest{}
	for i := range 100 {
		submit.Items = append(submit.Items, &pb.SubmitItem{SourceId: "news", Url: fmt.Sprintf("https://h%d.example/%d", i%7, i), IfExists: pb.IfExists_IF_EXISTS_AGAIN})
	}
	if _, err := pb.NewTaskServiceClient(conn).SubmitTasks(t.Context(), submit); err != nil {
		t.Fatal(err)
	}
	return submit
}

// Tasks that a canceled FetchTask was granted are back within a second, whenever it is canceled.
func TestDispatchService_FetchTask_canceled(t *testing.T) {
	t.Parallel()
	for kind, make := range map[string]func() (dispatch.Store, error){
		"memory":    func() (dispatch.Store, error) { return store.New(store.Config{Shards: 2}) },
		"passed on": func() (dispatch.Store, error) { return store.New(store.Config{Shards: 2}) },
		"file": func() (dispatch.Store, error) {
			return store.Open(t.Context(), store.Config{Backend: dir.New(dir.Config{Dir: t.TempDir()})})
		},
		"redis": func() (dispatch.Store, error) {
			kept, err := redis.New(redis.Config{URL: redistest.Start(t).URL()})
			if err != nil {
				return nil, err
			}
			return store.Open(t.Context(), store.Config{Shards: 2, Backend: kept})
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			store, err := make()
			if err != nil {
				t.Fatal(err)
			}
			on := &faults{Store: store, broken: map[string]func() error{}}
			b := newBedOn
			if kind == "passed on" {
				b = func(t testing.TB, on *faults, _ string, cfg server.Config) *bed {
					t.Helper()
					return newGroupOn(t, on, 2, cfg).members[1].bed
				}
			}
			testCanceled(t, b(t, on, "d1", server.Config{}))
		})
	}
}

func testCanceled(t *testing.T, b *bed) {
	submit := hundredTasks(t, b.conn)
	random := rand.New(rand.NewPCG(1, 2))
	canceled, usual := 0, 5*time.Millisecond // the time of a fetch
	for round := range 40 {
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(time.Duration(random.Float64()*1.2*float64(usual)), cancel)
		began := time.Now()
		answer, err := b.dispatch.FetchTask(ctx, &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1", MaxTasks: 100})
		timer.Stop()
		cancel()
		if err != nil {
			canceled++
		} else {
			usual = (3*usual + time.Since(began)) / 4
			b.succeed(t, answer.GetLeasedTasks()...)
			if _, err := b.tasks.SubmitTasks(t.Context(), submit); err != nil {
				t.Fatal(err)
			}
		}
		leased := func() int64 {
			stats, err := b.store.Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return stats.Counts.Leased
		}
		within(t, time.Second, fmt.Sprintf("round %d: nothing is leased", round), func() bool { return leased() == 0 })
	}
	if canceled == 0 {
		t.Error("no fetch was canceled")
	}
}

// gated is a connection that delivers no answers with tasks while its gate is locked. What is smaller passes: it may come ahead.
type gated struct {
	net.Conn
	gate *sync.RWMutex
	came *atomic.Int64 // bytes, also those that wait
}

func (g *gated) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	g.came.Add(int64(n))
	if n > 1000 {
		g.gate.RLock()
		defer g.gate.RUnlock()
	}
	return n, err
}

// A call may be canceled after it was answered and before the answer has arrived. Its tasks go back; those of a call
// whose answer arrived stay.
func TestDispatchService_FetchTask_canceledAnswered(t *testing.T) {
	t.Parallel()
	for name, secured := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := server.Config{HTTP: server.Off}
			var pool *x509.CertPool
			creds := insecure.NewCredentials()
			if secured {
				cfg.TLSCertFile, cfg.TLSKeyFile, pool = keyPair(t)
				creds = credentials.NewTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
			}
			n := onNetwork(t, cfg)
			var gate sync.RWMutex
			var came atomic.Int64
			conn, err := grpc.NewClient(n.Address(), grpc.WithTransportCredentials(creds), grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
				return &gated{conn, &gate, &came}, err
			}))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { closeConn(t, conn) })
			hundredTasks(t, conn)
			leased := func(want int64) func() bool {
				return func() bool {
					stats, err := n.store.Stats(t.Context())
					return err == nil && stats.Counts.Leased == want
				}
			}
			dispatch := pb.NewDispatchServiceClient(conn)
			ask := &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1", MaxTasks: 30}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if answer, err := dispatch.FetchTask(ctx, ask); err != nil || len(answer.GetLeasedTasks()) != 30 {
				t.Fatalf("%v, %v", answer, err)
			}
			gate.Lock()
			came.Store(0)
			ended := make(chan error, 1)
			go func() {
				_, err := dispatch.FetchTask(ctx, ask)
				ended <- err
			}()
			eventually(t, "the second fetch is granted", leased(60))
			eventually(t, "and answered", func() bool { return came.Load() > 3000 }) // 100 bytes a task
			cancel()
			err = <-ended
			gate.Unlock()
			if status.Code(err) != codes.Canceled {
				t.Fatalf("the canceled fetch: %v", err)
			}
			within(t, time.Second, "its tasks, and no others, are back", leased(30))
		})
	}
}
