package root_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// withUser lets a server know a user waggle with the password pa55.
func withUser() redistest.Option {
	return redistest.WithConfig("user", "waggle on >pa55 ~* &* +@all")
}

// urlOf is the URL of a server for the user of withUser.
func urlOf(server *redistest.Server) string {
	return strings.Replace(server.URL(), "redis://", "redis://waggle:pa55@", 1)
}

// waiting is a dispatcher whose store is away.
type waiting struct {
	*clitest.Background
	http   string
	calls  pb.DispatchServiceClient
	health grpc_health_v1.HealthClient
}

// startWaiting starts a dispatcher, and wants it to wait for its store: it serves probes, refuses calls with an error
// that asks to come again, and warns of what it waits for, without the password.
func startWaiting(t *testing.T, store, because string) *waiting {
	t.Helper()
	d := clitest.Start(t, nil, "serve", "--store", store, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-format", "json")
	conn := clitest.Connect(t, map[string]string{"WAGGLE_SERVER": clitest.Address(t, d)})
	w := &waiting{
		Background: d, http: d.Err.Line(t, `"listening".*"http":"([^"]+)"`)[1],
		calls: pb.NewDispatchServiceClient(conn), health: grpc_health_v1.NewHealthClient(conn),
	}
	d.Err.Line(t, `"warn".*redis://waggle:xxxxx@127\.0\.0\.1:\d+/0.*`+because)
	if strings.Contains(d.Err.Text(), "pa55") {
		t.Errorf("the log has the password:\n%s", d.Err.Text())
	}
	if code, text := w.probe(t, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d %s", code, text)
	}
	if code, text := w.probe(t, "/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("/readyz: %d %s", code, text)
	}
	if _, text := w.probe(t, "/metrics"); !strings.Contains(text, "waggle_store_up 0") {
		t.Errorf("the metrics do not say that the store is away:\n%s", text)
	}
	for _, service := range []string{"", pb.DispatchService_ServiceDesc.ServiceName} {
		reply, err := w.health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
		if err != nil || reply.GetStatus() != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
			t.Errorf("health of %q: %v, %v", service, reply, err)
		}
	}
	_, err := w.calls.FetchTask(t.Context(), fetchOne())
	wantUnavailable(t, "FetchTask", err)
	stream, err := w.calls.Heartbeat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	wantUnavailable(t, "Heartbeat", err)
	return w
}

func fetchOne() *pb.FetchTaskRequest {
	return &pb.FetchTaskRequest{CollectorId: "c", Session: "s", ClientToken: uuid.NewString()}
}

// wantUnavailable wants a call to be refused since the store is away, and asked to come again.
func wantUnavailable(t *testing.T, call string, err error) {
	t.Helper()
	var reason string
	var retry time.Duration
	for _, detail := range status.Convert(err).Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			reason = d.GetReason()
		case *errdetails.RetryInfo:
			retry = d.GetRetryDelay().AsDuration()
		}
	}
	if status.Code(err) != codes.Unavailable || reason != "STORE_UNAVAILABLE" || retry <= 0 {
		t.Errorf("%s while the store is away: %v, reason %q, retry after %v", call, err, reason, retry)
	}
}

// probe asks the dispatcher's HTTP address.
func (w *waiting) probe(t *testing.T, path string) (code int, text string) {
	t.Helper()
	reply, err := http.Get("http://" + w.http + path)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply.StatusCode, string(body)
}

// serves wants the dispatcher to serve, now that its store can be worked with.
func (w *waiting) serves(t *testing.T) {
	t.Helper()
	w.Err.Line(t, `"serving"`)
	if code, text := w.probe(t, "/readyz"); code != http.StatusOK {
		t.Errorf("/readyz of a dispatcher that serves: %d %s", code, text)
	}
	if _, text := w.probe(t, "/metrics"); !strings.Contains(text, "waggle_store_up 1") {
		t.Errorf("the metrics do not say that the store is there:\n%s", text)
	}
	if _, err := w.calls.FetchTask(t.Context(), fetchOne()); err != nil {
		t.Errorf("FetchTask of a dispatcher that serves: %v", err)
	}
	if code := w.End(); code != cli.ExitOK {
		t.Errorf("exit code %d after a drain:\n%s", code, w.Err.Text())
	}
}

// A dispatcher that is there before its Redis serves once that is there, too.
func TestServe_RedisStartsLater(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, withUser())
	server.Kill()
	w := startWaiting(t, urlOf(server), "refused")
	server.Restart()
	w.serves(t)
}

