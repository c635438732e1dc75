package cert_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
)

func certificates(t *testing.T, path string) (all []*x509.Certificate) {
	t.Helper()
	for block, rest := pem.Decode([]byte(clitest.ReadFile(t, path))); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

func config(t *testing.T, p clitest.Party) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(clitest.ReadFile(t, p.CA))) {
		t.Fatalf("%s has no certificate", p.CA)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
		RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}
}

// handshake connects a client with a server by TLS, under a name of the server.
func handshake(t *testing.T, server, client clitest.Party, name string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clitest.WaitLimit)
	defer cancel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	served := make(chan error, 1)
	go func(config *tls.Config) {
		conn, err := listener.Accept()
		if err != nil {
			served <- err
			return
		}
		defer conn.Close()
		served <- tls.Server(conn, config).HandshakeContext(ctx)
	}(config(t, server))
	clientConfig := config(t, client)
	clientConfig.ServerName = name
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := tls.Client(conn, clientConfig).HandshakeContext(ctx); err != nil {
		conn.Close()
		return errors.Join(err, <-served)
	}
	return <-served
}

// What the commands make verifies as crypto/x509 has it, and two parties connect by it.
func TestCert_handshake(t *testing.T) {
	t.Parallel()
	dir := clitest.AuthorityIn(t)
	clitest.MustRun(t, "cert", "server", dir, "Dispatcher.example.org", "127.0.0.1", "::1", "--days", "30")
	clitest.MustRun(t, "cert", "client", dir, "spiffe://example.org/collector/eu-1")
	clitest.MustRun(t, "cert", "client", dir, "feeds.example.org")
	server := clitest.PartyIn(dir, "server")
	for _, name := range []string{"example.org_collector_eu-1", "feeds.example.org"} {
		for _, as := range []string{"dispatcher.example.org", "127.0.0.1", "::1"} {
			if err := handshake(t, server, clitest.PartyIn(dir, name), as); err != nil {
				t.Errorf("%s asks %s: %v", name, as, err)
			}
		}
	}
	if err := handshake(t, server, clitest.PartyIn(dir, "feeds.example.org"), "other.example.org"); err == nil {
		t.Error("a server is taken under a name that is not its own")
	}
	if err := handshake(t, server, server, "127.0.0.1"); err == nil {
		t.Error("the certificate of a server is taken as that of a client")
	}
	if err := handshake(t, clitest.PartyIn(dir, "feeds.example.org"), server, "feeds.example.org"); err == nil {
		t.Error("the certificate of a client is taken as that of a server")
	}
	ca := certificates(t, server.CA)[0]
	if !ca.IsCA || ca.MaxPathLen != 0 || !ca.MaxPathLenZero || ca.KeyUsage != x509.KeyUsageCertSign|x509.KeyUsageCRLSign || time.Until(ca.NotAfter) < 3649*24*time.Hour {
		t.Errorf("the authority is %+v", ca)
	}
	if left := time.Until(certificates(t, server.Cert)[0].NotAfter); left > 30*24*time.Hour || left < 29*24*time.Hour {
		t.Errorf("of 30 days %s are left", left)
	}
	if uris := certificates(t, clitest.PartyIn(dir, "example.org_collector_eu-1").Cert)[0].URIs; len(uris) != 1 || uris[0].String() != "spiffe://example.org/collector/eu-1" {
		t.Errorf("the client is %v", uris)
	}
	clitest.WantMode(t, dir, 0o700)
	for _, name := range []string{"ca", "server", "feeds.example.org"} {
		clitest.WantMode(t, filepath.Join(dir, name+"-key.pem"), 0o600)
	}
}

