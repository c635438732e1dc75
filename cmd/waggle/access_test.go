package main_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// door is a server that notes how callers prove who they are. It answers GetStats, unless it refuses everybody.
type door struct {
	pb.UnimplementedAdminServiceServer
	pb.UnimplementedDispatchServiceServer

	address string
	pki     string // the directory of the authority that it trusts
	refusal error

	mu     sync.Mutex // guards the rest
	tokens []string   // the values of authorization, for each call
	names  []string   // of the certificates
}

// GetStats answers.
func (d *door) GetStats(context.Context, *pb.GetStatsRequest) (*pb.GetStatsResponse, error) {
	return &pb.GetStatsResponse{}, nil
}

func (d *door) note(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	name := ""
	if from, ok := peer.FromContext(ctx); ok {
		if info, ok := from.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
			name = info.State.PeerCertificates[0].DNSNames[0]
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tokens, d.names = append(d.tokens, strings.Join(md.Get("authorization"), ",")), append(d.names, name)
	return d.refusal
}

// last is how the last caller proved who it is.
func (d *door) last(t *testing.T) (token, name string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.tokens) == 0 {
		t.Fatal("nobody has called")
	}
	return d.tokens[len(d.tokens)-1], d.names[len(d.names)-1]
}

// openDoor serves TLS on a loopback address.
func openDoor(t *testing.T, refusal error) *door {
	t.Helper()
	d := &door{refusal: refusal, pki: authorityIn(t)}
	mustRun(t, "cert", "server", d.pki, "127.0.0.1")
	pair, err := tls.LoadX509KeyPair(filepath.Join(d.pki, "server.pem"), filepath.Join(d.pki, "server-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM([]byte(readText(t, d.ca())))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.address = listener.Addr().String()
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: trusted, ClientAuth: tls.VerifyClientCertIfGiven,
		})),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if err := d.note(ctx); err != nil {
				return nil, err
			}
			return handle(ctx, req)
		}),
		grpc.StreamInterceptor(func(_ any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, _ grpc.StreamHandler) error {
			return d.note(stream.Context())
		}),
	)
	pb.RegisterAdminServiceServer(server, d)
	pb.RegisterDispatchServiceServer(server, d)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *door) ca() string { return filepath.Join(d.pki, "ca.pem") }

// env is an environment whose only lack is a credential.
func (d *door) env() map[string]string {
	return map[string]string{"WAGGLE_SERVER": d.address, "WAGGLE_TLS_CA": d.ca()}
}

// refused is a refusal as dispatchers make it.
func refused(t *testing.T, code codes.Code, reason string, metadata map[string]string) error {
	t.Helper()
	st, err := status.New(code, "refused for a test").WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: "waggle", Metadata: metadata})
	if err != nil {
		t.Fatal(err)
	}
	return st.Err()
}

// TestToken_sources holds which token is sent where several are given.
func TestToken_sources(t *testing.T) {
	t.Parallel()
	d := openDoor(t, nil)
	file, other := write(t, "token", "wgl_file\n"), write(t, "other", "wgl_other")
	for name, test := range map[string]struct {
		variables map[string]string
		in        string
		args      string
		want      string
	}{
		"none":                    {want: ""},
		"variable":                {variables: map[string]string{"WAGGLE_TOKEN": "wgl_variable"}, want: "Bearer wgl_variable"},
		"variable of a file":      {variables: map[string]string{"WAGGLE_TOKEN_FILE": file}, want: "Bearer wgl_file"},
		"flag":                    {args: "--token-file " + file, want: "Bearer wgl_file"},
		"flag before variable":    {variables: map[string]string{"WAGGLE_TOKEN": "wgl_variable"}, args: "--token-file " + file, want: "Bearer wgl_file"},
		"flag before both":        {variables: map[string]string{"WAGGLE_TOKEN": "wgl_variable", "WAGGLE_TOKEN_FILE": other}, args: "--token-file " + file, want: "Bearer wgl_file"},
		"no token, by a flag":     {variables: map[string]string{"WAGGLE_TOKEN": "wgl_variable"}, args: "--token-file=", want: ""},
		"standard input":          {in: "wgl_input\n", args: "--token-file -", want: "Bearer wgl_input"},
		"standard input, by name": {in: " wgl_input", variables: map[string]string{"WAGGLE_TOKEN_FILE": "-"}, want: "Bearer wgl_input"},
	} {
		env := d.env()
		for variable, value := range test.variables {
			env[variable] = value
		}
		got := commandWith(t, env, test.in, append([]string{"stats", "-o", "json"}, strings.Fields(test.args)...)...)
		if got.code != waggle.ExitOK {
			t.Errorf("%s: exit code %d, %s", name, got.code, got.err)
			continue
		}
		if sent, _ := d.last(t); sent != test.want {
			t.Errorf("%s: sent %q, want %q", name, sent, test.want)
		}
	}
}

