//go:build e2e

package e2e_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/collector"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/auth"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// replace replaces a file as a whole.
func replace(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// dialAs connects as a collector does.
func dialAs(t *testing.T, config collector.Config) *grpc.ClientConn {
	t.Helper()
	conn := dialer(t, config)()
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// dialer makes connections as a collector does.
func dialer(t *testing.T, config collector.Config) func() *grpc.ClientConn {
	t.Helper()
	return func() *grpc.ClientConn {
		conn, err := config.Dial()
		for ; err != nil && strings.Contains(err.Error(), "does not match"); conn, err = config.Dial() {
			<-time.After(10 * time.Millisecond) // a certificate and its key are being replaced, one after the other
		}
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
}

// TestRevoked takes a token from a collector that holds tasks: on two dispatchers its streams end and its calls are
// refused within a second, and its tasks go to another collector.
func TestRevoked(t *testing.T) {
	t.Parallel()
	const tasks = 10
	redis := redistest.Start(t)
	dir := t.TempDir()
	policy := func(names ...string) string {
		text := "grants: [{identity: token:ops, role: operator}, {identity: token:*, role: collector}]\ntokens:\n"
		for _, name := range names {
			text += fmt.Sprintf("- {name: %s, sha256: %s}\n", name, auth.HashToken("wgl_"+name))
		}
		return text
	}
	file := replace(t, filepath.Join(dir, "auth.yaml"), policy("ops", "stolen", "good"))
	var addrs []string
	for _, name := range []string{"d1", "d2"} {
		addrs = append(addrs, serve(t, name, redis.URL(), "waggle", "--auth", file).addr)
	}
	ops := dialAs(t, collector.Config{Targets: addrs[:1], Token: "wgl_ops"})
	if _, err := pb.NewSourceServiceClient(ops).CreateSource(t.Context(), &pb.CreateSourceRequest{
		Spec: &pb.SourceSpec{Id: "news", LeaseDuration: durationpb.New(3 * time.Second)},
	}); err != nil {
		t.Fatal(err)
	}
	var items []*pb.SubmitItem
	for i := range tasks {
		items = append(items, &pb.SubmitItem{SourceId: "news", Url: fmt.Sprintf("https://h%d.example/", i)})
	}
	if _, err := pb.NewTaskServiceClient(ops).SubmitTasks(t.Context(), &pb.SubmitTasksRequest{Items: items}); err != nil {
		t.Fatal(err)
	}
	fetchAll := func(name string, limit time.Duration) {
		conn := dialAs(t, collector.Config{Targets: addrs[:1], Token: "wgl_" + name})
		got := 0
		until(t, limit, name+" has all tasks", func() bool {
			reply, err := pb.NewDispatchServiceClient(conn).FetchTask(t.Context(), &pb.FetchTaskRequest{
				CollectorId: name, Session: "s", ClientToken: uuid.NewString(), MaxTasks: tasks, Wait: durationpb.New(time.Second),
			})
			if err != nil {
				t.Fatal(err)
			}
			got += len(reply.GetLeasedTasks())
			return got == tasks
		})
	}
	fetchAll("stolen", startLimit)

	type ended struct {
		what string
		err  error
		at   time.Time
	}
	ends := make(chan ended)
	for _, addr := range addrs {
		conn := dialAs(t, collector.Config{Targets: []string{addr}, Token: "wgl_stolen"})
		stream, err := pb.NewDispatchServiceClient(conn).Heartbeat(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&pb.HeartbeatRequest{Collector: &pb.CollectorInfo{Id: "stolen", Session: "s"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				if _, err := stream.Recv(); err != nil {
					ends <- ended{"the stream at " + addr, err, time.Now()}
					return
				}
			}
		}()
		go func() {
			for {
				if err := collectorCall(t.Context(), conn, "stolen"); err != nil {
					ends <- ended{"calls at " + addr, err, time.Now()}
					return
				}
			}
		}()
		go func() { // parked
			_, err := pb.NewDispatchServiceClient(conn).FetchTask(t.Context(), &pb.FetchTaskRequest{
				CollectorId: "stolen", Session: "s", ClientToken: uuid.NewString(), Wait: durationpb.New(30 * time.Second),
			})
			ends <- ended{"a parked fetch at " + addr, err, time.Now()}
		}()
	}
	began := time.Now()
	replace(t, file, policy("ops", "good"))
	for range 3 * len(addrs) {
		e := <-ends
		t.Logf("%s: %v after %.3f s", e.what, status.Code(e.err), e.at.Sub(began).Seconds())
		if status.Code(e.err) != codes.Unauthenticated || e.at.Sub(began) > time.Second {
			t.Errorf("%s: %v after %v, want UNAUTHENTICATED within a second", e.what, e.err, e.at.Sub(began))
		}
	}
	fetchAll("good", time.Minute)
	t.Logf("its tasks are another's after %.1f s", time.Since(began).Seconds())
}

// TestForeignLeases names a lease of another collector in batches and beats, with authentication and over each store: it is
// lost, the other items count, and its holder keeps it.
func TestForeignLeases(t *testing.T) {
	t.Parallel()
	redis, prefix := shared.Server(t)
	file := replace(t, filepath.Join(t.TempDir(), "auth.yaml"), fmt.Sprintf("grants: [{identity: token:*, role: operator}, {identity: token:*, role: collector}]\n"+
		"tokens: [{name: a, sha256: %s}, {name: b, sha256: %s}]\n", auth.HashToken("wgl_a"), auth.HashToken("wgl_b")))
	for kind, store := range map[string]string{"memory": "memory", "file": "file:" + t.TempDir(), "redis": redis.URL()} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			addr := serve(t, kind, store, prefix, "--auth", file).addr
			conn := dialAs(t, collector.Config{Targets: []string{addr}, Token: "wgl_a"})
			a, b := pb.NewDispatchServiceClient(conn), pb.NewDispatchServiceClient(dialAs(t, collector.Config{Targets: []string{addr}, Token: "wgl_b"}))
			if _, err := pb.NewSourceServiceClient(conn).CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: &pb.SourceSpec{Id: "news"}}); err != nil {
				t.Fatal(err)
			}
			var items []*pb.SubmitItem
			for i := range 4 {
				items = append(items, &pb.SubmitItem{SourceId: "news", Url: fmt.Sprintf("https://h%d.example/", i)})
			}
			if _, err := pb.NewTaskServiceClient(conn).SubmitTasks(t.Context(), &pb.SubmitTasksRequest{Items: items}); err != nil {
				t.Fatal(err)
			}
			fetch := func(by pb.DispatchServiceClient, id string, reports ...*pb.TaskReport) (*pb.Lease, []*pb.ReportResult) {
				reply, err := by.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: id, Session: "s", ClientToken: uuid.NewString(), Reports: reports})
				if err != nil || len(reply.GetLeasedTasks()) != 1 {
					t.Fatalf("fetch as %s: %v, %v", id, reply, err)
				}
				return reply.GetLeasedTasks()[0].GetLease(), reply.GetReportResults()
			}
			done := func(l *pb.Lease) *pb.TaskReport {
				return &pb.TaskReport{TaskId: l.GetTaskId(), LeaseToken: l.GetLeaseToken(), Outcome: success()}
			}
			first, _ := fetch(a, "a")
			theirs, _ := fetch(b, "b")
			second, carried := fetch(a, "a", done(theirs), done(first))
			third, _ := fetch(a, "a")
			reported, err := a.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "a", Session: "s", Reports: []*pb.TaskReport{done(theirs), done(second)}})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range [][]*pb.ReportResult{carried, reported.GetResults()} {
				if len(r) != 2 || r[0].GetCode() != pb.ReportCode_REPORT_CODE_LEASE_LOST || r[1].GetCode() != pb.ReportCode_REPORT_CODE_OK {
					t.Errorf("the reports are answered %v", r)
				}
			}
			named := func(leases ...*pb.Lease) (beats []*pb.LeaseBeat) {
				for _, l := range leases {
					beats = append(beats, &pb.LeaseBeat{TaskId: l.GetTaskId(), LeaseToken: l.GetLeaseToken()})
				}
				return beats
			}
			info := &pb.CollectorInfo{Id: "a", Session: "s"}
			renewed, err := a.RenewLease(t.Context(), &pb.RenewLeaseRequest{Collector: info, Leases: named(theirs, third)})
			if err != nil {
				t.Fatal(err)
			}
			stream, err := a.Heartbeat(t.Context())
			if err == nil {
				err = stream.Send(&pb.HeartbeatRequest{Collector: info, Leases: named(theirs, third)})
			}
			if err != nil {
				t.Fatal(err)
			}
			beaten, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range []*pb.LeaseStatus{renewed.GetStatus(), beaten.GetStatus()} {
				if len(s.GetLost()) != 1 || s.GetLost()[0].GetLeaseToken() != theirs.GetLeaseToken() || s.GetLeaseDuration().AsDuration() < 29*time.Second {
					t.Errorf("the beat is answered %v", s)
				}
			}
			kept, err := b.RenewLease(t.Context(), &pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: "b", Session: "s"}, Leases: named(theirs)})
			if err != nil || len(kept.GetStatus().GetLost()) > 0 {
				t.Errorf("its holder is answered %v, %v", kept, err)
			}
		})
	}
}

