package server_test

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// A drain answers parked fetches, takes reports to the last, and ends once
// nothing is left to report and nobody has a call open.
func TestServer_Run_drain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{})
		leased := b.leased(t)
		stream := open(t, b)
		exchange(t, stream, beatOf(held(leased)))
		type answer struct {
			resp *pb.FetchTaskResponse
			err  error
		}
		parked := make(chan answer, 1)
		go func() {
			resp, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1", Wait: durationpb.New(30 * time.Second)})
			parked <- answer{resp, err}
		}()
		synctest.Wait()
		began := time.Now()
		b.stop()
		got := <-parked
		if got.err != nil || got.resp.GetEmptyReason() != pb.EmptyReason_EMPTY_REASON_DISPATCHER_DRAINING {
			t.Errorf("parked fetch: %v", got)
		}
		b.succeed(t, leased)
		if resp, err := stream.Recv(); err != nil || !resp.GetReconnect() {
			t.Fatalf("stream: %v, %v", resp, err)
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("stream: %v", err)
		}
		if err := <-b.stopped; err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("the drain took %v", took)
		}
	})
}

// The only dispatcher takes new calls in a drain while reports come, on connections old and new, until a twentieth of its
// timeout passed without one and no collector stops as well, for a quarter at most.
func TestServer_Run_drainTakesReports(t *testing.T) {
	t.Parallel()
	const tasks = 8
	for name, test := range map[string]struct {
		each    time.Duration // from one report to the next
		reports int           // of the tasks
		rest    time.Duration // from the last one to the end
		stops   bool          // the collector
	}{
		"all are reported":              {each: 500 * time.Millisecond, reports: tasks},
		"half are":                      {each: 500 * time.Millisecond, reports: tasks / 2, rest: time.Second},
		"none is":                       {rest: time.Second},
		"they take too long":            {each: 800 * time.Millisecond, reports: 6, rest: 200 * time.Millisecond},
		"none is, the collector stops":  {rest: 5 * time.Second, stops: true},
		"half are, the collector stops": {each: 500 * time.Millisecond, reports: tasks / 2, rest: 3 * time.Second, stops: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, server.Config{DrainTimeout: 20 * time.Second})
				b.source(t, "news")
				var urls []string
				for n := range tasks {
					urls = append(urls, fmt.Sprintf("https://%d.example/", n))
				}
				b.submit(t, "news", urls...)
				leased := b.fetch(t, tasks)
				began := time.Now()
				b.stop()
				synctest.Wait()
				answer, err := b.dispatch.RenewLease(t.Context(), &pb.RenewLeaseRequest{
					Collector: &pb.CollectorInfo{Id: "c1", Session: "s1"}, Leases: []*pb.LeaseBeat{held(leased[0]), held(leased[1])},
				})
				if err != nil || answer.GetStatus().GetLeaseDuration().AsDuration() != 30*time.Second {
					t.Errorf("a beat in the drain: %v, %v", answer, err)
				}
				fetched, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1"})
				if err != nil || fetched.GetEmptyReason() != pb.EmptyReason_EMPTY_REASON_DISPATCHER_DRAINING {
					t.Errorf("a fetch in the drain: %v, %v", fetched, err)
				}
				closeConn(t, b.conn)
				b.connect(t)
				stream := open(t, b)
				beat := beatOf(held(leased[0]))
				beat.Collector.Stopping = test.stops
				if got := exchange(t, stream, beat); got.GetReconnect() || got.GetStatus().GetLeaseDuration() == nil {
					t.Errorf("the first beat of a stream of a new connection: %v", got)
				}
				reported := make(chan time.Time, 1)
				go func() {
					for n := range test.reports {
						time.Sleep(test.each) // virtual
						b.succeed(t, leased[n])
					}
					reported <- began.Add(time.Duration(test.reports) * test.each)
				}()
				if got, err := stream.Recv(); err != nil || !got.GetReconnect() {
					t.Errorf("the stream in the end: %v, %v", got, err)
				}
				if err := stream.CloseSend(); err != nil {
					t.Error(err)
				}
				if err := <-b.stopped; err != nil {
					t.Errorf("Run: %v", err)
				}
				if rest := time.Since(<-reported); rest < test.rest || rest > test.rest+200*time.Millisecond {
					t.Errorf("the drain ended %v after the last report, want %v", rest, test.rest)
				}
			})
		})
	}
}

