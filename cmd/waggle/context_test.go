package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
)

// contextsIn is an environment with contexts in a directory of its own.
func contextsIn(t *testing.T) (env map[string]string, file string) {
	t.Helper()
	home := t.TempDir()
	return map[string]string{"XDG_CONFIG_HOME": home}, filepath.Join(home, "waggle", "contexts.yaml")
}

func TestContext_list(t *testing.T) {
	t.Parallel()
	env, file := contextsIn(t)
	wantOutput(t, command(t, env, "context", "list"), "no contexts: `waggle context add NAME` adds one\n")
	wantOutput(t, command(t, env, "context", "add", "home"), "added home; it is the current one\n")
	// What the environment sets is not kept, and relative paths are.
	wantOutput(t, command(t, with(with(env, "WAGGLE_SERVER", "x:1"), "WAGGLE_TOKEN", "wgl_secret"), "context", "add", "prod",
		"--server", "a.example:7070,b.example:7070", "--tls-ca", "/pki/ca.pem", "--token-file", "/run/token"), "added prod\n")
	wantOutput(t, command(t, env, "context", "add", "lab", "--server", "c.example:1", "--client-cert", "/me.pem", "--client-key", "/me-key.pem"), "added lab\n")
	wantOutput(t, command(t, env, "context", "use", "prod"), "prod is the current one\n")
	wantOutput(t, command(t, env, "context", "list"), `
CURRENT  NAME  SERVER                           TLS  CERTIFICATE  TOKEN FILE
-        home  127.0.0.1:7070                   no   -            -
-        lab   c.example:1                      yes  /me.pem      -
*        prod  a.example:7070,b.example:7070    yes  -            /run/token
`)
	got := command(t, with(env, "WAGGLE_OUTPUT", "json"), "context", "list")
	var list struct {
		Contexts []struct {
			Name      string
			Current   bool
			Server    []string
			TLSCA     string `json:"tls_ca"`
			TokenFile string `json:"token_file"`
		}
	}
	if err := json.Unmarshal([]byte(got.out), &list); err != nil || len(list.Contexts) != 3 {
		t.Fatalf("%v of %s%s", err, got.out, got.err)
	}
	if prod := list.Contexts[2]; prod.Name != "prod" || !prod.Current || len(prod.Server) != 2 || prod.TLSCA != "/pki/ca.pem" || prod.TokenFile != "/run/token" {
		t.Errorf("listed %+v", prod)
	}
	wantMode(t, file, 0o600)
	info, err := os.Stat(filepath.Dir(file))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v; want mode 700", info, err)
	}
	if text := readText(t, file); strings.Contains(text, "secret") {
		t.Errorf("keeps a token:\n%s", text)
	}
	if entries, err := os.ReadDir(filepath.Dir(file)); err != nil || len(entries) != 1 {
		t.Errorf("beside the file: %v, %v", entries, err)
	}
	if got := command(t, env, "__complete", "context", "use", "l"); !strings.HasPrefix(got.out, "lab\n:4") {
		t.Errorf("offers %q", got.out)
	}

	wantOutput(t, command(t, env, "context", "remove", "prod"), "removed prod\n")
	wantOutput(t, command(t, env, "context", "add", "again", "--token-file", "token"), "added again; it is the current one\n")
	workdir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if got := command(t, env, "context", "list"); !strings.Contains(got.out, filepath.Join(workdir, "token")) || strings.Contains(got.out, "prod") {
		t.Errorf("printed\n%s", got.out)
	}
}

// TestContext_order holds that a flag counts before a context that is named, that before variables, and those before the current
// context, which is not used where another server is named.
func TestContext_order(t *testing.T) {
	t.Parallel()
	first, second := openDoor(t, nil), openDoor(t, nil)
	env, _ := contextsIn(t)
	for name, d := range map[string]*door{"first": first, "second": second} {
		got := command(t, env, "context", "add", name, "--server", d.address, "--tls-ca", d.ca(), "--token-file", write(t, "token", "wgl_"+name))
		if got.code != waggle.ExitOK {
			t.Fatal(got.err)
		}
	}
	command(t, env, "context", "use", "first")
	plain, _ := served(t)
	for name, test := range map[string]struct {
		variables map[string]string
		args      string
		at        *door
		want      string
	}{
		"current":              {nil, "", first, "Bearer wgl_first"},
		"flag":                 {nil, "--context second", second, "Bearer wgl_second"},
		"variable":             {map[string]string{"WAGGLE_CONTEXT": "second"}, "", second, "Bearer wgl_second"},
		"flag before variable": {map[string]string{"WAGGLE_CONTEXT": "second"}, "--context first", first, "Bearer wgl_first"},
		"token of a variable":  {map[string]string{"WAGGLE_TOKEN": "wgl_mine"}, "", first, "Bearer wgl_mine"},
		"token of a flag":      {map[string]string{"WAGGLE_TOKEN": "wgl_mine"}, "--token-file " + write(t, "f", "wgl_flag"), first, "Bearer wgl_flag"},
		"no token":             {nil, "--token-file=", first, ""},
		"other server":         {map[string]string{"WAGGLE_SERVER": second.address, "WAGGLE_TLS_CA": second.ca()}, "", second, ""},
		"both":                 {nil, "--context first --server " + second.address + " --tls-ca " + second.ca(), second, "Bearer wgl_first"},
		"a named one before variables": {
			map[string]string{"WAGGLE_SERVER": first.address, "WAGGLE_TLS_CA": first.ca(), "WAGGLE_TOKEN": "wgl_mine"}, "--context second", second, "Bearer wgl_second",
		},
		"not the context's": {nil, "--server " + plain["WAGGLE_SERVER"], nil, ""},
	} {
		all := env
		for variable, value := range test.variables {
			all = with(all, variable, value)
		}
		got := command(t, all, append([]string{"stats"}, strings.Fields(test.args)...)...)
		if got.code != waggle.ExitOK {
			t.Errorf("%s: exit code %d, %s", name, got.code, got.err)
			continue
		}
		if test.at != nil {
			if sent, _ := test.at.last(t); sent != test.want {
				t.Errorf("%s: sent %q, want %q", name, sent, test.want)
			}
		}
	}
}