// collectorCall makes one call of a collector.
func collectorCall(ctx context.Context, conn *grpc.ClientConn, id string) error {
	_, err := pb.NewDispatchServiceClient(conn).RenewLease(ctx, &pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: id, Session: "s"}})
	return err
}

func getStats(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := pb.NewAdminServiceClient(conn).GetStats(ctx, &pb.GetStatsRequest{})
	return err
}

// overlap is for how many rounds of a rotation what is old counts beside what is new.
const overlap = 5

// rotation has the files of a dispatcher and its clients, and replaces all of them each round. What is new counts one round
// before it is used.
type rotation struct {
	dir         string
	round       int
	authorities []*testAuthority
	tokens      []string
	keys        []jose.JSONWebKey
}

func (r *rotation) path(name string) string { return filepath.Join(r.dir, name) }

// next makes another authority, token and key, drops the oldest ones, and uses those of the round before.
func (r *rotation) next(t *testing.T) {
	t.Helper()
	r.round++
	token, _ := auth.NewToken()
	r.authorities = append(r.authorities, newTestAuthority(t))
	r.tokens = append(r.tokens, token)
	r.keys = append(r.keys, jose.JSONWebKey{Key: newKey(t), KeyID: fmt.Sprint(r.round), Algorithm: string(jose.ES256)})
	old := max(0, len(r.tokens)-1-overlap)
	r.authorities, r.tokens, r.keys = r.authorities[old:], r.tokens[old:], r.keys[old:]

	var bundle, tokens strings.Builder
	var keys jose.JSONWebKeySet
	for i, a := range r.authorities {
		bundle.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
		fmt.Fprintf(&tokens, "- {name: t%d, sha256: %s}\n", r.round-len(r.tokens)+1+i, auth.HashToken(r.tokens[i]))
		keys.Keys = append(keys.Keys, r.keys[i].Public())
	}
	published, err := json.Marshal(keys)
	if err != nil {
		t.Fatal(err)
	}
	replace(t, r.path("ca.pem"), bundle.String())
	replace(t, r.path("keys.json"), string(published))
	replace(t, r.path("auth.yaml"), "jwt: [{issuer: tests, audience: waggle, keys_file: keys.json}]\n"+
		"grants: [{identity: 'token:*', role: admin}, {identity: jwt:tester, role: admin}, {identity: spiffe://example.org/tester, role: admin}]\n"+
		"tokens:\n"+tokens.String())
	used := max(0, len(r.tokens)-2)
	replace(t, r.path("token"), r.tokens[used])
	replace(t, r.path("jwt"), r.jwt(t, r.keys[used]))
	r.authorities[used].issue(t, r.path("server"), &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	r.authorities[used].issue(t, r.path("client"), &x509.Certificate{
		URIs: []*url.URL{{Scheme: "spiffe", Host: "example.org", Path: "/tester"}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (r *rotation) jwt(t *testing.T, key jose.JSONWebKey) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: "tests", Audience: jwt.Audience{"waggle"}, Subject: "tester", Expiry: jwt.NewNumericDate(time.Now().Add(time.Minute)),
	}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// testAuthority signs certificates.
type testAuthority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newTestAuthority(t *testing.T) *testAuthority {
	t.Helper()
	a := &testAuthority{key: newKey(t)}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: uuid.NewString()}, IsCA: true, BasicConstraintsValid: true}
	a.cert = template
	a.cert = a.sign(t, template, a.key)
	return a
}

func (a *testAuthority) sign(t *testing.T, template *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	template.SerialNumber, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// issue writes a certificate and its key.
func (a *testAuthority) issue(t *testing.T, path string, template *x509.Certificate) {
	t.Helper()
	key := newKey(t)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := a.sign(t, template, key)
	replace(t, path+".pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})))
	replace(t, path+"-key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})))
}

// TestRotated replaces certificates, authorities, tokens and keys each second while clients call, over connections that they
// keep and over new ones: no call fails. WAGGLE_E2E_ROTATE says for how long.
func TestRotated(t *testing.T) {
	t.Parallel()
	length := 12 * time.Second
	if set := os.Getenv("WAGGLE_E2E_ROTATE"); set != "" {
		var err error
		if length, err = time.ParseDuration(set); err != nil {
			t.Fatal(err)
		}
	}
	r := &rotation{dir: t.TempDir()}
	r.next(t)
	d := serve(t, "d1", "memory", "", "--auth", r.path("auth.yaml"),
		"--tls-cert", r.path("server.pem"), "--tls-key", r.path("server-key.pem"), "--tls-client-ca", r.path("ca.pem"))
	trust := collector.TLS{CAFile: r.path("ca.pem")}
	both := trust
	both.CertFile, both.KeyFile = r.path("client.pem"), r.path("client-key.pem")
	kinds := map[string]collector.Config{
		"token": {TLS: &trust, TokenFile: r.path("token")}, "jwt": {TLS: &trust, TokenFile: r.path("jwt")}, "certificate": {TLS: &both},
	}
	whole := t.Context() // no call is cut off by the end
	ctx, stop := context.WithTimeout(whole, length)
	defer stop()
	var calling sync.WaitGroup
	var calls, connections atomic.Int64
	for kind, config := range kinds {
		config.Targets = []string{d.addr}
		kept, fresh := dialAs(t, config), dialer(t, config)
		calling.Go(func() {
			for ctx.Err() == nil {
				if err := getStats(whole, kept); err != nil {
					t.Errorf("%s, on a kept connection: %v", kind, err)
				}
				calls.Add(1)
			}
		})
		calling.Go(func() {
			for ctx.Err() == nil {
				conn := fresh()
				if err := getStats(whole, conn); err != nil {
					t.Errorf("%s, on a new connection: %v", kind, err)
				}
				if err := conn.Close(); err != nil {
					t.Error(err)
				}
				calls.Add(1)
				connections.Add(1)
			}
		})
	}
	for ctx.Err() == nil {
		select {
		case <-time.After(time.Second): // after the last round, also on a machine that has stalled
			r.next(t)
		case <-ctx.Done():
		}
	}
	calling.Wait()
	t.Logf("%d rotations in %v: %d calls, %d connections", r.round, length, calls.Load(), connections.Load())
	d.stop(20 * time.Second)
}
