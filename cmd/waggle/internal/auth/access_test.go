package auth_test

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
)

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
	d := clitest.OpenDoor(t, nil)
	file, other := clitest.WriteFile(t, "token", "wgl_file\n"), clitest.WriteFile(t, "other", "wgl_other")
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
		env := d.Env()
		for variable, value := range test.variables {
			env[variable] = value
		}
		got := clitest.CommandWith(t, env, test.in, append([]string{"stats", "-o", "json"}, strings.Fields(test.args)...)...)
		if got.Code != cli.ExitOK {
			t.Errorf("%s: exit code %d, %s", name, got.Code, got.Err)
			continue
		}
		if sent, _ := d.Last(t); sent != test.want {
			t.Errorf("%s: sent %q, want %q", name, sent, test.want)
		}
	}
}

// TestToken_certificate shows the certificate that flags name.
func TestToken_certificate(t *testing.T) {
	t.Parallel()
	d := clitest.OpenDoor(t, nil)
	clitest.MustRun(t, "cert", "client", d.PKI, "ada.example")
	got := clitest.Command(t, d.Env(), "stats", "--client-cert", filepath.Join(d.PKI, "ada.example.pem"), "--client-key", filepath.Join(d.PKI, "ada.example-key.pem"))
	if got.Code != cli.ExitOK {
		t.Fatalf("exit code %d, %s", got.Code, got.Err)
	}
	if _, name := d.Last(t); name != "ada.example" {
		t.Errorf("the certificate is of %q", name)
	}
}

// TestToken_neverShown holds that no error has a token, whatever is wrong.
func TestToken_neverShown(t *testing.T) {
	t.Parallel()
	d := clitest.OpenDoor(t, refused(t, codes.Unauthenticated, "UNAUTHENTICATED", nil))
	const secret = "wgl_secret"
	file, two := clitest.WriteFile(t, "token", secret), clitest.WriteFile(t, "two", secret+"\n"+secret)
	list := clitest.WriteFile(t, "a.urls", "https://a.example/\n")
	variable := clitest.With(d.Env(), "WAGGLE_TOKEN", secret)
	for _, test := range []struct {
		env   map[string]string
		in    string
		args  string
		code  int
		parts []string
	}{
		{variable, "", "stats", cli.ExitFailed, []string{"refused for a test", "is unknown here, expired or revoked"}},
		{d.Env(), secret, "stats --token-file -", cli.ExitFailed, []string{"refused for a test"}},
		{d.Env(), "", "stats --token-file -", cli.ExitFailed, []string{"--token-file -: standard input is empty"}},
		{d.Env(), "", "stats --token-file " + secret, cli.ExitUsage, []string{"--token-file: it looks like a token"}},
		{d.Env(), "", "stats --token-file " + two, cli.ExitFailed, []string{"--token-file: " + two + ": want a token"}},
		{clitest.With(variable, "WAGGLE_TOKEN", secret+" x"), "", "stats", cli.ExitUsage, []string{"WAGGLE_TOKEN: want a token of 1 to 16384"}},
		{clitest.With(variable, "WAGGLE_TOKEN_FILE", file), "", "stats", cli.ExitUsage, []string{"WAGGLE_TOKEN and WAGGLE_TOKEN_FILE: set one of them"}},
		{map[string]string{"WAGGLE_TOKEN": secret}, "", "stats --server dispatcher.example:7070", cli.ExitUsage, []string{`--server "dispatcher.example:7070": a token is sent over TLS`, "want --tls or --tls-ca"}},
		{map[string]string{"WAGGLE_TOKEN": secret}, "", "collect --server dispatcher.example:7070", cli.ExitUsage, []string{"want --tls or --tls-ca"}},
		{map[string]string{"WAGGLE_TOKEN": secret}, "", "stats --server 127.0.0.1:1", cli.ExitFailed, []string{"nobody listens"}},
		{variable, "", "stats --tls-server-name other.example", cli.ExitFailed, []string{"no TLS with"}},
		{d.Env(), secret, "source import - --token-file -", cli.ExitUsage, []string{"standard input cannot be read twice: --token-file - has read it"}},
		{d.Env(), secret, "task submit --source a --file - --token-file -", cli.ExitUsage, []string{"standard input cannot be read twice"}},
		{d.Env(), secret, "apply -f - --token-file -", cli.ExitFailed, []string{"standard input cannot be read twice"}},
		{d.Env(), secret, "collect --until-eof --token-file -", cli.ExitUsage, []string{"standard input cannot be read twice"}},
		{d.Env(), secret, "source import " + list + " --every 1h --token-file -", cli.ExitFailed, nil},
		{variable, "", "collect --token-file " + secret, cli.ExitUsage, []string{"--token-file: it looks like a token"}},
		{d.Env(), "", "collect --token-file " + two, cli.ExitFailed, []string{"--token-file: " + two + ": want a token"}},
		{variable, "", "stats --token " + secret, cli.ExitUsage, []string{"unknown flag: --token"}},
		{variable, "", "stats --token=" + secret, cli.ExitUsage, []string{"unknown flag: --token"}},
		{variable, "", "context add a --token-file " + secret, cli.ExitUsage, []string{"--token-file: it looks like a token"}},
	} {
		got := clitest.CommandWith(t, test.env, test.in, strings.Fields(test.args)...)
		clitest.WantFailure(t, got, test.code, test.parts...)
		if said := got.Out + got.Err; strings.Contains(said, secret) {
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
			d := clitest.OpenDoor(t, test.refusal)
			clitest.WantFailure(t, clitest.Command(t, clitest.With(d.Env(), "WAGGLE_TOKEN", test.token), "stats"), cli.ExitFailed, test.want)
		})
	}
}

