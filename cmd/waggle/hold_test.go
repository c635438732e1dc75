package main_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
)

// What operators hold comes back from a file in another Waggle, and then nothing changes.
func TestHold_roundTrip(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	wantNoted(t, command(t, env, "hold", "export"), "nothing is held by an operator: nothing is exported", "")
	until := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Second).Format(time.RFC3339)
	command(t, env, "source", "create", "news.a", "--seed", "https://held.example/")
	command(t, env, "source", "create", "news.b")
	command(t, env, "queue", "rule", "set", "ruled.example", "--paused")
	command(t, env, "task", "submit", "--source", "news.b", "https://ruled.example/")
	for _, args := range [][]string{
		{"queue", "block", "held.example", "--reason", "they <asked>"},
		{"queue", "pause", "held.example", "--until", until},
		{"pool", "pause", "browser", "--until", until, "--by", "eve"},
		{"collector", "drain", "paris-1"},
		{"collector", "drain", "--label", "region=eu", "--label", "disk=ssd"},
		{"source", "pause", "news.a", "--reason", "site moves"},
	} {
		if got := command(t, env, args...); got.code != waggle.ExitOK {
			t.Fatalf("%v: %s", args, got.err)
		}
	}
	want := `{"kind":"POOL_PAUSED","name":"browser","until":"` + until + `","by":"eve"}
{"kind":"COLLECTOR_DRAINED","name":"paris-1","by":"ada"}
{"kind":"COLLECTOR_DRAINED","labels":{"disk":"ssd","region":"eu"},"by":"ada"}
{"kind":"BLOCKED","name":"held.example","by":"ada","reason":"they <asked>"}
{"kind":"PAUSED","name":"held.example","until":"` + until + `","by":"ada"}
{"kind":"SOURCE_PAUSED","name":"news.a","by":"ada","reason":"site moves"}
`
	exported := command(t, env, "hold", "export")
	wantLines(t, exported.out, want)
	file := write(t, "holds.jsonl", exported.out)
	wantOutput(t, command(t, env, "hold", "apply", file), "6 holds: 0 created, 0 updated, 6 unchanged, 0 kept, 0 over, 0 refused\n")

	other, _ := served(t)
	other = with(other, "USER", "bob")
	dry := command(t, other, "hold", "apply", file, "--dry-run")
	if !strings.HasPrefix(dry.out, "nothing is changed; ") || !strings.HasSuffix(dry.out, "\n6 holds: would be 6 created, 0 updated, 0 unchanged, 0 kept, 0 over, 0 refused\n") {
		t.Errorf("dry run: %s%s", dry.out, dry.err)
	}
	if got := command(t, other, "hold", "export"); got.out != "" {
		t.Errorf("a dry run holds\n%s", got.out)
	}
	got := command(t, other, "hold", "apply", file)
	if got.code != waggle.ExitFailed || !strings.Contains(got.out, "line 6: source not found; `waggle source import` registers sources") ||
		!strings.HasSuffix(got.out, "\n6 holds: 5 created, 0 updated, 0 unchanged, 0 kept, 0 over, 1 refused\n") {
		t.Errorf("%d: %s%s", got.code, got.out, got.err)
	}
	// The same line again is as wrong as the first.
	got = commandWith(t, other, strings.Repeat(`{"kind":"SOURCE_PAUSED","name":"news.a"}`+"\n", 2), "hold", "apply", "-")
	if !strings.HasSuffix(got.out, "\n2 holds: 0 created, 0 updated, 0 unchanged, 0 kept, 0 over, 2 refused\n") {
		t.Errorf("%d: %s%s", got.code, got.out, got.err)
	}
	command(t, other, "source", "create", "news.a", "--seed", "https://held.example/")
	if got := command(t, other, "hold", "apply", file); got.code != waggle.ExitOK || !strings.HasSuffix(got.out, " 1 created, 0 updated, 5 unchanged, 0 kept, 0 over, 0 refused\n") {
		t.Errorf("%d: %s%s", got.code, got.out, got.err)
	}
	wantLines(t, command(t, other, "hold", "export").out, want)
}

// wantLines compares lines in whatever order.
func wantLines(t *testing.T, got, want string) {
	t.Helper()
	if strings.Count(got, "\n") != strings.Count(want, "\n") {
		t.Fatalf("got\n%s\nwant\n%s", got, want)
	}
	for line := range strings.Lines(want) {
		if !strings.Contains("\n"+got, "\n"+line) {
			t.Errorf("lacks %s in\n%s", line, got)
		}
	}
}

func TestHold_applyNothing(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	file := write(t, "holds.jsonl", "\n")
	wantFailure(t, command(t, env, "hold", "apply", file), waggle.ExitFailed, "waggle: nothing in "+file+"\n")
}

// A file shortens and ends nothing, and what is wrong with an entry stops no other.
func TestHold_apply(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "queue", "block", "ever.example")
	command(t, env, "queue", "block", "long.example", "--until", "9d")
	command(t, env, "queue", "block", "short.example", "--until", "1h")
	soon := time.Now().Add(48 * time.Hour).UTC().Format(time.RFC3339)
	file := write(t, "holds.jsonl", `{"kind": "BLOCKED", "name": "ever.example", "until": "`+soon+`"}
{"kind": "BLOCKED", "name": "long.example", "until": "`+soon+`"}
{"kind": "BLOCKED", "name": "https://Short.example/", "reason": "they asked"}
{"kind": "PAUSED", "name": "past.example", "until": "2020-01-01T00:00:00Z"}
{"kind": "STOPPED", "name": "x"}
{"kind": "PAUSED", "name": "x", "labels": {"a": "b"}}
{"kind": "POOL_PAUSED", "pool": "x"}
{"kind": "POOL_PAUSED", "name": "Bad"}
{"kind": "POOL_PAUSED"}
{"kind": "PAUSED", "name": "x"} {"kind": "PAUSED", "name": "y"}
`)
	for _, mode := range [][]string{nil, {"-o", "json"}} {
		got := command(t, env, append([]string{"hold", "apply", file}, mode...)...)
		wantFailure(t, got, waggle.ExitFailed)
		if mode != nil {
			var total struct{ Updated, Unchanged, Kept, Over, Refused int }
			if err := json.Unmarshal([]byte(got.out), &total); err != nil || total.Unchanged != 1 || total.Kept != 2 || total.Over != 1 || total.Refused != 6 {
				t.Errorf("%v: %s", err, got.out)
			}
			continue
		}
		for _, part := range []string{
			"KEPT     BLOCKED      ever.example   by ada\n", "KEPT     BLOCKED      long.example   by ada, opens in 9d\n",
			"UPDATED  BLOCKED      short.example  by ada: they asked; it was by ada, opens in 1h\n", "OVER     PAUSED       past.example   ended ",
			`line 5: kind is "STOPPED"; it must be one of`, "line 6: PAUSED is of a name, not of labels", `line 7: is no hold: json: unknown field "pool"`,
			"line 8: name", "line 9: POOL_PAUSED is of nothing", "line 10: is more than one object",
			"10 holds: 0 created, 1 updated, 0 unchanged, 2 kept, 1 over, 6 refused\n",
		} {
			if !strings.Contains(got.out, part) {
				t.Errorf("lacks %q:\n%s", part, got.out)
			}
		}
	}
	exported := command(t, env, "hold", "export").out
	if strings.Count(exported, "\n") != 3 || strings.Count(exported, "until") != 1 || strings.Contains(exported, soon[:10]) {
		t.Errorf("held is\n%s", exported)
	}
}
