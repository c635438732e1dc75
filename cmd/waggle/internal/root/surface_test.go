package root_test

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/root"
)

// The flags that all commands share stand before the command or behind it.
func TestFlags_beforeCommand(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	server := env["WAGGLE_SERVER"]
	clitest.Command(t, env, "source", "create", "a")
	want := clitest.Command(t, env, "source", "get", "a", "-o", "json").Out
	for _, args := range [][]string{
		{"--server", server, "-o", "json", "source", "get", "a"},
		{"source", "--server", server, "--output=json", "get", "a"},
		{"--timeout", "5s", "source", "get", "a", "--server", server, "--output", "json"},
	} {
		if got := clitest.Command(t, nil, args...); got.Out != want || got.Code != cli.ExitOK {
			t.Errorf("%v: exit code %d, %s%s", args, got.Code, got.Out, got.Err)
		}
	}
	if got := clitest.Command(t, nil, "serve", "--help"); strings.Contains(got.Out, "--timeout") {
		t.Errorf("serve offers a flag that it refuses:\n%s", got.Out)
	}
}

// For programs counts are numbers and ids are texts.
func TestOutput_json(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.HoldOne(t, env)
	env = clitest.With(env, "WAGGLE_OUTPUT", "json")
	for args, parts := range map[string][]string{
		"stats":                        {`"granted": 2,`, `"leases": 1,`, `"parked_fetches": 0`},
		"lease list":                   {`"task_id": "` + clitest.HeldTask + `"`, `"fence": 1`, `"age": "`},
		"task get " + clitest.HeldTask: {`"cycle": 0,`, `"payload": "",`, `"history": [`},
		"source list":                  {`"leased": 1,`, `"consecutive_failures": 1,`, `"labels": {}`},
		"queue get news.example":       {`"waiting": 1,`, `"leased": 1,`},
		"version":                      {`"version": "`, `"go": "go1`},
	} {
		got := clitest.Command(t, env, strings.Fields(args)...)
		if !json.Valid([]byte(got.Out)) || got.Code != cli.ExitOK {
			t.Errorf("%s: exit code %d, %s%s", args, got.Code, got.Out, got.Err)
		}
		for _, part := range parts {
			if !strings.Contains(got.Out, part) {
				t.Errorf("%s lacks %s:\n%s", args, part, got.Out)
			}
		}
	}
}

// Shells are offered what the dispatcher knows and the few values that a flag takes, and nothing if none answers.
func TestComplete(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.HoldOne(t, env)
	clitest.Command(t, env, "source", "create", "news.b", "--pool", "browser", "--seed", "https://b.example/")
	for args, want := range map[string]string{
		"source get ":             "news.b tour",
		"source get n":            "news.b",
		"source get tour ":        "",
		"source delete tour ":     "news.b",
		"explain queue ":          "b.example news.example",
		"explain pool br":         "browser",
		"lease revoke ":           clitest.HeldTask,
		"lease list --collector ": "paris-1",
		"task list --source ne":   "news.b",
		"task list --state ":      "scheduled ready leased dead canceled",
		"source list --health ":   "ok late failing backed-off held stuck empty quiet pages-fail",
		"stats --output ":         "table json",
		"--server " + clitest.Silent(t) + " source get ":     "",
		"--server 127.0.0.1:1 source get ":                   "",
		"source get --server " + env["WAGGLE_SERVER"] + " t": "tour",
	} {
		words := strings.Split(args, " ")
		got := clitest.Command(t, env, append([]string{"__complete"}, words...)...)
		offered, directive, _ := strings.Cut(got.Out, ":")
		if got := strings.Join(strings.Fields(offered), " "); got != want || directive != "4\n" { // 4: and no names of files
			t.Errorf("%q offers %q, want %q; directive %q", args, got, want, directive)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if got := clitest.Command(t, nil, "completion", shell); got.Code != cli.ExitOK || !strings.Contains(got.Out, "__complete") {
			t.Errorf("%s: exit code %d, %s", shell, got.Code, got.Err)
		}
	}
	if got := clitest.Command(t, nil, "--help"); !strings.Contains(got.Out, "waggle completion bash|zsh|fish") {
		t.Errorf("help does not tell of it:\n%s", got.Out)
	}
}

// In a pipe looks stand one after the other. One that fails is repeated, and an interrupt ends them well.
func TestWatch_pipe(t *testing.T) {
	t.Parallel()
	env, dispatcher := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "a")
	for _, args := range []string{"source list", "explain source a", "source get a"} {
		watch := clitest.Start(t, env, append(strings.Fields(args), "--watch=10ms")...)
		watch.Out.Line(t, `^$`)
		if code := watch.End(); code != cli.ExitOK || watch.Err.Text() != "" {
			t.Errorf("%s: exit code %d, %s", args, code, watch.Err.Text())
		}
		looks := strings.Split(watch.Out.Text(), "\n\n")
		if len(looks) < 2 || looks[0] == "" || strings.Contains(looks[0], "\x1b") {
			t.Errorf("%s printed\n%s", args, watch.Out.Text())
		}
	}
	watch := clitest.Start(t, env, "source", "list", "--watch=10ms")
	watch.Out.Line(t, `^a `)
	dispatcher.End()
	watch.Err.Line(t, `^waggle: nobody listens at .*; looking again$`)
	if code := watch.End(); code != cli.ExitOK {
		t.Errorf("exit code %d: %s", code, watch.Err.Text())
	}
	if got := clitest.Command(t, env, "source", "list", "--watch"); got.Code != cli.ExitFailed {
		t.Errorf("the first look fails with %d", got.Code)
	}
}

// What a command does stands in a few words, and its help fits 80 columns and has all of its flags.
func TestHelp_tree(t *testing.T) {
	t.Parallel()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if words := strings.Fields(cmd.Short); len(words) == 0 || len(words) > 8 || strings.Contains(cmd.Short, ";") {
			t.Errorf("%s: %q has %d words, want at most 8 and no semicolon", cmd.CommandPath(), cmd.Short, len(words))
		}
		help := clitest.Command(t, nil, append(strings.Fields(cmd.CommandPath())[1:], "--help")...).Out
		for line := range strings.Lines(help) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%s --help: a line has %d columns: %s", cmd.CommandPath(), n, line)
			}
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && strings.Count(help, "  --"+f.Name)+strings.Count(help, ", --"+f.Name) == 0 {
				t.Errorf("%s --help lacks --%s", cmd.CommandPath(), f.Name)
			}
		})
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root.New(cli.Console{Env: func(string) (string, bool) { return "", false }}, io.Discard))
}
