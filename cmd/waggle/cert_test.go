package main_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
)

// authorityIn makes an authority in a new directory.
func authorityIn(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "pki")
	mustRun(t, "cert", "ca", dir)
	return dir
}

// mustRun runs a command that has to succeed.
func mustRun(t *testing.T, args ...string) answer {
	t.Helper()
	got := command(t, nil, args...)
	if got.code != waggle.ExitOK {
		t.Fatalf("waggle %s: exit code %d, %s", strings.Join(args, " "), got.code, got.err)
	}
	return got
}

func certificates(t *testing.T, path string) (all []*x509.Certificate) {
	t.Helper()
	for block, rest := pem.Decode([]byte(readText(t, path))); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

func wantMode(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != mode {
		t.Errorf("%s: %v, %v; want mode %o", path, info, err, mode)
	}
}

// party is one side of a TLS connection, with the files it reads.
type party struct{ ca, cert, key string }

func partyIn(dir, name string) party {
	return party{filepath.Join(dir, "ca.pem"), filepath.Join(dir, name+".pem"), filepath.Join(dir, name+"-key.pem")}
}

func (p party) config(t *testing.T) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(p.cert, p.key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(readText(t, p.ca))) {
		t.Fatalf("%s has no certificate", p.ca)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
		RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}
}

// handshake connects a client with a server by TLS, under a name of the server.
func handshake(t *testing.T, server, client party, name string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
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
	}(server.config(t))
	config := client.config(t)
	config.ServerName = name
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := tls.Client(conn, config).HandshakeContext(ctx); err != nil {
		conn.Close()
		return errors.Join(err, <-served)
	}
	return <-served
}

// What the commands make verifies as crypto/x509 has it, and two parties connect by it.
func TestCert_handshake(t *testing.T) {
	t.Parallel()
	dir := authorityIn(t)
	mustRun(t, "cert", "server", dir, "Dispatcher.example.org", "127.0.0.1", "::1", "--days", "30")
	mustRun(t, "cert", "client", dir, "spiffe://example.org/collector/eu-1")
	mustRun(t, "cert", "client", dir, "feeds.example.org")
	server := partyIn(dir, "server")
	for _, name := range []string{"example.org_collector_eu-1", "feeds.example.org"} {
		for _, as := range []string{"dispatcher.example.org", "127.0.0.1", "::1"} {
			if err := handshake(t, server, partyIn(dir, name), as); err != nil {
				t.Errorf("%s asks %s: %v", name, as, err)
			}
		}
	}
	if err := handshake(t, server, partyIn(dir, "feeds.example.org"), "other.example.org"); err == nil {
		t.Error("a server is taken under a name that is not its own")
	}
	if err := handshake(t, server, server, "127.0.0.1"); err == nil {
		t.Error("the certificate of a server is taken as that of a client")
	}
	if err := handshake(t, partyIn(dir, "feeds.example.org"), server, "feeds.example.org"); err == nil {
		t.Error("the certificate of a client is taken as that of a server")
	}
	ca := certificates(t, server.ca)[0]
	if !ca.IsCA || ca.MaxPathLen != 0 || !ca.MaxPathLenZero || ca.KeyUsage != x509.KeyUsageCertSign|x509.KeyUsageCRLSign || time.Until(ca.NotAfter) < 3649*24*time.Hour {
		t.Errorf("the authority is %+v", ca)
	}
	if left := time.Until(certificates(t, server.cert)[0].NotAfter); left > 30*24*time.Hour || left < 29*24*time.Hour {
		t.Errorf("of 30 days %s are left", left)
	}
	if uris := certificates(t, partyIn(dir, "example.org_collector_eu-1").cert)[0].URIs; len(uris) != 1 || uris[0].String() != "spiffe://example.org/collector/eu-1" {
		t.Errorf("the client is %v", uris)
	}
	wantMode(t, dir, 0o700)
	for _, name := range []string{"ca", "server", "feeds.example.org"} {
		wantMode(t, filepath.Join(dir, name+"-key.pem"), 0o600)
	}
}

// After a renewal of the authority both are trusted, until the old one is taken out.
func TestCert_overlap(t *testing.T) {
	t.Parallel()
	dir, old := authorityIn(t), t.TempDir()
	mustRun(t, "cert", "server", dir, "localhost")
	mustRun(t, "cert", "client", dir, "a.example")
	for _, name := range []string{"ca.pem", "server.pem", "server-key.pem", "a.example.pem", "a.example-key.pem"} {
		if err := os.WriteFile(filepath.Join(old, name), []byte(readText(t, filepath.Join(dir, name))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := mustRun(t, "cert", "ca", dir, "--renew")
	if n := len(certificates(t, filepath.Join(dir, "ca.pem"))); n != 2 || !strings.Contains(got.out, "waggle cert ca "+dir+" --drop-old") {
		t.Errorf("%d authorities, printed %s", n, got.out)
	}
	oldServer, oldClient := partyIn(old, "server"), partyIn(old, "a.example")
	oldServer.ca, oldClient.ca = filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.pem") // copied to every machine
	mustRun(t, "cert", "server", dir, "localhost", "--renew")
	server := partyIn(dir, "server")
	if err := handshake(t, server, oldClient, "localhost"); err != nil {
		t.Errorf("a new server, an old client: %v", err)
	}
	if err := handshake(t, server, partyIn(old, "a.example"), "localhost"); err == nil {
		t.Error("a client takes a server of an authority that it was not given")
	}
	mustRun(t, "cert", "client", dir, "a.example", "--renew")
	client := partyIn(dir, "a.example")
	if err := handshake(t, oldServer, client, "localhost"); err != nil {
		t.Errorf("an old server, a new client: %v", err)
	}
	mustRun(t, "cert", "ca", dir, "--drop-old")
	if n := len(certificates(t, server.ca)); n != 1 {
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
	dir := authorityIn(t)
	mustRun(t, "cert", "server", dir, "localhost")
	mustRun(t, "cert", "client", dir, "spiffe://a.example/x/y")
	before := readText(t, filepath.Join(dir, "ca-key.pem"))
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
		got := command(t, nil, append([]string{"cert"}, strings.Fields(args)...)...)
		code := waggle.ExitFailed
		if parts[0] == "NAME" {
			code = waggle.ExitUsage
		}
		wantFailure(t, got, code, parts...)
	}
	if readText(t, filepath.Join(dir, "ca-key.pem")) != before {
		t.Error("a refused command changed the key")
	}
}