// A dispatcher whose Redis still reads its files waits until that has read them.
func TestServe_RedisLoads(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, withUser(), redistest.WithConfig("rdbcompression", "no"),
		redistest.WithConfig("loading-process-events-interval-bytes", "1024"), // after which clients are answered
		redistest.WithConfig("key-load-delay", "10000"))                       // in µs
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), DialerRetries: 1})
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	fill := client.Pipeline()
	for i := range 1500 {
		fill.Set(t.Context(), fmt.Sprint("filler:", i), strings.Repeat("x", 2048), 0)
	}
	fill.Save(t.Context())
	if _, err := fill.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	store := urlOf(server)
	server.Kill()
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		server.Restart() // until it has read its file
	}()
	for answer := client.Ping(t.Context()); !redis.HasErrorPrefix(answer.Err(), "LOADING"); answer = client.Ping(t.Context()) {
		if answer.Err() == nil {
			t.Fatal("redis has its file read before the dispatcher starts")
		}
	}
	w := startWaiting(t, store, "LOADING")
	if err := client.ConfigSet(t.Context(), "key-load-delay", "0").Err(); err != nil {
		t.Error(err)
	}
	<-loaded
	w.serves(t)
}

// A dispatcher that waits for its Redis ends by the signal, at once.
func TestServe_EndsWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	t.Run("refuses", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, withUser())
		server.Kill()
		w := startWaiting(t, urlOf(server), "refused")
		if code := w.End(); code != cli.ExitOK {
			t.Errorf("exit code %d:\n%s", code, w.Err.Text())
		}
	})
	t.Run("hangs", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, withUser())
		server.Pause()
		w := startWaiting(t, urlOf(server), "timeout")
		if code := w.End(); code != cli.ExitOK {
			t.Errorf("exit code %d:\n%s", code, w.Err.Text())
		}
	})
}

// The password for the Sentinels is in no log either.
func TestServe_SentinelsAreAway(t *testing.T) {
	t.Parallel()
	d := clitest.Start(t, nil, "serve", "--store", "redis+sentinel://127.0.0.1:1/main?sentinel_password=pa55", "--listen", "127.0.0.1:0", "--http", "off")
	d.Err.Line(t, `the store is away`)
	if code := d.End(); code != cli.ExitOK || strings.Contains(d.Err.Text(), "pa55") {
		t.Errorf("exit code %d, log\n%s", code, d.Err.Text())
	}
}

// What no waiting mends ends a dispatcher, also one that has waited.
func TestServe_RedisRefuses(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithConfig("user", "waggle on >pa55 ~* &* +@all"),
		redistest.WithConfig("user", "poor on >pa55 ~* &* +@all -mget"))
	addr := server.Addr()
	replica := redistest.Start(t, redistest.WithConfig("replicaof", strings.ReplaceAll(addr, ":", " ")))
	for name, c := range map[string]struct {
		store string
		code  int
		says  []string
	}{
		"wrong password":     {"redis://waggle:other@" + addr, cli.ExitFailed, []string{"WRONGPASS", "redis://waggle:xxxxx@" + addr}},
		"missing permission": {"redis://poor:pa55@" + addr, cli.ExitFailed, []string{"NOPERM"}},
		"unknown host":       {"redis://waggle:pa55@no-such-host.invalid:6379", cli.ExitFailed, []string{"no-such-host.invalid", "no such host"}},
		"unknown hosts":      {"redis+cluster://waggle:pa55@no-such-host.invalid,no-other.invalid", cli.ExitFailed, []string{"no such host"}},
		"unknown sentinels":  {"redis+sentinel://no-such-host.invalid,no-other.invalid/main", cli.ExitFailed, []string{"no such host"}},
		"port out of range":  {"redis://waggle:pa55@127.0.0.1:99999", cli.ExitUsage, []string{"--store", "99999"}},
		"port with a name":   {"redis+cluster://waggle:pa55@127.0.0.1:six,127.0.0.1:7", cli.ExitUsage, []string{"--store", "six"}},
		"no Cluster":         {"redis+cluster://waggle:pa55@" + addr, cli.ExitFailed, []string{"cluster support disabled"}},
		"replica":            {replica.URL(), cli.ExitFailed, []string{"is a replica", "redis+sentinel://"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := clitest.Start(t, nil, "serve", "--store", c.store, "--listen", "127.0.0.1:0", "--http", "off")
			code := d.Wait()
			clitest.WantFailure(t, clitest.Answer{Code: code, Err: d.Err.Text()}, c.code, c.says...)
			if strings.Contains(d.Err.Text(), "pa55") || strings.Contains(d.Err.Text(), ":other@") {
				t.Errorf("tells the password: %s", d.Err.Text())
			}
		})
	}
	t.Run("after a wait", func(t *testing.T) {
		t.Parallel()
		evicts := redistest.Start(t, withUser(), redistest.WithMaxMemory(100<<20), redistest.WithConfig("maxmemory-policy", "allkeys-lru"))
		evicts.Kill()
		w := startWaiting(t, urlOf(evicts), "refused")
		evicts.Restart()
		clitest.WantFailure(t, clitest.Answer{Code: w.Wait(), Err: w.Err.Text()}, cli.ExitFailed, "allkeys-lru", "--allow-eviction")
	})
}
