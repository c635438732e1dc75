package collector_test

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// callLimit is how long a test waits for an answer.
const callLimit = 30 * time.Second

// TestConfig_TokenFile holds that a token follows its file, and that the last good one is sent while the file has none.
func TestConfig_TokenFile(t *testing.T) {
	t.Parallel()
	by := newAuthority(t)
	dir := t.TempDir()
	file, ca := filepath.Join(dir, "token"), filepath.Join(dir, "ca.pem")
	put(t, file, []byte("wgl_first\n"))
	put(t, ca, by.pem)
	g := serveGuarded(t, "tcp", "127.0.0.1:0", by)
	c := newCaller(t, &collector.Config{Targets: []string{g.address}, TLS: &collector.TLS{CAFile: ca}, TokenFile: file})
	c.call()
	if _, got := g.last(); got != "Bearer wgl_first" {
		t.Errorf("sent %q", got)
	}
	until := func(want string) {
		t.Helper()
		for limit := time.Now().Add(callLimit); ; {
			c.call()
			_, got := g.last()
			switch {
			case got == want:
				return
			case got != "Bearer wgl_first" || time.Now().After(limit):
				t.Fatalf("sent %q, want %q", got, want)
			}
		}
	}
	put(t, file, nil) // half-written
	for began := time.Now(); time.Since(began) < 600*time.Millisecond; {
		c.call()
	}
	if _, got := g.last(); got != "Bearer wgl_first" {
		t.Errorf("sent %q while the file was empty", got)
	}
	put(t, file, []byte("wgl_second"))
	until("Bearer wgl_second")
}

// TestConfig_Token holds that a token goes to loopback addresses and Unix sockets in plain text, and nowhere else.
func TestConfig_Token(t *testing.T) {
	t.Parallel()
	tcp := serveGuarded(t, "tcp", "127.0.0.1:0", nil)
	socket := filepath.Join(t.TempDir(), "s")
	unix := serveGuarded(t, "unix", socket, nil)
	for target, g := range map[string]*guarded{tcp.address: tcp, "dns:///" + tcp.address: tcp, "unix:" + socket: unix} {
		newCaller(t, &collector.Config{Targets: []string{target}, Token: "wgl_x"}).call()
		if _, got := g.last(); got != "Bearer wgl_x" {
			t.Errorf("%s: sent %q", target, got)
		}
	}
	for _, target := range []string{"10.0.0.1:7070", "dispatcher.example:7070", "dns:///dispatcher.example:7070", "[2001:db8::1]:7070", "localhost.example:1"} {
		for _, cfg := range []collector.Config{{Token: "wgl_x"}, {TokenFile: "token"}, {Token: "wgl_x", Credentials: insecure.NewCredentials()}} {
			cfg.Targets, cfg.ID = []string{"127.0.0.1:1", target}, "c-1"
			if strings.Contains(target, "/") {
				cfg.Targets = cfg.Targets[1:]
			}
			_, err := collector.New(cfg)
			if err == nil || !strings.Contains(err.Error(), "field Targets: ") || !strings.Contains(err.Error(), "want TLS") || strings.Contains(err.Error(), "wgl_x") {
				t.Errorf("%s: %v", target, err)
			}
		}
	}
}

// TestConfig_TokenElsewhere holds that a name of this machine that leads to another one gets no token.
func TestConfig_TokenElsewhere(t *testing.T) {
	t.Parallel()
	var sent net.Conn
	cfg := collector.Config{Targets: []string{"passthrough:///localhost:7070"}, Token: "wgl_x"}
	conn, err := cfg.Dial(grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
		near, far := net.Pipe()
		sent = far
		return near, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	_, err = wagglev1.NewDispatchServiceClient(conn).RenewLease(t.Context(), &wagglev1.RenewLeaseRequest{})
	if err == nil || !strings.Contains(err.Error(), "a token is sent over TLS, to a Unix socket or to a loopback address only") {
		t.Errorf("called: %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if n, err := sent.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Errorf("sent %d bytes", n)
	}
}

// TestNew_security holds that a mistake is found before anything runs, and that no error has a token.
func TestNew_security(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty, cert := filepath.Join(dir, "empty"), filepath.Join(dir, "cert.pem")
	put(t, empty, nil)
	two := filepath.Join(dir, "two")
	put(t, two, []byte("wgl_secret\nwgl_secret2\n"))
	long := filepath.Join(dir, "long")
	put(t, long, []byte("wgl_secret"+strings.Repeat("a", 20_000)))
	put(t, cert, []byte("wgl_secret"))
	missing := filepath.Join(dir, "missing")
	for name, test := range map[string]struct {
		change func(*collector.Config)
		want   string
	}{
		"two kinds of TLS":   {func(c *collector.Config) { c.TLS, c.Credentials = &collector.TLS{}, insecure.NewCredentials() }, "field TLS: Credentials are set, too"},
		"no key":             {func(c *collector.Config) { c.TLS = &collector.TLS{CertFile: "a.pem"} }, `field TLS.CertFile: "a.pem" and TLS.KeyFile: "": want both or neither`},
		"no CA":              {func(c *collector.Config) { c.TLS = &collector.TLS{CAFile: missing} }, "field TLS.CAFile: open "},
		"CA of another kind": {func(c *collector.Config) { c.TLS = &collector.TLS{CAFile: cert} }, "holds no PEM certificate"},
		"no certificate":     {func(c *collector.Config) { c.TLS = &collector.TLS{CertFile: cert, KeyFile: cert} }, "field TLS.CertFile: "},
		"two tokens":         {func(c *collector.Config) { c.Token, c.TokenFile = "wgl_secret", empty }, "field TokenFile: Token is set, too"},
		"token of two words": {func(c *collector.Config) { c.Token = "wgl_secret x" }, "field Token: want a token of 1 to 16384 printable ASCII"},
		"token for a path":   {func(c *collector.Config) { c.TokenFile = "wgl_secret" }, "field TokenFile: it looks like a token"},
		"no token file":      {func(c *collector.Config) { c.TokenFile = missing }, "field TokenFile: open "},
		"empty token file":   {func(c *collector.Config) { c.TokenFile = empty }, "field TokenFile: " + empty + ": want a token"},
		"two lines":          {func(c *collector.Config) { c.TokenFile = two }, "field TokenFile: " + two},
		"long":               {func(c *collector.Config) { c.TokenFile = long }, "field TokenFile: " + long},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := collector.Config{Targets: []string{"127.0.0.1:1"}, ID: "c-1"}
			test.change(&cfg)
			_, err := collector.New(cfg)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("New: %v, want %q", err, test.want)
			}
		})
	}
}
