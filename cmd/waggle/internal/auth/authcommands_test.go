package auth_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
)

// guarded is a dispatcher with TLS and a policy, and the files of a first setup.
type guarded struct {
	dir, policy string
	env         map[string]string // of ada, an admin
}

// token makes a token, and returns the environment of its holder.
func (g *guarded) token(t *testing.T, name string, flags ...string) map[string]string {
	t.Helper()
	file := filepath.Join(g.dir, name+".token")
	clitest.MustRun(t, append([]string{"auth", "token", "new", name, "--file", g.policy, "--out", file}, flags...)...)
	return clitest.With(g.env, "WAGGLE_TOKEN_FILE", file)
}

// newGuarded starts a dispatcher that knows ada.
func newGuarded(t *testing.T) *guarded {
	t.Helper()
	dir := clitest.AuthorityIn(t)
	clitest.MustRun(t, "cert", "server", dir, "127.0.0.1")
	server := clitest.PartyIn(dir, "server")
	g := &guarded{dir: dir, policy: filepath.Join(dir, "auth.yaml"), env: map[string]string{"WAGGLE_TLS_CA": server.CA, "USER": "countess"}}
	g.env = g.token(t, "ada", "--role", "admin")
	d := clitest.Start(t, nil, "serve", "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json", "--drain-timeout", "5s",
		"--auth", g.policy, "--tls-cert", server.Cert, "--tls-key", server.Key, "--tls-client-ca", server.CA)
	g.env["WAGGLE_SERVER"] = clitest.Address(t, d)
	return g
}

// again repeats a command until it has the exit code and prints the text: dispatchers look at the policy five times a second.
func again(t *testing.T, code int, part string, env map[string]string, args ...string) clitest.Answer {
	t.Helper()
	limit := time.After(clitest.WaitLimit)
	for {
		got := clitest.Command(t, env, args...)
		if got.Code == code && strings.Contains(got.Out+got.Err, part) {
			return got
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-limit:
			t.Fatalf("%q still has exit code %d and prints %s%s", args, got.Code, got.Out, got.Err)
		}
	}
}

// What a role does not allow is refused by its rule, which auth explain shows for everybody.
func TestAuth_explain(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	eu := g.token(t, "eu-1", "--role", "collector", "--collectors", "eu-*")
	if got := clitest.Command(t, g.env, "stats"); got.Code != cli.ExitOK {
		t.Fatalf("ada: %s", got.Err)
	}
	refused := again(t, cli.ExitFailed, "not allowed", eu, "stats")
	const rule = "token:eu-1 has the role collector; GetStats is for the role producer, operator, viewer or admin"
	clitest.WantFailure(t, refused, cli.ExitFailed, "not allowed: "+rule)
	clitest.WantOutput(t, clitest.Command(t, g.env, "auth", "explain", "GetStats", "--as", "token:eu-1"), "refused: "+rule+"\n")
	clitest.WantOutput(t, clitest.Command(t, g.env, "auth", "explain", "FetchTask", "--as", "token:eu-1"), "allowed: by the grant of collector to token:eu-1, collectors eu-*\n")
	clitest.WantFailure(t, clitest.Command(t, g.env, "auth", "explain", "Fetch", "--as", "token:eu-1"), cli.ExitUsage, `"Fetch"`)
	var reply struct {
		Allowed bool
		Text    string
	}
	got := clitest.Command(t, g.env, "auth", "explain", "GetStats", "--as", "token:eu-1", "-o", "json")
	if err := json.Unmarshal([]byte(got.Out), &reply); err != nil || reply.Allowed || reply.Text != rule {
		t.Errorf("%v: %s", err, got.Out)
	}
	offered := clitest.Command(t, g.env, "__complete", "auth", "explain", "")
	if !strings.Contains(offered.Out, "FetchTask\n") || strings.Contains(offered.Out, "/") {
		t.Errorf("offered %s", offered.Out)
	}
	without := clitest.With(g.env, "WAGGLE_TOKEN_FILE", "")
	clitest.WantFailure(t, clitest.Command(t, without, "stats"), cli.ExitFailed, "not authenticated")
}

// A revoked token is refused, and a replaced one has the same grants.
func TestAuth_revoke(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	bob := g.token(t, "bob", "--role", "viewer")
	again(t, cli.ExitOK, "", bob, "stats")
	clitest.MustRun(t, "auth", "token", "new", "bob", "--replace", "--file", g.policy, "--out", bob["WAGGLE_TOKEN_FILE"])
	again(t, cli.ExitOK, "", bob, "stats")
	clitest.MustRun(t, "auth", "token", "revoke", "bob", "--file", g.policy)
	clitest.WantFailure(t, again(t, cli.ExitFailed, "", bob, "stats"), cli.ExitFailed, "the token is unknown, or was revoked")
}