// After a renewal of the authority both are trusted, until the old one is taken out.
func TestCert_overlap(t *testing.T) {
	t.Parallel()
	dir, old := clitest.AuthorityIn(t), t.TempDir()
	clitest.MustRun(t, "cert", "server", dir, "localhost")
	clitest.MustRun(t, "cert", "client", dir, "a.example")
	for _, name := range []string{"ca.pem", "server.pem", "server-key.pem", "a.example.pem", "a.example-key.pem"} {
		if err := os.WriteFile(filepath.Join(old, name), []byte(clitest.ReadFile(t, filepath.Join(dir, name))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := clitest.MustRun(t, "cert", "ca", dir, "--renew")
	if n := len(certificates(t, filepath.Join(dir, "ca.pem"))); n != 2 || !strings.Contains(got.Out, "waggle cert ca "+dir+" --drop-old") {
		t.Errorf("%d authorities, printed %s", n, got.Out)
	}
	oldServer, oldClient := clitest.PartyIn(old, "server"), clitest.PartyIn(old, "a.example")
	oldServer.CA, oldClient.CA = filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.pem") // copied to every machine
	if got := clitest.MustRun(t, "cert", "server", dir, "localhost", "--renew"); !strings.Contains(got.Out, "serves them at once") || strings.Contains(got.Out, "auth token new") {
		t.Errorf("renewed: %s", got.Out)
	}
	server := clitest.PartyIn(dir, "server")
	if err := handshake(t, server, oldClient, "localhost"); err != nil {
		t.Errorf("a new server, an old client: %v", err)
	}
	if err := handshake(t, server, clitest.PartyIn(old, "a.example"), "localhost"); err == nil {
		t.Error("a client takes a server of an authority that it was not given")
	}
	clitest.MustRun(t, "cert", "client", dir, "a.example", "--renew")
	client := clitest.PartyIn(dir, "a.example")
	if err := handshake(t, oldServer, client, "localhost"); err != nil {
		t.Errorf("an old server, a new client: %v", err)
	}
	clitest.MustRun(t, "cert", "ca", dir, "--drop-old")
	if n := len(certificates(t, server.CA)); n != 1 {
		t.Errorf("%d authorities are left", n)
	}
	if err := handshake(t, server, client, "localhost"); err != nil {
		t.Errorf("both new: %v", err)
	}
	if err := handshake(t, server, oldClient, "localhost"); err == nil {
		t.Error("an old client is let in after --drop-old")
	}
}

// Nothing is overwritten without --renew, and nothing of another name with it.
func TestCert_refusals(t *testing.T) {
	t.Parallel()
	dir := clitest.AuthorityIn(t)
	clitest.MustRun(t, "cert", "server", dir, "localhost")
	clitest.MustRun(t, "cert", "client", dir, "spiffe://a.example/x/y")
	before := clitest.ReadFile(t, filepath.Join(dir, "ca-key.pem"))
	for args, parts := range map[string][]string{
		"ca DIR":                 {"ca.pem exists", "--renew"},
		"ca EMPTY --renew":       {"--renew", "ca.pem"},
		"server DIR localhost":   {"server.pem exists", "--renew"},
		"server EMPTY localhost": {"has no authority", "waggle cert ca"},
		"server DIR localhost --renew --days 5000":  {"after the authority ends", "--renew"},
		"client DIR spiffe://a.example/x/y":         {"a.example_x_y.pem exists"},
		"client DIR a.example_x_y":                  {"NAME"},
		"client DIR spiffe://a.example/x_y --renew": {`is the certificate of "spiffe://a.example/x/y"`, "another directory"},
	} {
		args = strings.NewReplacer("DIR", dir, "EMPTY", t.TempDir()).Replace(args)
		got := clitest.Command(t, nil, append([]string{"cert"}, strings.Fields(args)...)...)
		code := cli.ExitFailed
		if parts[0] == "NAME" {
			code = cli.ExitUsage
		}
		clitest.WantFailure(t, got, code, parts...)
	}
	if clitest.ReadFile(t, filepath.Join(dir, "ca-key.pem")) != before {
		t.Error("a refused command changed the key")
	}
}
