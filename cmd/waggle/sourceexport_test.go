package main_test

import (
	"strings"
	"testing"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
)

// What export writes, import reads, and then nothing has changed.
func TestSourceExport_roundTrip(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "source", "create", "full", "--seed", "https://a.example/", "--seed", "https://b.example/?x=1&y=2", "--cron", "0 6 * * *",
		"--time-zone", "Europe/Berlin", "--revisit", "--follow-host", "*.example,b.test", "--max-depth", "3", "--include", "/a b/", "--exclude", "x$",
		"--pool", "eu", "--priority", "0", "--display-name", `The "full", one & only`, "--label", "category=a/b,team=x", "--scope", "shared",
		"--lease", "1m", "--max-hold", "2h", "--max-attempts", "2", "--min-backoff", "1s", "--remember", "36h", "--revisit-after", "2d",
		"--max-outstanding", "7", "--metadata", "lang=en")
	command(t, env, "source", "create", "plain", "--seed", "https://p.example/", "--every", "90m", "--first-crawl", "spread")
	command(t, env, "source", "create", "none")
	for _, format := range []string{"jsonl", "csv"} {
		exported := command(t, env, "source", "export", "--format", format)
		if exported.code != waggle.ExitOK || exported.err != "" {
			t.Fatalf("%s: %d, %s", format, exported.code, exported.err)
		}
		for _, name := range []string{"import", "apply"} {
			got := commandWith(t, env, exported.out, "source", name, "-")
			if want := "3 sources: 0 created, 0 updated, 3 unchanged, 0 duplicates, 0 refused\n"; got.out != want {
				t.Errorf("%s: %s%s\n%s", format, got.out, got.err, exported.out)
			}
		}
	}
	// Another Waggle gets what this one has, with scopes and rules that are fixed by then.
	other, _ := served(t)
	for _, format := range []string{"jsonl", "csv"} {
		exported := command(t, env, "source", "export", "--format", format)
		commandWith(t, other, exported.out, "source", "import", "-")
		if got := command(t, other, "source", "export", "--format", format); got.out != exported.out {
			t.Errorf("%s: exported\n%s\nwant\n%s", format, got.out, exported.out)
		}
		command(t, other, "source", "delete", "full", "plain", "none")
	}
	opml := command(t, env, "source", "export", "--format", "opml", "--prefix", "p")
	wantFailure(t, opml, waggle.ExitOK, "opml cannot hold all of schedule, of 1 source (plain)")
	if !strings.Contains(opml.out, `<outline type="link" text="plain" url="https://p.example/"/>`) {
		t.Errorf("printed %q", opml.out)
	}
	urls := command(t, env, "source", "export", "--format", "urls")
	wantFailure(t, urls, waggle.ExitOK, "urls cannot hold all of id, of 2 sources (full and 1 more)", "cannot hold all of schedule, of 2 sources", "1 source (none) left out")
	if urls.out != "https://a.example/\nhttps://b.example/?x=1&y=2\nhttps://p.example/\n" {
		t.Errorf("printed %q", urls.out)
	}
	some := command(t, env, "source", "export", "--pool", "eu")
	if strings.Count(some.out, "\n") != 1 || !strings.HasPrefix(some.out, `{"id":"full"`) {
		t.Errorf("filtered: %s", some.out)
	}
	wantNoted(t, command(t, env, "source", "export", "--prefix", "nope"), "no sources match: nothing is exported", "")
	if got := commandWith(t, env, `{"id":"loaded","payload":"AAAA"}`, "source", "import", "-"); got.code != waggle.ExitOK {
		t.Fatal(got.err)
	}
	wantFailure(t, command(t, env, "source", "export", "--format", "csv"), waggle.ExitOK, "csv cannot hold all of payload, of 1 source (loaded)\n")
	wantFailure(t, command(t, env, "source", "export", "--format", "sitemap"), waggle.ExitUsage, "say csv, jsonl, opml, urls")
}