// TestContext_collect runs a collector by TLS with what the current context says.
func TestContext_collect(t *testing.T) {
	t.Parallel()
	pki := authorityIn(t)
	mustRun(t, "cert", "server", pki, "127.0.0.1")
	d := start(t, nil, "serve", "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json", "--drain-timeout", "5s",
		"--tls-cert", filepath.Join(pki, "server.pem"), "--tls-key", filepath.Join(pki, "server-key.pem"))
	env, _ := contextsIn(t)
	got := command(t, env, "context", "add", "here", "--server", address(t, d), "--tls-ca", filepath.Join(pki, "ca.pem"))
	if got.code != waggle.ExitOK {
		t.Fatal(got.err)
	}
	k := start(t, env, "collect", "--id", "paris-1")
	k.err.line(t, `"servers":\["`+address(t, d)+`"\]`)
	heardOf(t, env, k)
	if code := k.end(); code != waggle.ExitOK {
		t.Errorf("exit code %d:\n%s", code, k.err.text())
	}
}

func TestContext_errors(t *testing.T) {
	t.Parallel()
	env, _ := contextsIn(t)
	command(t, env, "context", "add", "home")
	broken := write(t, "contexts.yaml", "contexts:\n  a:\n    token: wgl_secret\n")
	for args, want := range map[string]struct {
		code int
		part string
	}{
		"context":                                       {waggle.ExitUsage, "which one? waggle context add|list|remove|use"},
		"context add":                                   {waggle.ExitUsage, "the context's NAME is missing"},
		"context add a b":                               {waggle.ExitUsage, `unexpected argument "b"`},
		"context add a/b":                               {waggle.ExitUsage, `NAME "a/b": want 1 to 128 of [A-Za-z0-9._-]`},
		"context add home":                              {waggle.ExitFailed, `there is a context "home" already`},
		"context add a --server localhost":              {waggle.ExitUsage, "--server localhost: want host:port"},
		"context add a --client-cert x.pem":             {waggle.ExitUsage, `--client-cert: "x.pem" and --client-key: "": want both or neither`},
		"context add a --token-file -":                  {waggle.ExitUsage, "--token-file -: a context keeps the path of a token, not a token"},
		"context add a --server b:1 --token-file token": {waggle.ExitUsage, "want --tls or --tls-ca"},
		"context add a --timeout 1s":                    {waggle.ExitUsage, "--timeout is for commands that ask a dispatcher"},
		"context add a --context b":                     {waggle.ExitUsage, "--context is for commands that ask a dispatcher"},
		"context use a":                                 {waggle.ExitFailed, `there is no context "a" in `},
		"context remove a":                              {waggle.ExitFailed, "`waggle context list` shows the contexts"},
		"context list -o xml":                           {waggle.ExitUsage, `--output: "xml" is unknown`},
		"stats --context a":                             {waggle.ExitFailed, `there is no context "a" in `},
		"collect --context a":                           {waggle.ExitFailed, `there is no context "a" in `},
		"demo --context a":                              {waggle.ExitUsage, "--context is for commands that ask a dispatcher"},
	} {
		wantFailure(t, command(t, env, strings.Fields(args)...), want.code, want.part)
	}
	for _, args := range []string{"context list", "stats", "context use a"} {
		got := command(t, map[string]string{"WAGGLE_CONFIG": broken}, strings.Fields(args)...)
		wantFailure(t, got, waggle.ExitFailed, "read contexts: "+broken, "field token not found")
		if strings.Contains(got.err, "wgl_secret") {
			t.Errorf("shows the token:\n%s", got.err)
		}
	}
	wantFailure(t, command(t, nil, "context", "list"), waggle.ExitFailed, "WAGGLE_CONFIG names a file for contexts")
	wantFailure(t, command(t, nil, "stats", "--context", "a"), waggle.ExitFailed, "--context a: ")
}

// heardOf waits until a dispatcher lists a collector.
func heardOf(t *testing.T, env map[string]string, k *background) {
	t.Helper()
	for limit := time.Now().Add(waitLimit); ; {
		got := command(t, env, "collector", "list")
		if strings.Contains(got.out, "ACTIVE") {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("the collector is never heard of: %s%s; it wrote\n%s", got.out, got.err, k.err.text())
		}
	}
}
