package contexts_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
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
	clitest.WantOutput(t, clitest.Command(t, env, "context", "list"), "no contexts: `waggle context add NAME` adds one\n")
	clitest.WantOutput(t, clitest.Command(t, env, "context", "add", "home"), "added home; it is the current one\n")
	// What the environment sets is not kept, and relative paths are.
	clitest.WantOutput(t, clitest.Command(t, clitest.With(clitest.With(env, "WAGGLE_SERVER", "x:1"), "WAGGLE_TOKEN", "wgl_secret"), "context", "add", "prod",
		"--server", "a.example:7070,b.example:7070", "--tls-ca", "/pki/ca.pem", "--token-file", "/run/token"), "added prod\n")
	clitest.WantOutput(t, clitest.Command(t, env, "context", "add", "lab", "--server", "c.example:1", "--client-cert", "/me.pem", "--client-key", "/me-key.pem"), "added lab\n")
	clitest.WantOutput(t, clitest.Command(t, env, "context", "use", "prod"), "prod is the current one\n")
	clitest.WantOutput(t, clitest.Command(t, env, "context", "list"), `
CURRENT  NAME  SERVER                           TLS  CERTIFICATE  TOKEN FILE
-        home  127.0.0.1:7070                   no   -            -
-        lab   c.example:1                      yes  /me.pem      -
*        prod  a.example:7070,b.example:7070    yes  -            /run/token
`)
	got := clitest.Command(t, clitest.With(env, "WAGGLE_OUTPUT", "json"), "context", "list")
	var list struct {
		Contexts []struct {
			Name      string
			Current   bool
			Server    []string
			TLSCA     string `json:"tls_ca"`
			TokenFile string `json:"token_file"`
		}
	}
	if err := json.Unmarshal([]byte(got.Out), &list); err != nil || len(list.Contexts) != 3 {
		t.Fatalf("%v of %s%s", err, got.Out, got.Err)
	}
	if prod := list.Contexts[2]; prod.Name != "prod" || !prod.Current || len(prod.Server) != 2 || prod.TLSCA != "/pki/ca.pem" || prod.TokenFile != "/run/token" {
		t.Errorf("listed %+v", prod)
	}
	clitest.WantMode(t, file, 0o600)
	info, err := os.Stat(filepath.Dir(file))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v; want mode 700", info, err)
	}
	if text := clitest.ReadFile(t, file); strings.Contains(text, "secret") {
		t.Errorf("keeps a token:\n%s", text)
	}
	if entries, err := os.ReadDir(filepath.Dir(file)); err != nil || len(entries) != 1 {
		t.Errorf("beside the file: %v, %v", entries, err)
	}
	if got := clitest.Command(t, env, "__complete", "context", "use", "l"); !strings.HasPrefix(got.Out, "lab\n:4") {
		t.Errorf("offers %q", got.Out)
	}

	clitest.WantOutput(t, clitest.Command(t, env, "context", "remove", "prod"), "removed prod\n")
	clitest.WantOutput(t, clitest.Command(t, env, "context", "add", "again", "--token-file", "token"), "added again; it is the current one\n")
	workdir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if got := clitest.Command(t, env, "context", "list"); !strings.Contains(got.Out, filepath.Join(workdir, "token")) || strings.Contains(got.Out, "prod") {
		t.Errorf("printed\n%s", got.Out)
	}
}

// TestContext_order holds that a flag counts before a context that is named, that before variables, and those before the current
// context, which is not used where another server is named.
func TestContext_order(t *testing.T) {
	t.Parallel()
	first, second := clitest.OpenDoor(t, nil), clitest.OpenDoor(t, nil)
	env, _ := contextsIn(t)
	for name, d := range map[string]*clitest.Door{"first": first, "second": second} {
		got := clitest.Command(t, env, "context", "add", name, "--server", d.Address, "--tls-ca", d.CA(), "--token-file", clitest.WriteFile(t, "token", "wgl_"+name))
		if got.Code != cli.ExitOK {
			t.Fatal(got.Err)
		}
	}
	clitest.Command(t, env, "context", "use", "first")
	plain, _ := clitest.Served(t)
	for name, test := range map[string]struct {
		variables map[string]string
		args      string
		at        *clitest.Door
		want      string
	}{
		"current":              {nil, "", first, "Bearer wgl_first"},
		"flag":                 {nil, "--context second", second, "Bearer wgl_second"},
		"variable":             {map[string]string{"WAGGLE_CONTEXT": "second"}, "", second, "Bearer wgl_second"},
		"flag before variable": {map[string]string{"WAGGLE_CONTEXT": "second"}, "--context first", first, "Bearer wgl_first"},
		"token of a variable":  {map[string]string{"WAGGLE_TOKEN": "wgl_mine"}, "", first, "Bearer wgl_mine"},
		"token of a flag":      {map[string]string{"WAGGLE_TOKEN": "wgl_mine"}, "--token-file " + clitest.WriteFile(t, "f", "wgl_flag"), first, "Bearer wgl_flag"},
		"no token":             {nil, "--token-file=", first, ""},
		"other server":         {map[string]string{"WAGGLE_SERVER": second.Address, "WAGGLE_TLS_CA": second.CA()}, "", second, ""},
		"both":                 {nil, "--context first --server " + second.Address + " --tls-ca " + second.CA(), second, "Bearer wgl_first"},
		"a named one before variables": {
			map[string]string{"WAGGLE_SERVER": first.Address, "WAGGLE_TLS_CA": first.CA(), "WAGGLE_TOKEN": "wgl_mine"}, "--context second", second, "Bearer wgl_second",
		},
		"not the context's": {nil, "--server " + plain["WAGGLE_SERVER"], nil, ""},
	} {
		all := env
		for variable, value := range test.variables {
			all = clitest.With(all, variable, value)
		}
		got := clitest.Command(t, all, append([]string{"stats"}, strings.Fields(test.args)...)...)
		if got.Code != cli.ExitOK {
			t.Errorf("%s: exit code %d, %s", name, got.Code, got.Err)
			continue
		}
		if test.at != nil {
			if sent, _ := test.at.Last(t); sent != test.want {
				t.Errorf("%s: sent %q, want %q", name, sent, test.want)
			}
		}
	}
}

