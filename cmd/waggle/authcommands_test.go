package main_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
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
	mustRun(t, append([]string{"auth", "token", "new", name, "--file", g.policy, "--out", file}, flags...)...)
	return with(g.env, "WAGGLE_TOKEN_FILE", file)
}

// newGuarded starts a dispatcher that knows ada.
func newGuarded(t *testing.T) *guarded {
	t.Helper()
	dir := authorityIn(t)
	mustRun(t, "cert", "server", dir, "127.0.0.1")
	server := partyIn(dir, "server")
	g := &guarded{dir: dir, policy: filepath.Join(dir, "auth.yaml"), env: map[string]string{"WAGGLE_TLS_CA": server.ca, "USER": "countess"}}
	g.env = g.token(t, "ada", "--role", "admin")
	d := start(t, nil, "serve", "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json", "--drain-timeout", "5s",
		"--auth", g.policy, "--tls-cert", server.cert, "--tls-key", server.key, "--tls-client-ca", server.ca)
	g.env["WAGGLE_SERVER"] = address(t, d)
	return g
}

// again repeats a command until it has the exit code and prints the text: dispatchers look at the policy five times a second.
func again(t *testing.T, code int, part string, env map[string]string, args ...string) answer {
	t.Helper()
	limit := time.After(waitLimit)
	for {
		got := command(t, env, args...)
		if got.code == code && strings.Contains(got.out+got.err, part) {
			return got
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-limit:
			t.Fatalf("%q still has exit code %d and prints %s%s", args, got.code, got.out, got.err)
		}
	}
}

// What a role does not allow is refused by its rule, which auth explain shows for everybody.
func TestAuth_explain(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	eu := g.token(t, "eu-1", "--role", "collector", "--collectors", "eu-*")
	if got := command(t, g.env, "stats"); got.code != waggle.ExitOK {
		t.Fatalf("ada: %s", got.err)
	}
	refused := again(t, waggle.ExitFailed, "not allowed", eu, "stats")
	const rule = "token:eu-1 has the role collector; GetStats is for the role producer, operator, viewer or admin"
	wantFailure(t, refused, waggle.ExitFailed, "not allowed: "+rule)
	wantOutput(t, command(t, g.env, "auth", "explain", "GetStats", "--as", "token:eu-1"), "refused: "+rule+"\n")
	wantOutput(t, command(t, g.env, "auth", "explain", "FetchTask", "--as", "token:eu-1"), "allowed: by the grant of collector to token:eu-1, collectors eu-*\n")
	wantFailure(t, command(t, g.env, "auth", "explain", "Fetch", "--as", "token:eu-1"), waggle.ExitUsage, `"Fetch"`)
	var reply struct {
		Allowed bool
		Text    string
	}
	got := command(t, g.env, "auth", "explain", "GetStats", "--as", "token:eu-1", "-o", "json")
	if err := json.Unmarshal([]byte(got.out), &reply); err != nil || reply.Allowed || reply.Text != rule {
		t.Errorf("%v: %s", err, got.out)
	}
	offered := command(t, g.env, "__complete", "auth", "explain", "")
	if !strings.Contains(offered.out, "FetchTask\n") || strings.Contains(offered.out, "/") {
		t.Errorf("offered %s", offered.out)
	}
	without := with(g.env, "WAGGLE_TOKEN_FILE", "")
	wantFailure(t, command(t, without, "stats"), waggle.ExitFailed, "not authenticated")
}

// A revoked token is refused, and a replaced one has the same grants.
func TestAuth_revoke(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	bob := g.token(t, "bob", "--role", "viewer")
	again(t, waggle.ExitOK, "", bob, "stats")
	mustRun(t, "auth", "token", "new", "bob", "--replace", "--file", g.policy, "--out", bob["WAGGLE_TOKEN_FILE"])
	again(t, waggle.ExitOK, "", bob, "stats")
	mustRun(t, "auth", "token", "revoke", "bob", "--file", g.policy)
	wantFailure(t, again(t, waggle.ExitFailed, "", bob, "stats"), waggle.ExitFailed, "the token is unknown, or was revoked")
}