// TestToken_certificate shows the certificate that flags name.
func TestToken_certificate(t *testing.T) {
	t.Parallel()
	d := openDoor(t, nil)
	mustRun(t, "cert", "client", d.pki, "ada.example")
	got := command(t, d.env(), "stats", "--client-cert", filepath.Join(d.pki, "ada.example.pem"), "--client-key", filepath.Join(d.pki, "ada.example-key.pem"))
	if got.code != waggle.ExitOK {
		t.Fatalf("exit code %d, %s", got.code, got.err)
	}
	if _, name := d.last(t); name != "ada.example" {
		t.Errorf("the certificate is of %q", name)
	}
}

// TestToken_neverShown holds that no error has a token, whatever is wrong.
func TestToken_neverShown(t *testing.T) {
	t.Parallel()
	d := openDoor(t, refused(t, codes.Unauthenticated, "UNAUTHENTICATED", nil))
	const secret = "wgl_secret"
	file, two := write(t, "token", secret), write(t, "two", secret+"\n"+secret)
	list := write(t, "a.urls", "https://a.example/\n")
	variable := with(d.env(), "WAGGLE_TOKEN", secret)
	for _, test := range []struct {
		env   map[string]string
		in    string
		args  string
		code  int
		parts []string
	}{
		{variable, "", "stats", waggle.ExitFailed, []string{"refused for a test", "is unknown here, expired or revoked"}},
		{d.env(), secret, "stats --token-file -", waggle.ExitFailed, []string{"refused for a test"}},
		{d.env(), "", "stats --token-file -", waggle.ExitFailed, []string{"--token-file -: standard input is empty"}},
		{d.env(), "", "stats --token-file " + secret, waggle.ExitUsage, []string{"--token-file: it looks like a token"}},
		{d.env(), "", "stats --token-file " + two, waggle.ExitFailed, []string{"--token-file: " + two + ": want a token"}},
		{with(variable, "WAGGLE_TOKEN", secret+" x"), "", "stats", waggle.ExitUsage, []string{"WAGGLE_TOKEN: want a token of 1 to 16384"}},
		{with(variable, "WAGGLE_TOKEN_FILE", file), "", "stats", waggle.ExitUsage, []string{"WAGGLE_TOKEN and WAGGLE_TOKEN_FILE: set one of them"}},
		{map[string]string{"WAGGLE_TOKEN": secret}, "", "stats --server dispatcher.example:7070", waggle.ExitUsage, []string{`--server "dispatcher.example:7070": a token is sent over TLS`, "want --tls or --tls-ca"}},
		{map[string]string{"WAGGLE_TOKEN": secret}, "", "collect --server dispatcher.example:7070", waggle.ExitUsage, []string{"want --tls or --tls-ca"}},
		{map[string]string{"WAGGLE_TOKEN": secret}, "", "stats --server 127.0.0.1:1", waggle.ExitFailed, []string{"nobody listens"}},
		{variable, "", "stats --tls-server-name other.example", waggle.ExitFailed, []string{"no TLS with"}},
		{d.env(), secret, "source import - --token-file -", waggle.ExitUsage, []string{"standard input cannot be read twice: --token-file - has read it"}},
		{d.env(), secret, "task submit --source a --file - --token-file -", waggle.ExitUsage, []string{"standard input cannot be read twice"}},
		{d.env(), secret, "apply -f - --token-file -", waggle.ExitFailed, []string{"standard input cannot be read twice"}},
		{d.env(), secret, "collect --until-eof --token-file -", waggle.ExitUsage, []string{"standard input cannot be read twice"}},
		{d.env(), secret, "source import " + list + " --every 1h --token-file -", waggle.ExitFailed, nil},
		{variable, "", "collect --token-file " + secret, waggle.ExitUsage, []string{"--token-file: it looks like a token"}},
		{d.env(), "", "collect --token-file " + two, waggle.ExitFailed, []string{"--token-file: " + two + ": want a token"}},
		{variable, "", "stats --token " + secret, waggle.ExitUsage, []string{"unknown flag: --token"}},
		{variable, "", "stats --token=" + secret, waggle.ExitUsage, []string{"unknown flag: --token"}},
		{variable, "", "context add a --token-file " + secret, waggle.ExitUsage, []string{"--token-file: it looks like a token"}},
	} {
		got := commandWith(t, test.env, test.in, strings.Fields(test.args)...)
		wantFailure(t, got, test.code, test.parts...)
		if said := got.out + got.err; strings.Contains(said, secret) {
			t.Errorf("%s: shows the token:\n%s", test.args, said)
		}
	}
}

