package collector_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// guarded is a dispatcher behind a real TLS listener, or a plain one, that notes how callers prove who they are.
type guarded struct {
	*dispatcher
	address string

	mu     sync.Mutex // guards the rest
	config *tls.Config
	conns  []net.Conn
	names  []string // of certificates, a call
	tokens []string // values of authorization, a call
}

// Accept notes each connection, to cut it.
func (g *guarded) accept(conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conns = append(g.conns, conn)
}

type noting struct {
	net.Listener
	note func(net.Conn)
}

// Accept implements [net.Listener].
func (n noting) Accept() (net.Conn, error) {
	conn, err := n.Listener.Accept()
	if err == nil {
		n.note(conn)
	}
	return conn, err
}

// rotate serves with a new certificate, trusts these authorities, and cuts all connections.
func (g *guarded) rotate(t *testing.T, from *authority, trusted ...*authority) {
	t.Helper()
	pair, err := tls.X509KeyPair(from.issue(t, "dispatcher"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	for _, a := range trusted {
		pool.AddCert(a.cert)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.config = &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: pool,
		ClientAuth: tls.VerifyClientCertIfGiven, NextProtos: []string{"h2"},
	}
	for _, conn := range g.conns {
		conn.Close()
	}
	g.conns = nil
}

func (g *guarded) note(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	md, _ := metadata.FromIncomingContext(ctx)
	g.tokens = append(g.tokens, strings.Join(md.Get("authorization"), ","))
	name := ""
	if from, ok := peer.FromContext(ctx); ok {
		if info, ok := from.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
			name = info.State.PeerCertificates[0].Subject.CommonName
		}
	}
	g.names = append(g.names, name)
}

// last is how the last caller proved who it is.
func (g *guarded) last() (name, token string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.names[len(g.names)-1], g.tokens[len(g.tokens)-1]
}

// serveGuarded starts it on a network such as tcp; with an authority it serves TLS.
func serveGuarded(t *testing.T, network, address string, by *authority) *guarded {
	t.Helper()
	g := &guarded{dispatcher: newDispatcher()}
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	g.address = listener.Addr().String()
	options := []grpc.ServerOption{
		grpc.WaitForHandlers(true),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			g.note(ctx)
			return handle(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			g.note(stream.Context())
			return handle(srv, stream)
		}),
	}
	if by != nil {
		g.rotate(t, by, by)
		options = append(options, grpc.Creds(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS12,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
				g.mu.Lock()
				defer g.mu.Unlock()
				return g.config, nil
			},
		})))
	}
	server := grpc.NewServer(options...)
	wagglev1.RegisterDispatchServiceServer(server, g.dispatcher)
	served := make(chan error, 1)
	go func() { served <- server.Serve(noting{listener, g.accept}) }()
	t.Cleanup(func() {
		close(g.quit)
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return g
}

// caller calls a dispatcher as a Collector with that configuration does.
type caller struct {
	t      *testing.T
	client wagglev1.DispatchServiceClient
}

func newCaller(t *testing.T, cfg *collector.Config) caller {
	t.Helper()
	conn, err := cfg.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return caller{t, wagglev1.NewDispatchServiceClient(conn)}
}

// call makes a call, again and again until it is answered: connections are cut below it.
func (c caller) call() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), callLimit)
	defer cancel()
	for {
		_, err := c.client.RenewLease(ctx, &wagglev1.RenewLeaseRequest{}, grpc.WaitForReady(true))
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			c.t.Fatal(err)
		}
	}
}