// TestCollect_refused holds that a collector that may not fetch ends with advice, and that one with no accepted credential warns
// and goes on.
func TestCollect_refused(t *testing.T) {
	t.Parallel()
	denied := clitest.OpenDoor(t, refused(t, codes.PermissionDenied, "PERMISSION_DENIED", nil))
	k := clitest.Start(t, clitest.With(denied.Env(), "WAGGLE_TOKEN", "wgl_secret"), "collect", "--status", "0")
	if code := k.Wait(); code != cli.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	k.Err.Line(t, "refused for a test")
	k.Err.Line(t, "`waggle auth explain METHOD --as IDENTITY` shows the rules")

	unknown := clitest.OpenDoor(t, refused(t, codes.Unauthenticated, "UNAUTHENTICATED", nil))
	waiting := clitest.Start(t, clitest.With(unknown.Env(), "WAGGLE_TOKEN", "wgl_secret"), "collect", "--status", "10ms")
	waiting.Err.Line(t, "dispatchers do not accept the credentials")
	waiting.Err.Line(t, "refused for a test; the credential is unknown here, expired or revoked")
	if code := waiting.End(); code != cli.ExitOK {
		t.Errorf("exit code %d after a stop:\n%s", code, waiting.Err.Text())
	}
	for _, one := range []*clitest.Background{k, waiting} {
		if strings.Contains(one.Err.Text(), "wgl_secret") {
			t.Errorf("shows the token:\n%s", one.Err.Text())
		}
	}
}

// TestServe_access has a dispatcher that knows a viewer and an operator by their tokens.
func TestServe_access(t *testing.T) {
	t.Parallel()
	pki := clitest.AuthorityIn(t)
	clitest.MustRun(t, "cert", "server", pki, "127.0.0.1")
	var policy strings.Builder
	for _, role := range []string{"viewer", "operator"} {
		fmt.Fprintf(&policy, "- name: %s\n  sha256: %x\n", role, sha256.Sum256([]byte("wgl_"+role)))
	}
	rules := "tokens:\n" + policy.String() + "grants:\n- {identity: 'token:viewer', role: viewer}\n- {identity: 'token:operator', role: operator}\n"
	d := clitest.Start(t, nil, "serve", "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json", "--drain-timeout", "5s", "--auth", clitest.WriteFile(t, "auth.yaml", rules),
		"--tls-cert", filepath.Join(pki, "server.pem"), "--tls-key", filepath.Join(pki, "server-key.pem"))
	env := map[string]string{"WAGGLE_SERVER": clitest.Address(t, d), "WAGGLE_TLS_CA": filepath.Join(pki, "ca.pem")}
	clitest.WantFailure(t, clitest.Command(t, env, "stats"), cli.ExitFailed, "no credential was given: give --token-file or --client-cert")
	clitest.WantFailure(t, clitest.Command(t, clitest.With(env, "WAGGLE_TOKEN", "wgl_other"), "stats"), cli.ExitFailed, "the credential is unknown here, expired or revoked")
	viewer := clitest.With(env, "WAGGLE_TOKEN", "wgl_viewer")
	if got := clitest.Command(t, viewer, "stats"); got.Code != cli.ExitOK {
		t.Errorf("exit code %d, %s", got.Code, got.Err)
	}
	clitest.WantFailure(t, clitest.Command(t, viewer, "source", "create", "a"), cli.ExitFailed, "`waggle auth explain CreateSource --as token:viewer` shows the rules")
	if got := clitest.Command(t, clitest.With(env, "WAGGLE_TOKEN", "wgl_operator"), "source", "create", "a"); got.Code != cli.ExitOK {
		t.Errorf("exit code %d, %s", got.Code, got.Err)
	}
	no := clitest.Start(t, viewer, "collect", "--id", "paris-1", "--status", "0")
	if code := no.Wait(); code != cli.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	no.Err.Line(t, "`waggle auth explain FetchTask --as token:viewer` shows the rules")
	for _, one := range []*clitest.Background{d, no} {
		if strings.Contains(one.Err.Text(), "wgl_") {
			t.Errorf("shows a token:\n%s", one.Err.Text())
		}
	}
}