// TestErrors_refused explains what to do about a call that is refused.
func TestErrors_refused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		refusal error
		token   string
		want    string
	}{
		"no credential":    {refused(t, codes.Unauthenticated, "UNAUTHENTICATED", nil), "", "no credential was given: give --token-file or --client-cert"},
		"by a proxy":       {status.Error(codes.Unauthenticated, "who?"), "", "no credential was given: give --token-file or --client-cert"},
		"wrong credential": {refused(t, codes.Unauthenticated, "UNAUTHENTICATED", nil), "wgl_x", "the credential is unknown here, expired or revoked"},
		"wrong role":       {refused(t, codes.PermissionDenied, "PERMISSION_DENIED", nil), "wgl_x", "`waggle auth explain METHOD --as IDENTITY` shows the rules"},
		"wrong role, named": {
			refused(t, codes.PermissionDenied, "PERMISSION_DENIED", map[string]string{"method": "GetStats", "identity": "token:ada"}), "wgl_x",
			"`waggle auth explain GetStats --as token:ada` shows the rules",
		},
		"id of another": {refused(t, codes.PermissionDenied, "COLLECTOR_BOUND", map[string]string{"collector_id": "paris-1"}), "wgl_x", "free this one by `waggle auth release paris-1`"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openDoor(t, test.refusal)
			wantFailure(t, command(t, with(d.env(), "WAGGLE_TOKEN", test.token), "stats"), waggle.ExitFailed, test.want)
		})
	}
}

// TestCollect_refused holds that a collector that may not fetch ends with advice, and that one with no accepted credential warns
// and goes on.
func TestCollect_refused(t *testing.T) {
	t.Parallel()
	denied := openDoor(t, refused(t, codes.PermissionDenied, "PERMISSION_DENIED", nil))
	k := start(t, with(denied.env(), "WAGGLE_TOKEN", "wgl_secret"), "collect", "--status", "0")
	if code := k.wait(); code != waggle.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	k.err.line(t, "refused for a test")
	k.err.line(t, "`waggle auth explain METHOD --as IDENTITY` shows the rules")

	unknown := openDoor(t, refused(t, codes.Unauthenticated, "UNAUTHENTICATED", nil))
	waiting := start(t, with(unknown.env(), "WAGGLE_TOKEN", "wgl_secret"), "collect", "--status", "10ms")
	waiting.err.line(t, "dispatchers do not accept the credentials")
	waiting.err.line(t, "refused for a test; the credential is unknown here, expired or revoked")
	if code := waiting.end(); code != waggle.ExitOK {
		t.Errorf("exit code %d after a stop:\n%s", code, waiting.err.text())
	}
	for _, one := range []*background{k, waiting} {
		if strings.Contains(one.err.text(), "wgl_secret") {
			t.Errorf("shows the token:\n%s", one.err.text())
		}
	}
}

