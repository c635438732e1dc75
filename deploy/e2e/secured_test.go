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

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// securedToken is the token that a secured dispatcher takes.
const securedToken = "wgl_second"

// secured is a dispatcher that takes a collector's certificate and securedToken, and nobody without both.
type secured struct {
	address string // by the name in its certificate
	pki     string // ca.pem, collector.example.pem and collector.example-key.pem
	token   string // the file for the collector's token; it has another one
	refused atomic.Int32
}

// serveSecured puts a secured dispatcher before the one of c.
func serveSecured(t *testing.T, c *client) *secured {
	t.Helper()
	s := &secured{pki: filepath.Join(t.TempDir(), "pki"), token: filepath.Join(t.TempDir(), "token")}
	for _, args := range [][]string{{"ca", s.pki}, {"server", s.pki, "localhost"}, {"client", s.pki, "collector.example"}} {
		if out, err := exec.CommandContext(t.Context(), programs.path("waggle"), append([]string{"cert"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("waggle cert %v: %v\n%s", args, err, out)
		}
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(s.pki, "server.pem"), filepath.Join(s.pki, "server-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile(filepath.Join(s.pki, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	address := serveBetween(t, &forgetful{to: c.dispatch},
		grpc.Creds(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert,
		})),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if err := s.check(ctx); err != nil {
				return nil, err
			}
			return handle(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if err := s.check(stream.Context()); err != nil {
				return err
			}
			return handle(srv, stream)
		}))
	s.address = strings.Replace(address, "127.0.0.1", "localhost", 1)
	s.writeToken(t, "wgl_first")
	return s
}

func (s *secured) check(ctx context.Context) error {
	if md, _ := metadata.FromIncomingContext(ctx); strings.Join(md.Get("authorization"), ",") != "Bearer "+securedToken {
		s.refused.Add(1)
		return status.Error(codes.Unauthenticated, "the token is not known")
	}
	return nil
}

func (s *secured) writeToken(t *testing.T, token string) {
	t.Helper()
	if err := os.WriteFile(s.token, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// checkSecured has a collector wait until its file has the token that is accepted: then it works on a task, without a restart. It
// returns what the collector wrote.
func checkSecured(t *testing.T, c *client, s *secured, task string, start func() *process) string {
	t.Helper()
	collector := start()
	until(t, startLimit, "calls with another token are refused", func() bool { return s.refused.Load() > 1 })
	s.writeToken(t, securedToken)
	until(t, 30*time.Second, "the task is done", func() bool { return c.task(t, task).GetState() == pb.TaskState_TASK_STATE_DONE })
	collector.stop(20 * time.Second)
	said, _ := collector.out.text()
	if strings.Contains(said, "wgl_") {
		t.Errorf("printed %s", said)
	}
	return said
}

// TestPythonCollector_Token connects by TLS with a certificate of the collector, and sends a token.
func TestPythonCollector_Token(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Server(t)
	c := dial(t, serve(t, "dispatcher", server.URL(), prefix).addr)
	c.setRule(t, "*", 0, 4)
	site := newSmallSite(t)
	c.createSource(t, &pb.SourceSpec{Id: "python"})
	id := c.submit(t, &pb.SubmitItem{SourceId: "python", Url: site.url + "/a"})[0]
	s := serveSecured(t, c)
	said := checkSecured(t, c, s, id, func() *process {
		collector, _ := pythonCollectorWith(t, []string{
			"WAGGLE_TLS_CA=" + filepath.Join(s.pki, "ca.pem"), "WAGGLE_TLS_CERT=" + filepath.Join(s.pki, "collector.example.pem"),
			"WAGGLE_TLS_KEY=" + filepath.Join(s.pki, "collector.example-key.pem"), "WAGGLE_TOKEN_FILE=" + s.token,
		}, "py-1", s.address)
		return collector
	})
	if want := "credentials refused, will try again: the token is not known"; !strings.Contains(said, want) {
		t.Errorf("printed %s", said)
	}
}