// TestTLS_rotated holds that each connection is made with what the files hold then, and with the last good ones when they do not
// fit together.
func TestTLS_rotated(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := collector.TLS{CAFile: filepath.Join(dir, "ca.pem"), CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	old, renewed := newAuthority(t), newAuthority(t)
	cert, key := old.issue(t, "first")
	put(t, files.CAFile, old.pem)
	put(t, files.CertFile, cert)
	put(t, files.KeyFile, key)
	g := serveGuarded(t, "tcp", "127.0.0.1:0", old)
	core, logs := observer.New(zap.WarnLevel)
	c := newCaller(t, &collector.Config{Targets: []string{g.address}, ID: "c-1", TLS: &files, Logger: zap.New(core)})
	c.call()
	want := func(name string) {
		t.Helper()
		if got, _ := g.last(); got != name {
			t.Errorf("the certificate is of %q, want %q", got, name)
		}
	}
	want("first")

	cert, key = renewed.issue(t, "second")
	put(t, files.CertFile, cert) // its key comes later
	g.rotate(t, old, old, renewed)
	c.call()
	want("first")
	if logs.FilterMessageSnippet("last good content is used").Len() != 1 {
		t.Errorf("logged %v, want one line of the pair", logs.All())
	}

	put(t, files.KeyFile, key)
	put(t, files.CAFile, renewed.pem)
	g.rotate(t, renewed, renewed)
	c.call()
	want("second")
}

// TestTLS_renewed holds that a collector connects anew once its certificate was renewed, as dispatchers stop accepting the old one
// on connections too, and that no call fails by that.
func TestTLS_renewed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := collector.TLS{CAFile: filepath.Join(dir, "ca.pem"), CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	by := newAuthority(t)
	renew := func(name string) {
		t.Helper()
		cert, key := by.issue(t, name)
		put(t, files.CertFile, cert)
		put(t, files.KeyFile, key)
	}
	put(t, files.CAFile, by.pem)
	renew("first")
	g := serveGuarded(t, "tcp", "127.0.0.1:0", by)
	core, logs := observer.New(zap.WarnLevel)
	done := make(chan string, 1)
	c, err := collector.New(collector.Config{
		Targets: []string{g.address}, ID: "c-1", Wait: 20 * time.Millisecond, LeaseDuration: time.Second, TLS: &files, Logger: zap.New(core),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- c.Run(ctx, collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
			done <- task.ID
			return collector.Succeeded{}, nil
		}))
	}()
	g.put("1-a")
	<-done
	if name, _ := g.last(); name != "first" {
		t.Errorf("the certificate is of %q", name)
	}
	renew("second")
	for limit := time.Now().Add(callLimit); ; {
		g.put("1-b")
		<-done
		if name, _ := g.last(); name == "second" {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("the collector never shows its new certificate")
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	if logs.Len() > 0 {
		t.Errorf("logged %v", logs.All())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.conns) < 3 || len(g.conns) > 4 { // one of fetches and one of the rest, each replaced when it is used
		t.Errorf("%d connections, want 3 or 4", len(g.conns))
	}
}

func TestTLS_ServerName(t *testing.T) {
	t.Parallel()
	by := newAuthority(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	put(t, ca, by.pem)
	g := serveGuarded(t, "tcp", "127.0.0.1:0", by)
	newCaller(t, &collector.Config{Targets: []string{g.address}, TLS: &collector.TLS{CAFile: ca, ServerName: "dispatcher.example"}}).call()
	for name, files := range map[string]collector.TLS{
		"another name":      {CAFile: ca, ServerName: "other.example"},
		"unknown authority": {},
	} {
		c := newCaller(t, &collector.Config{Targets: []string{g.address}, TLS: &files})
		if _, err := c.client.RenewLease(t.Context(), &wagglev1.RenewLeaseRequest{}); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTLS_Targets holds that each of several dispatchers is known by the name in its own target.
func TestTLS_Targets(t *testing.T) {
	t.Parallel()
	by := newAuthority(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	put(t, ca, by.pem)
	by.dns = nil
	one := serveGuarded(t, "tcp", "127.0.0.1:0", by)
	by.dns, by.ips = []string{"localhost"}, nil
	two := serveGuarded(t, "tcp", "127.0.0.1:0", by)
	_, port, _ := net.SplitHostPort(two.address)
	c := newCaller(t, &collector.Config{Targets: []string{one.address, "localhost:" + port}, TLS: &collector.TLS{CAFile: ca}})
	asked := func(g *guarded) bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.names) > 0
	}
	for limit := time.Now().Add(callLimit); !asked(one) || !asked(two); {
		if c.call(); time.Now().After(limit) {
			t.Fatalf("calls came to the first: %v, to the second: %v", asked(one), asked(two))
		}
	}
}