// TestContext_collect runs a collector by TLS with what the current context says.
func TestContext_collect(t *testing.T) {
	t.Parallel()
	pki := clitest.AuthorityIn(t)
	clitest.MustRun(t, "cert", "server", pki, "127.0.0.1")
	d := clitest.Start(t, nil, "serve", "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json", "--drain-timeout", "5s",
		"--tls-cert", filepath.Join(pki, "server.pem"), "--tls-key", filepath.Join(pki, "server-key.pem"))
	env, _ := contextsIn(t)
	got := clitest.Command(t, env, "context", "add", "here", "--server", clitest.Address(t, d), "--tls-ca", filepath.Join(pki, "ca.pem"))
	if got.Code != cli.ExitOK {
		t.Fatal(got.Err)
	}
	k := clitest.Start(t, env, "collect", "--id", "paris-1")
	k.Err.Line(t, `"servers":\["`+clitest.Address(t, d)+`"\]`)
	heardOf(t, env, k)
	if code := k.End(); code != cli.ExitOK {
		t.Errorf("exit code %d:\n%s", code, k.Err.Text())
	}
}

func TestContext_errors(t *testing.T) {
	t.Parallel()
	env, _ := contextsIn(t)
	clitest.Command(t, env, "context", "add", "home")
	broken := clitest.WriteFile(t, "contexts.yaml", "contexts:\n  a:\n    token: wgl_secret\n")
	for args, want := range map[string]struct {
		code int
		part string
	}{
		"context":                                       {cli.ExitUsage, "which one? waggle context add|list|remove|use"},
		"context add":                                   {cli.ExitUsage, "the context's NAME is missing"},
		"context add a b":                               {cli.ExitUsage, `unexpected argument "b"`},
		"context add a/b":                               {cli.ExitUsage, `NAME "a/b": want 1 to 128 of [A-Za-z0-9._-]`},
		"context add home":                              {cli.ExitFailed, `there is a context "home" already`},
		"context add a --server localhost":              {cli.ExitUsage, "--server localhost: want host:port"},
		"context add a --client-cert x.pem":             {cli.ExitUsage, `--client-cert: "x.pem" and --client-key: "": want both or neither`},
		"context add a --token-file -":                  {cli.ExitUsage, "--token-file -: a context keeps the path of a token, not a token"},
		"context add a --server b:1 --token-file token": {cli.ExitUsage, "want --tls or --tls-ca"},
		"context add a --timeout 1s":                    {cli.ExitUsage, "--timeout is for commands that ask a dispatcher"},
		"context add a --context b":                     {cli.ExitUsage, "--context is for commands that ask a dispatcher"},
		"context use a":                                 {cli.ExitFailed, `there is no context "a" in `},
		"context remove a":                              {cli.ExitFailed, "`waggle context list` shows the contexts"},
		"context list -o xml":                           {cli.ExitUsage, `--output: "xml" is unknown`},
		"stats --context a":                             {cli.ExitFailed, `there is no context "a" in `},
		"collect --context a":                           {cli.ExitFailed, `there is no context "a" in `},
		"demo --context a":                              {cli.ExitUsage, "--context is for commands that ask a dispatcher"},
	} {
		clitest.WantFailure(t, clitest.Command(t, env, strings.Fields(args)...), want.code, want.part)
	}
	for _, args := range []string{"context list", "stats", "context use a"} {
		got := clitest.Command(t, map[string]string{"WAGGLE_CONFIG": broken}, strings.Fields(args)...)
		clitest.WantFailure(t, got, cli.ExitFailed, "read contexts: "+broken, "field token not found")
		if strings.Contains(got.Err, "wgl_secret") {
			t.Errorf("shows the token:\n%s", got.Err)
		}
	}
	clitest.WantFailure(t, clitest.Command(t, nil, "context", "list"), cli.ExitFailed, "WAGGLE_CONFIG names a file for contexts")
	clitest.WantFailure(t, clitest.Command(t, nil, "stats", "--context", "a"), cli.ExitFailed, "--context a: ")
}

// heardOf waits until a dispatcher lists a collector.
func heardOf(t *testing.T, env map[string]string, k *clitest.Background) {
	t.Helper()
	for limit := time.Now().Add(clitest.WaitLimit); ; {
		got := clitest.Command(t, env, "collector", "list")
		if strings.Contains(got.Out, "ACTIVE") {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("the collector is never heard of: %s%s; it wrote\n%s", got.Out, got.Err, k.Err.Text())
		}
	}
}
