package root_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
	"github.com/waggle-crawl/waggle/store/redistest"
)

func TestServe_Memory(t *testing.T) {
	t.Parallel()
	env := map[string]string{"WAGGLE_LISTEN": "127.0.0.1:0", "WAGGLE_HTTP": "127.0.0.1:0", "WAGGLE_LOG_FORMAT": "json"}
	d := clitest.Start(t, env, "serve", "--drain-timeout", "5s")
	addr := clitest.Address(t, d)
	d.Err.Line(t, `"store":"memory"`)
	d.Err.Line(t, `the store is memory: nothing is kept over a restart`)
	metrics := d.Err.Line(t, `"listening".*"http":"([^"]+)"`)[1]
	reply, err := http.Get("http://" + metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(reply.Body)
	if err != nil || !strings.Contains(string(text), "waggle_") {
		t.Errorf("metrics: %v\n%s", err, text)
	}
	reply.Body.Close()

	clitest.WantFailure(t, clitest.Command(t, nil, "serve", "--listen", addr, "--http", "off"), cli.ExitFailed,
		"--listen: "+addr+" is in use by another program", "needs both addresses of its own: say --listen 127.0.0.1:7071 --http 127.0.0.1:7081")
	clitest.WantFailure(t, clitest.Command(t, nil, "serve", "--listen", "127.0.0.1:0", "--http", metrics), cli.ExitFailed,
		"--http: "+metrics+" is in use", "needs both addresses of its own")
	clitest.WantFailure(t, clitest.Command(t, nil, "serve", "--listen", "256.0.0.1:1", "--insecure", "--http", "off"), cli.ExitFailed, "cannot listen", "256.0.0.1")
	if code := d.End(); code != cli.ExitOK {
		t.Errorf("exit code %d after a drain:\n%s", code, d.Err.Text())
	}
	d.Err.Line(t, `"drained"`)
	clitest.WantFailure(t, clitest.Command(t, nil, "stats", "--server", addr), cli.ExitFailed, "nobody listens")
}

// Findings are told to a receiver, and what cannot be told is refused at the start.
func TestServe_Notify(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	for args, want := range map[string]string{
		"--notify ftp://a":                            `--notify has the scheme "ftp"`,
		"--notify-key-file " + file:                   "--notify-key-file is for --notify",
		"--notify http://a --notify-key-file " + file: "--notify-key-file: read the keys",
	} {
		all := append([]string{"serve", "--store", "memory", "--listen", "127.0.0.1:0", "--http", "off"}, strings.Fields(args)...)
		clitest.WantFailure(t, clitest.Command(t, nil, all...), cli.ExitUsage, want)
	}
	if err := os.WriteFile(file, []byte("whsec_"+strings.Repeat("abcd", 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	told := make(chan string, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		told <- req.Header.Get("webhook-signature")[:3] + string(body)
	}))
	defer receiver.Close()
	env := map[string]string{"WAGGLE_NOTIFY": receiver.URL, "WAGGLE_NOTIFY_KEY_FILE": file}
	d := clitest.Start(t, env, "serve", "--store", "memory", "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json")
	clitest.Address(t, d)
	select {
	case got := <-told:
		if !strings.HasPrefix(got, `v1,{"type":"finding.began"`) || !strings.Contains(got, `"text":"IDLE: there are no sources"`) {
			t.Errorf("told: %s", got)
		}
	case <-time.After(2 * time.Minute):
		t.Error("nothing was told")
	}
	if code := d.End(); code != cli.ExitOK {
		t.Errorf("exit code %d after a drain:\n%s", code, d.Err.Text())
	}
}

func TestServe_Redis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	d := clitest.Start(t, map[string]string{"WAGGLE_STORE": redis.URL()}, "serve", "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json", "--shards", "3")
	env := map[string]string{"WAGGLE_SERVER": clitest.Address(t, d)}
	clitest.Command(t, env, "source", "create", "a", "--seed", "https://a.example/")
	if got := clitest.Command(t, env, "stats"); !strings.Contains(got.Out, "Store       redis, 3 shards\n") || !strings.Contains(got.Out, "Tasks       0 scheduled, 1 ready") {
		t.Errorf("printed\n%s%s", got.Out, got.Err)
	}
	clitest.WantFailure(t, clitest.Command(t, nil, "serve", "--listen", "127.0.0.1:0", "--http", "off", "--store", redis.URL(), "--shards", "4"), cli.ExitFailed,
		"has 3 shards, not 4", "leave --shards out")
	if code := d.End(); code != cli.ExitOK {
		t.Errorf("exit code %d after a drain:\n%s", code, d.Err.Text())
	}
	// What was registered is there at the next start.
	d = clitest.Start(t, nil, "serve", "--store", redis.URL(), "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json")
	env = map[string]string{"WAGGLE_SERVER": clitest.Address(t, d)}
	if got := clitest.Command(t, env, "source", "list"); !strings.Contains(got.Out, "a       -     default") {
		t.Errorf("printed\n%s%s", got.Out, got.Err)
	}
}

func TestServe_RedisThatWillNotDo(t *testing.T) {
	t.Parallel()
	evicts := redistest.Start(t, redistest.WithMaxMemory(100<<20), redistest.WithConfig("maxmemory-policy", "allkeys-lru"))
	args := []string{"serve", "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json", "--store", evicts.URL()}
	clitest.WantFailure(t, clitest.Command(t, nil, args...), cli.ExitFailed, "maxmemory-policy allkeys-lru", "config set maxmemory-policy noeviction", "--allow-eviction")
	clitest.Address(t, clitest.Start(t, nil, append(args, "--allow-eviction")...))
}

// certificate makes a certificate for 127.0.0.1 that is its own authority.
func certificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		var text bytes.Buffer
		if err := pem.Encode(&text, &pem.Block{Type: kind, Bytes: der}); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	return write("cert.pem", "CERTIFICATE", cert), write("key.pem", "PRIVATE KEY", secret)
}

func TestServe_TLS(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	d := clitest.Start(t, nil, "serve", "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json", "--tls-cert", cert, "--tls-key", key)
	addr := clitest.Address(t, d)
	if got := clitest.Command(t, nil, "stats", "--server", addr, "--tls-ca", cert); got.Code != cli.ExitOK {
		t.Errorf("exit code %d: %s", got.Code, got.Err)
	}
	clitest.WantFailure(t, clitest.Command(t, nil, "stats", "--server", addr, "--tls"), cli.ExitFailed, "no TLS with "+addr, "certificate", "--tls-ca")
	clitest.WantFailure(t, clitest.Command(t, nil, "stats", "--server", addr), cli.ExitFailed, addr)
	clitest.WantFailure(t, clitest.Command(t, nil, "stats", "--server", addr, "--tls-ca", key), cli.ExitFailed, "holds no PEM certificate")
	clitest.WantFailure(t, clitest.Command(t, nil, "serve", "--listen", "127.0.0.1:0", "--http", "off", "--tls-cert", "nope.pem", "--tls-key", key), cli.ExitFailed, "nope.pem")
}
