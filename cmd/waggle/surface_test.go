package main_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
)

// The flags that all commands share stand before the command or behind it.
func TestFlags_beforeCommand(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	server := env["WAGGLE_SERVER"]
	command(t, env, "source", "create", "a")
	want := command(t, env, "source", "get", "a", "-o", "json").out
	for _, args := range [][]string{
		{"--server", server, "-o", "json", "source", "get", "a"},
		{"source", "--server", server, "--output=json", "get", "a"},
		{"--timeout", "5s", "source", "get", "a", "--server", server, "--output", "json"},
	} {
		if got := command(t, nil, args...); got.out != want || got.code != waggle.ExitOK {
			t.Errorf("%v: exit code %d, %s%s", args, got.code, got.out, got.err)
		}
	}
	if got := command(t, nil, "serve", "--help"); strings.Contains(got.out, "--timeout") {
		t.Errorf("serve offers a flag that it refuses:\n%s", got.out)
	}
}

// For programs counts are numbers and ids are texts.
func TestOutput_json(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	holdOne(t, env)
	env = with(env, "WAGGLE_OUTPUT", "json")
	for args, parts := range map[string][]string{
		"stats":                  {`"granted": 2,`, `"leases": 1,`, `"parked_fetches": 0`},
		"lease list":             {`"task_id": "` + heldTask + `"`, `"fence": 1`, `"age": "`},
		"task get " + heldTask:   {`"cycle": 0,`, `"payload": "",`, `"history": [`},
		"source list":            {`"leased": 1,`, `"consecutive_failures": 1,`, `"labels": {}`},
		"queue get news.example": {`"waiting": 1,`, `"leased": 1,`},
		"version":                {`"version": "`, `"go": "go1`},
	} {
		got := command(t, env, strings.Fields(args)...)
		if !json.Valid([]byte(got.out)) || got.code != waggle.ExitOK {
			t.Errorf("%s: exit code %d, %s%s", args, got.code, got.out, got.err)
		}
		for _, part := range parts {
			if !strings.Contains(got.out, part) {
				t.Errorf("%s lacks %s:\n%s", args, part, got.out)
			}
		}
	}
}

// Shells are offered what the dispatcher knows and the few values that a flag takes, and nothing if none answers.
func TestComplete(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	holdOne(t, env)
	command(t, env, "source", "create", "news.b", "--pool", "browser", "--seed", "https://b.example/")
	for args, want := range map[string]string{
		"source get ":                            "news.b tour",
		"source get n":                           "news.b",
		"source get tour ":                       "",
		"source delete tour ":                    "news.b",
		"explain queue ":                         "b.example news.example",
		"explain pool br":                        "browser",
		"lease revoke ":                          heldTask,
		"lease list --collector ":                "paris-1",
		"task list --source ne":                  "news.b",
		"task list --state ":                     "scheduled ready leased dead canceled",
		"source list --health ":                  "ok late failing backed-off held stuck",
		"stats --output ":                        "table json",
		"--server " + silent(t) + " source get ": "",
		"--server 127.0.0.1:1 source get ":       "",
		"source get --server " + env["WAGGLE_SERVER"] + " t": "tour",
	} {
		words := strings.Split(args, " ")
		got := command(t, env, append([]string{"__complete"}, words...)...)
		offered, directive, _ := strings.Cut(got.out, ":")
		if got := strings.Join(strings.Fields(offered), " "); got != want || directive != "4\n" { // 4: and no names of files
			t.Errorf("%q offers %q, want %q; directive %q", args, got, want, directive)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if got := command(t, nil, "completion", shell); got.code != waggle.ExitOK || !strings.Contains(got.out, "__complete") {
			t.Errorf("%s: exit code %d, %s", shell, got.code, got.err)
		}
	}
	if got := command(t, nil, "--help"); !strings.Contains(got.out, "waggle completion bash|zsh|fish") {
		t.Errorf("help does not tell of it:\n%s", got.out)
	}
}

// In a pipe looks stand one after the other. One that fails is repeated, and an interrupt ends them well.
func TestWatch_pipe(t *testing.T) {
	t.Parallel()
	env, dispatcher := served(t)
	command(t, env, "source", "create", "a")
	for _, args := range []string{"source list", "explain source a", "source get a"} {
		watch := start(t, env, append(strings.Fields(args), "--watch=10ms")...)
		watch.out.line(t, `^$`)
		if code := watch.end(); code != waggle.ExitOK || watch.err.text() != "" {
			t.Errorf("%s: exit code %d, %s", args, code, watch.err.text())
		}
		looks := strings.Split(watch.out.text(), "\n\n")
		if len(looks) < 2 || looks[0] == "" || strings.Contains(looks[0], "\x1b") {
			t.Errorf("%s printed\n%s", args, watch.out.text())
		}
	}
	watch := start(t, env, "source", "list", "--watch=10ms")
	watch.out.line(t, `^a `)
	dispatcher.end()
	watch.err.line(t, `^waggle: nobody listens at .*; looking again$`)
	if code := watch.end(); code != waggle.ExitOK {
		t.Errorf("exit code %d: %s", code, watch.err.text())
	}
	if got := command(t, env, "source", "list", "--watch"); got.code != waggle.ExitFailed {
		t.Errorf("the first look fails with %d", got.code)
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
		help := command(t, nil, append(strings.Fields(cmd.CommandPath())[1:], "--help")...).out
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
	walk(waggle.NewRoot())
}