// A call that does not end holds the drain no longer than its timeout.
func TestServer_Run_drainTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{DrainTimeout: 10 * time.Second})
		stuck := make(chan struct{})
		b.store.breakCall("ListLeases", func() error { <-stuck; return nil })
		ended := make(chan error, 1)
		go func() {
			_, err := b.admin.ListLeases(t.Context(), &pb.ListLeasesRequest{})
			ended <- err
		}()
		synctest.Wait()
		began := time.Now()
		b.stop()
		if err := <-ended; err == nil {
			t.Error("the stuck call succeeded")
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("the stuck call was ended after %v, want 10 s", took)
		}
		if n := b.logs.FilterMessage("serving").Len(); n != 1 {
			t.Errorf("the log says %d times that it serves, want once, before the drain", n)
		}
		close(stuck)
		if err := <-b.stopped; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// Watches of health do not hold a drain.
func TestServer_Run_drainWithHealthWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{})
		watch, err := b.health.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for {
			resp, err := watch.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if resp.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING {
				break
			}
		}
		began := time.Now()
		b.stop()
		for err == nil {
			_, err = watch.Recv()
		}
		wantFault(t, err, codes.Unavailable, "DISPATCHER_DRAINING")
		if err := <-b.stopped; err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("the drain took %v", took)
		}
	})
}

// Health follows the store, for the server and for each service.
func TestServer_health(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{HealthInterval: time.Second})
		check := func(want grpc_health_v1.HealthCheckResponse_ServingStatus) {
			t.Helper()
			for _, service := range []string{"", "waggle.v1.DispatchService", "waggle.v1.TaskService", "waggle.v1.SourceService", "waggle.v1.QueueService", "waggle.v1.AdminService"} {
				resp, err := b.health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
				if err != nil || resp.GetStatus() != want {
					t.Errorf("%q is %v, %v; want %v", service, resp.GetStatus(), err, want)
				}
			}
		}
		time.Sleep(10 * time.Millisecond) // virtual
		check(grpc_health_v1.HealthCheckResponse_SERVING)
		b.store.breakCall("Ping", func() error { return dispatch.ErrStoreUnavailable })
		time.Sleep(time.Second) // virtual
		check(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
		b.store.breakCall("Ping", nil)
		time.Sleep(time.Second) // virtual
		check(grpc_health_v1.HealthCheckResponse_SERVING)
	})
}

// network is a server on real ports.
type network struct {
	*server.Server
	store   *faults
	stop    context.CancelFunc
	stopped chan error
}

func onNetwork(t testing.TB, cfg server.Config) *network {
	t.Helper()
	n := &network{store: newStore(t), stopped: make(chan error, 1)}
	cfg.Listen, cfg.Metrics = cmp.Or(cfg.Listen, "127.0.0.1:0"), server.NewMetrics()
	d, err := engine.New(engine.Config{Store: n.store, ID: "d1", Observer: cfg.Metrics})
	if err != nil {
		t.Fatal(err)
	}
	if n.Server, err = server.New(cfg, operate.New(d), zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	if err := n.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	loops, stopLoops := context.WithCancel(context.WithoutCancel(t.Context()))
	serving, stop := context.WithCancel(loops)
	ran := make(chan error, 1)
	n.stop = stop
	go func() { ran <- d.Run(loops, operate.New(d).Chores()...) }()
	go func() { n.stopped <- n.Run(serving); close(n.stopped) }()
	t.Cleanup(func() {
		stop()
		if err := <-n.stopped; err != nil {
			t.Errorf("Run: %v", err)
		}
		stopLoops()
		if err := <-ran; err != nil {
			t.Errorf("dispatcher: %v", err)
		}
	})
	return n
}

func (n *network) get(t *testing.T, path string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + n.HTTPAddress() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// A store that is away fails every call; the log has the change of health and a
// few of the calls.
func TestServer_logsAnOutageShortly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{HealthInterval: time.Second})
		time.Sleep(10 * time.Millisecond) // virtual
		away := func() error { return dispatch.ErrStoreUnavailable }
		b.store.breakCall("Ping", away)
		b.store.breakCall("ListLeases", away)
		for range 300 {
			if _, err := b.admin.ListLeases(t.Context(), &pb.ListLeasesRequest{}); err == nil {
				t.Fatal("a call succeeded")
			}
			time.Sleep(10 * time.Millisecond) // virtual
		}
		if n := b.logs.FilterMessage("finished call").FilterLevelExact(zap.WarnLevel).Len(); n < 1 || n > 10 {
			t.Errorf("300 calls that failed within 3 s left %d lines, want 1 to 10", n)
		}
		if n := b.logs.FilterMessage("not serving").Len(); n != 1 {
			t.Errorf("the log says %d times that it does not serve, want once", n)
		}
	})
}

