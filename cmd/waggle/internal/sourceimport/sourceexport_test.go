package sourceimport_test

import (
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
)

// What export writes, import reads, and then nothing has changed.
func TestSourceExport_roundTrip(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "full", "--seed", "https://a.example/", "--seed", "https://b.example/?x=1&y=2", "--cron", "0 6 * * *",
		"--time-zone", "Europe/Berlin", "--revisit", "--follow-host", "*.example,b.test", "--max-depth", "3", "--include", "/a b/", "--exclude", "x$",
		"--pool", "eu", "--priority", "0", "--display-name", `The "full", one & only`, "--label", "category=a/b,team=x", "--scope", "shared",
		"--lease", "1m", "--max-hold", "2h", "--max-attempts", "2", "--min-backoff", "1s", "--remember", "36h", "--revisit-after", "2d",
		"--max-outstanding", "7", "--metadata", "lang=en")
	clitest.Command(t, env, "source", "create", "plain", "--seed", "https://p.example/", "--every", "90m", "--first-crawl", "spread")
	clitest.Command(t, env, "source", "create", "none")
	for _, format := range []string{"jsonl", "csv"} {
		exported := clitest.Command(t, env, "source", "export", "--format", format)
		if exported.Code != cli.ExitOK || exported.Err != "" {
			t.Fatalf("%s: %d, %s", format, exported.Code, exported.Err)
		}
		for _, name := range []string{"import", "apply"} {
			got := clitest.CommandWith(t, env, exported.Out, "source", name, "-")
			if want := "3 sources: 0 created, 0 updated, 3 unchanged, 0 duplicates, 0 refused\n"; got.Out != want {
				t.Errorf("%s: %s%s\n%s", format, got.Out, got.Err, exported.Out)
			}
		}
	}
	// Another Waggle gets what this one has, with scopes and rules that are fixed by then.
	other, _ := clitest.Served(t)
	for _, format := range []string{"jsonl", "csv"} {
		exported := clitest.Command(t, env, "source", "export", "--format", format)
		clitest.CommandWith(t, other, exported.Out, "source", "import", "-")
		if got := clitest.Command(t, other, "source", "export", "--format", format); got.Out != exported.Out {
			t.Errorf("%s: exported\n%s\nwant\n%s", format, got.Out, exported.Out)
		}
		clitest.Command(t, other, "source", "delete", "full", "plain", "none")
	}
	opml := clitest.Command(t, env, "source", "export", "--format", "opml", "--prefix", "p")
	clitest.WantFailure(t, opml, cli.ExitOK, "opml cannot hold all of schedule, of 1 source (plain)")
	if !strings.Contains(opml.Out, `<outline type="link" text="plain" url="https://p.example/"/>`) {
		t.Errorf("printed %q", opml.Out)
	}
	urls := clitest.Command(t, env, "source", "export", "--format", "urls")
	clitest.WantFailure(t, urls, cli.ExitOK, "urls cannot hold all of id, of 2 sources (full and 1 more)", "cannot hold all of schedule, of 2 sources", "1 source (none) left out")
	if urls.Out != "https://a.example/\nhttps://b.example/?x=1&y=2\nhttps://p.example/\n" {
		t.Errorf("printed %q", urls.Out)
	}
	some := clitest.Command(t, env, "source", "export", "--pool", "eu")
	if strings.Count(some.Out, "\n") != 1 || !strings.HasPrefix(some.Out, `{"id":"full"`) {
		t.Errorf("filtered: %s", some.Out)
	}
	clitest.WantNoted(t, clitest.Command(t, env, "source", "export", "--prefix", "nope"), "no sources match: nothing is exported", "")
	if got := clitest.CommandWith(t, env, `{"id":"loaded","payload":"AAAA"}`, "source", "import", "-"); got.Code != cli.ExitOK {
		t.Fatal(got.Err)
	}
	clitest.WantFailure(t, clitest.Command(t, env, "source", "export", "--format", "csv"), cli.ExitOK, "csv cannot hold all of payload, of 1 source (loaded)\n")
	clitest.WantFailure(t, clitest.Command(t, env, "source", "export", "--format", "sitemap"), cli.ExitUsage, "say csv, jsonl, opml, urls")
}
