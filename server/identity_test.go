package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
	"github.com/waggle-crawl/waggle/server/auth"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	a.cert = sign(t, template, template, a.key, a.key)
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t testing.TB, template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// issue makes a certificate of a server at 127.0.0.1, or of a client with names: a SPIFFE id or DNS names.
func (a *authority) issue(t testing.TB, valid time.Duration, names ...string) tls.Certificate {
	t.Helper()
	key, template := newKey(t), &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(valid), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		if uri, err := url.Parse(name); err == nil && uri.Scheme != "" {
			template.URIs = append(template.URIs, uri)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	if names == nil {
		template.IPAddresses, template.ExtKeyUsage = []net.IP{net.IPv4(127, 0, 0, 1)}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	cert := sign(t, template, a.cert, key, a.key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

// pems are the certificates of authorities.
func pems(authorities ...*authority) (text string) {
	for _, a := range authorities {
		text += string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
	}
	return text
}

// put replaces a file as a whole.
func put(t testing.TB, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// withTLS is a server with certificates, whose files are in a folder.
func withTLS(t testing.TB, ca *authority, policy string) (n *network, dir string) {
	t.Helper()
	return withTLSAt(t, ca, policy, server.Off)
}

// withTLSAt is withTLS with an address for HTTP.
func withTLSAt(t testing.TB, ca *authority, policy, address string) (n *network, dir string) {
	t.Helper()
	dir = t.TempDir()
	cert := ca.issue(t, time.Hour)
	key, err := x509.MarshalECPrivateKey(cert.PrivateKey.(*ecdsa.PrivateKey)) //nolint:forcetypeassert // issue made it
	if err != nil {
		t.Fatal(err)
	}
	return onNetwork(t, server.Config{
		HTTP:            address,
		TLSCertFile:     put(t, filepath.Join(dir, "cert.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}))),
		TLSKeyFile:      put(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key}))),
		TLSClientCAFile: put(t, filepath.Join(dir, "ca.pem"), pems(ca)), PolicyFile: put(t, filepath.Join(dir, "auth.yaml"), policy),
	}), dir
}

// connect connects with a certificate, or without if it is empty.
func (n *network) connect(t testing.TB, ca *authority, cert tls.Certificate) *grpc.ClientConn {
	t.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	config.RootCAs.AddCert(ca.cert)
	if cert.Leaf != nil { // also if the server does not name its authority
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	}
	return n.connectBy(t, n.Address(), credentials.NewTLS(config))
}

func (n *network) connectBy(t testing.TB, target string, creds credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

func getStats(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := pb.NewAdminServiceClient(conn).GetStats(ctx, &pb.GetStatsRequest{})
	return err
}

// wantRefusal checks the code and a part of the text of a refused call; no text: it is answered.
func wantRefusal(t testing.TB, err error, code codes.Code, text string) {
	t.Helper()
	if status.Code(err) != code || err != nil && !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %v with %q", err, code, text)
	}
}

func TestServer_clientCertificates(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	n, dir := withTLS(t, ca, `grants: [{identity: 'spiffe://example.org/*', role: viewer}, {identity: 'dns:ops.example', role: viewer}]`)
	spiffe := n.connect(t, ca, ca.issue(t, time.Hour, "spiffe://example.org/viewer", "ignored.example"))
	wantRefusal(t, getStats(t.Context(), spiffe), codes.OK, "")
	dns := n.connect(t, ca, ca.issue(t, time.Hour, "ops.example"))
	wantRefusal(t, getStats(t.Context(), dns), codes.OK, "")
	for text, names := range map[string][]string{
		"no grant is to dns:else.example":         {"else.example"},
		"no grant is to spiffe://evil.org/viewer": {"spiffe://evil.org/viewer"},
		"a SPIFFE id and other URIs":              {"spiffe://example.org/viewer", "spiffe://example.org/admin"},
		"has no SPIFFE id and no DNS name":        {"mailto:ada@example.org"},
	} {
		code := codes.PermissionDenied
		if !strings.Contains(text, "grant") {
			code = codes.Unauthenticated
		}
		wantRefusal(t, getStats(t.Context(), n.connect(t, ca, ca.issue(t, time.Hour, names...))), code, text)
	}
	wantRefusal(t, getStats(t.Context(), n.connect(t, ca, tls.Certificate{})), codes.Unauthenticated, "the call has no credential")
	wantRefusal(t, getStats(t.Context(), n.connect(t, ca, other.issue(t, time.Hour, "ops.example"))), codes.Unavailable, "")
	wantRefusal(t, getStats(t.Context(), n.connect(t, ca, ca.issue(t, -time.Second, "ops.example"))), codes.Unavailable, "")
	wantRefusal(t, getStats(t.Context(), n.connect(t, ca, ca.issue(t, time.Hour))), codes.Unavailable, "") // a server's

	expiring := n.connect(t, ca, ca.issue(t, 2*time.Second, "ops.example"))
	wantRefusal(t, getStats(t.Context(), expiring), codes.OK, "")
	eventually(t, "a connection is refused whose certificate has expired", func() bool { return status.Code(getStats(t.Context(), expiring)) == codes.Unauthenticated })

	// The next authority comes, and then the first one goes. Connections that it let in stay, as long as they have a grant.
	put(t, filepath.Join(dir, "ca.pem"), pems(ca, other))
	eventually(t, "certificates of the other authority count", func() bool {
		return getStats(t.Context(), n.connect(t, ca, other.issue(t, time.Hour, "ops.example"))) == nil
	})
	put(t, filepath.Join(dir, "ca.pem"), pems(other))
	eventually(t, "certificates of the first authority count no more", func() bool {
		return status.Code(getStats(t.Context(), n.connect(t, ca, ca.issue(t, time.Hour, "ops.example")))) == codes.Unavailable
	})
	wantRefusal(t, getStats(t.Context(), dns), codes.OK, "")
	put(t, filepath.Join(dir, "auth.yaml"), "grants: []")
	eventually(t, "a connection is refused whose grant is gone", func() bool { return status.Code(getStats(t.Context(), dns)) == codes.PermissionDenied })
}

func TestServer_unixSocket(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "waggle") //nolint:usetesting // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	path, policy := filepath.Join(dir, "s"), put(t, filepath.Join(dir, "auth.yaml"), fmt.Sprintf("grants: [{identity: 'uid:%d', role: viewer}]", os.Getuid()))
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}) // of a server that was killed
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}
	n := onNetwork(t, server.Config{Listen: "unix:" + path, HTTP: server.Off, PolicyFile: policy})
	conn := n.connectBy(t, "unix:"+path, insecure.NewCredentials())
	wantRefusal(t, getStats(t.Context(), conn), codes.OK, "")
	_, err = pb.NewTaskServiceClient(conn).SubmitTasks(t.Context(), &pb.SubmitTasksRequest{})
	wantRefusal(t, err, codes.PermissionDenied, fmt.Sprintf("uid:%d has the role viewer; SubmitTasks is for the role producer, operator or admin", os.Getuid()))
}