func TestServer_HTTP(t *testing.T) {
	t.Parallel()
	n := onNetwork(t, server.Config{HTTP: "127.0.0.1:0", HealthInterval: 10 * time.Millisecond, StatsInterval: time.Millisecond})
	eventually(t, "ready", func() bool { code, _ := n.get(t, "/readyz"); return code == http.StatusOK })

	conn, err := grpc.NewClient(n.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeConn(t, conn) })
	_, err = pb.NewSourceServiceClient(conn).CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: &pb.SourceSpec{
		Id: "news.very-own", Seeds: []*pb.Seed{{Url: "https://very-own.example/"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = pb.NewDispatchServiceClient(conn).FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "very-own", Session: "s1", Wait: durationpb.New(0)})
	if err != nil {
		t.Fatal(err)
	}

	t.Run("metrics", func(t *testing.T) {
		code, text := n.get(t, "/metrics")
		if code != http.StatusOK {
			t.Fatalf("%d %s", code, text)
		}
		for _, want := range []string{
			`waggle_tasks{state="leased"} 1`, "waggle_store_up 1", "waggle_leases_granted_total 1", "waggle_fetched_tasks_total 1",
			`waggle_fetch_wait_seconds_count{granted="true"} 1`, `waggle_shed_calls_total{class="submit"} 0`, "waggle_heartbeat_streams 0",
			`rpc_server_call_duration_seconds_count{rpc_method="waggle.v1.DispatchService/FetchTask",rpc_response_status_code="OK",rpc_system_name="grpc"} 1`,
			"go_goroutines",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("no %s", want)
			}
		}
		if strings.Contains(text, "very-own") {
			t.Error("a metric is labeled by source, queue or collector")
		}
	})
	t.Run("store away", func(t *testing.T) {
		n.store.breakCall("Ping", func() error { return dispatch.ErrStoreUnavailable })
		n.store.breakCall("Stats", func() error { return dispatch.ErrStoreUnavailable })
		eventually(t, "not ready", func() bool {
			code, text := n.get(t, "/readyz")
			return code == http.StatusServiceUnavailable && strings.Contains(text, "store unavailable")
		})
		if code, _ := n.get(t, "/healthz"); code != http.StatusOK {
			t.Errorf("healthz is %d", code)
		}
		if _, text := n.get(t, "/metrics"); !strings.Contains(text, "waggle_store_up 0") || strings.Contains(text, "waggle_tasks{") {
			t.Error("metrics show counts of a store that is away")
		}
	})
}

func TestServer_Listen_portInUse(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := taken.Addr().String()
	for field, cfg := range map[string]server.Config{
		"Listen": {Listen: address, HTTP: server.Off},
		"HTTP":   {Listen: "127.0.0.1:0", HTTP: address},
	} {
		t.Run(field, func(t *testing.T) {
			d, err := engine.New(engine.Config{Store: newStore(t), ID: "d1"})
			if err != nil {
				t.Fatal(err)
			}
			s, err := server.New(cfg, operate.New(d), nil)
			if err != nil {
				t.Fatal(err)
			}
			err = s.Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), address) || !strings.Contains(err.Error(), "in use") || !strings.Contains(err.Error(), field) {
				t.Errorf("got %v", err)
			}
			if s.Address() != "" || s.HTTPAddress() != "" {
				t.Errorf("addresses %q and %q", s.Address(), s.HTTPAddress())
			}
		})
	}
}

func TestServer_TLS(t *testing.T) {
	t.Parallel()
	certFile, keyFile, pool := keyPair(t)
	n := onNetwork(t, server.Config{HTTP: server.Off, TLSCertFile: certFile, TLSKeyFile: keyFile})
	conn, err := grpc.NewClient(n.Address(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeConn(t, conn) })
	if _, err := pb.NewAdminServiceClient(conn).GetStats(t.Context(), &pb.GetStatsRequest{}); err != nil {
		t.Errorf("over TLS: %v", err)
	}
	plain, err := grpc.NewClient(n.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeConn(t, plain) })
	if _, err := pb.NewAdminServiceClient(plain).GetStats(t.Context(), &pb.GetStatsRequest{}); err == nil {
		t.Error("without TLS it was answered")
	}
}

// keyPair writes a certificate for 127.0.0.1.
func keyPair(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "waggle"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pool = x509.NewCertPool()
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(cert)
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "EC PRIVATE KEY", keyDER), pool
}

func closeConn(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}
