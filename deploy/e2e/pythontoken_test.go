//go:build e2e

package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// TestPythonCollector_Token connects by TLS with a certificate of the collector, and sends a token. Once its file has the token that
// is accepted, the collector works, without a restart.
func TestPythonCollector_Token(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Server(t)
	c := dial(t, serve(t, "dispatcher", server.URL(), prefix).addr)
	c.setRule(t, "*", 0, 4)
	site := newSmallSite(t)
	c.createSource(t, &pb.SourceSpec{Id: "python", LeaseDuration: durationpb.New(time.Minute)})
	id := c.submit(t, &pb.SubmitItem{SourceId: "python", Url: site.url + "/a"})[0]

	pki := filepath.Join(t.TempDir(), "pki")
	for _, args := range [][]string{{"ca", pki}, {"server", pki, "127.0.0.1"}, {"client", pki, "py-1.example"}} {
		if out, err := exec.CommandContext(t.Context(), programs.path("waggle"), append([]string{"cert"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("waggle cert %v: %v\n%s", args, err, out)
		}
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(pki, "server.pem"), filepath.Join(pki, "server-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile(filepath.Join(pki, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)

	var refused atomic.Int32
	check := func(ctx context.Context) error {
		if md, _ := metadata.FromIncomingContext(ctx); strings.Join(md.Get("authorization"), ",") != "Bearer wgl_second" {
			refused.Add(1)
			return status.Error(codes.Unauthenticated, "the token is not known")
		}
		return nil
	}
	address := serveBetween(t, &forgetful{to: c.dispatch},
		grpc.Creds(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert,
		})),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if err := check(ctx); err != nil {
				return nil, err
			}
			return handle(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if err := check(stream.Context()); err != nil {
				return err
			}
			return handle(srv, stream)
		}))
	token := filepath.Join(t.TempDir(), "token")
	put := func(text string) {
		if err := os.WriteFile(token, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("wgl_first\n")
	collector, _ := pythonCollectorWith(t, []string{
		"WAGGLE_TLS_CA=" + filepath.Join(pki, "ca.pem"), "WAGGLE_TLS_CERT=" + filepath.Join(pki, "py-1.example.pem"),
		"WAGGLE_TLS_KEY=" + filepath.Join(pki, "py-1.example-key.pem"), "WAGGLE_TOKEN_FILE=" + token,
	}, "py-1", address)
	until(t, startLimit, "calls with another token are refused", func() bool { return refused.Load() > 1 })
	put("wgl_second\n")
	until(t, 30*time.Second, "the task is done", func() bool { return c.task(t, id).GetState() == pb.TaskState_TASK_STATE_DONE })
	collector.stop(20 * time.Second)
	if said, _ := collector.out.text(); !strings.Contains(said, "credentials refused, will try again: the token is not known") || strings.Contains(said, "wgl_") {
		t.Errorf("printed %s", said)
	}
}