// TestSourceImport_narrow imports with a token for the sources below one prefix: under that prefix, and under others, of which the
// refusal names which one it was.
func TestSourceImport_narrow(t *testing.T) {
	t.Parallel()
	rules := fmt.Sprintf("tokens: [{name: feeds, sha256: %x}]\ngrants: [{identity: 'token:feeds', role: operator, sources: [news.]}]\n", sha256.Sum256([]byte("wgl_feeds")))
	d := start(t, nil, "serve", "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json", "--drain-timeout", "5s", "--auth", write(t, "auth.yaml", rules))
	env := map[string]string{"WAGGLE_SERVER": address(t, d), "WAGGLE_TOKEN": "wgl_feeds"}
	imported := func(prefix string) answer {
		return commandWith(t, env, "https://a.example/1\nhttps://a.example/2\n", "source", "import", "-", "--every", "1h", "--prefix", prefix)
	}
	wantOutput(t, imported("news."), "2 sources: 2 created, 0 updated, 0 unchanged, 0 duplicates, 0 refused\n")
	wantFailure(t, imported("blogs."), waggle.ExitFailed, `under --prefix "blogs."`, `"blogs.a.example_1" does not begin with news.`)
	wantFailure(t, imported(""), waggle.ExitFailed, `under --prefix ""`, `"a.example_1" does not begin with news.`)
}

// TestServe_access has a dispatcher that knows a viewer and an operator by their tokens.
func TestServe_access(t *testing.T) {
	t.Parallel()
	pki := authorityIn(t)
	mustRun(t, "cert", "server", pki, "127.0.0.1")
	var policy strings.Builder
	for _, role := range []string{"viewer", "operator"} {
		fmt.Fprintf(&policy, "- name: %s\n  sha256: %x\n", role, sha256.Sum256([]byte("wgl_"+role)))
	}
	rules := "tokens:\n" + policy.String() + "grants:\n- {identity: 'token:viewer', role: viewer}\n- {identity: 'token:operator', role: operator}\n"
	d := start(t, nil, "serve", "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json", "--drain-timeout", "5s", "--auth", write(t, "auth.yaml", rules),
		"--tls-cert", filepath.Join(pki, "server.pem"), "--tls-key", filepath.Join(pki, "server-key.pem"))
	env := map[string]string{"WAGGLE_SERVER": address(t, d), "WAGGLE_TLS_CA": filepath.Join(pki, "ca.pem")}
	wantFailure(t, command(t, env, "stats"), waggle.ExitFailed, "no credential was given: give --token-file or --client-cert")
	wantFailure(t, command(t, with(env, "WAGGLE_TOKEN", "wgl_other"), "stats"), waggle.ExitFailed, "the credential is unknown here, expired or revoked")
	viewer := with(env, "WAGGLE_TOKEN", "wgl_viewer")
	if got := command(t, viewer, "stats"); got.code != waggle.ExitOK {
		t.Errorf("exit code %d, %s", got.code, got.err)
	}
	wantFailure(t, command(t, viewer, "source", "create", "a"), waggle.ExitFailed, "`waggle auth explain CreateSource --as token:viewer` shows the rules")
	if got := command(t, with(env, "WAGGLE_TOKEN", "wgl_operator"), "source", "create", "a"); got.code != waggle.ExitOK {
		t.Errorf("exit code %d, %s", got.code, got.err)
	}
	no := start(t, viewer, "collect", "--id", "paris-1", "--status", "0")
	if code := no.wait(); code != waggle.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	no.err.line(t, "`waggle auth explain FetchTask --as token:viewer` shows the rules")
	for _, one := range []*background{d, no} {
		if strings.Contains(one.err.text(), "wgl_") {
			t.Errorf("shows a token:\n%s", one.err.text())
		}
	}
}