func TestServer_metricsToken(t *testing.T) {
	t.Parallel()
	policy := fmt.Sprintf("tokens: [{name: v, sha256: %s}, {name: c, sha256: %s}]\ngrants: [{identity: token:v, role: viewer}, {identity: token:c, role: collector}]",
		auth.HashToken("wgl_viewer"), auth.HashToken("wgl_collector"))
	n := onNetwork(t, server.Config{HTTP: "127.0.0.1:0", MetricsToken: true, PolicyFile: put(t, filepath.Join(t.TempDir(), "auth.yaml"), policy)})
	for header, want := range map[string]int{
		"": http.StatusUnauthorized, "Bearer wgl_collector": http.StatusUnauthorized, "Bearer wgl_other": http.StatusUnauthorized, "Bearer wgl_viewer": http.StatusOK,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.HTTPAddress()+"/metrics", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if header != "" {
			request.Header.Set("Authorization", header)
		}
		reply, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if err := reply.Body.Close(); err != nil {
			t.Error(err)
		}
		if reply.StatusCode != want {
			t.Errorf("with %q: %d, want %d", header, reply.StatusCode, want)
		}
	}
	if code, _ := n.get(t, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d", code)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestConfig_Validate_listen(t *testing.T) {
	t.Parallel()
	for listen, open := range map[string]bool{
		"0.0.0.0:7070": true, ":7070": true, "10.0.0.1:7070": true, "example.org:7070": true, "[::]:7070": true,
		"127.0.0.1:7070": false, "[::1]:7070": false, "localhost:7070": false, "unix:/run/waggle.sock": false, "127.9.9.9:1": false,
	} {
		for name, c := range map[string]struct {
			cfg     server.Config
			refused bool
		}{
			"without credentials": {server.Config{Listen: listen}, open},
			"without TLS":         {server.Config{Listen: listen, PolicyFile: "auth.yaml"}, open},
			"with both":           {server.Config{Listen: listen, PolicyFile: "auth.yaml", TLSCertFile: "a", TLSKeyFile: "b"}, false},
			"insecure":            {server.Config{Listen: listen, Insecure: true}, false},
		} {
			err := c.cfg.Validate()
			if (err != nil) != c.refused {
				t.Errorf("%s %s: %v", listen, name, err)
			}
			if err != nil && (!strings.Contains(err.Error(), "TLSCertFile") || !strings.Contains(err.Error(), "Insecure")) {
				t.Errorf("%s %s does not name the ways out: %v", listen, name, err)
			}
		}
	}
}
