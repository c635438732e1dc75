package sourceimport_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func TestSourceImport(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Taken(t, env, "eu")
	file := clitest.WriteFile(t, "feeds.csv", "url,name,labels,pool\nhttps://a.example/rss.xml,A,team=x,\nhttps://b.example/rss.xml,B,,eu\n")
	args := []string{"source", "import", file, "--every", "1h", "--prefix", "feeds.", "--label", "team=y,from=csv", "--pool", "default", "--kind", "feed", "--max-depth", "1"}
	clitest.WantOutput(t, clitest.Command(t, env, append(args, "--dry-run")...), `
2 sources: would be 2 created, 0 updated, 0 unchanged, 0 duplicates, 0 refused
  create feeds.a.example_rss.xml
  create feeds.b.example_rss.xml
`)
	if got := clitest.Command(t, env, "source", "list"); !strings.Contains(got.Out, "no sources") {
		t.Errorf("a dry run made sources: %s", got.Out)
	}
	clitest.WantOutput(t, clitest.Command(t, env, args...), `
2 sources: 2 created, 0 updated, 0 unchanged, 0 duplicates, 0 refused
`)
	a, b := clitest.SourceSpec(t, env, "feeds.a.example_rss.xml"), clitest.SourceSpec(t, env, "feeds.b.example_rss.xml")
	if a.GetLabels()["team"] != "x" || a.GetLabels()["from"] != "csv" || a.GetPool() != "default" || a.GetDisplayName() != "A" ||
		a.GetSeeds()[0].GetKind() != "feed" || a.GetFollow().GetMaxDepth() != 1 || a.GetFirstCrawl() != pb.FirstCrawl_FIRST_CRAWL_SPREAD ||
		a.GetSchedule().GetEvery().AsDuration() != time.Hour {
		t.Errorf("a is %v", a)
	}
	if b.GetLabels()["team"] != "y" || b.GetPool() != "eu" {
		t.Errorf("b is %v", b)
	}
	clitest.WantOutput(t, clitest.Command(t, env, append(args, "--now", "--replace", "-o", "json")...), `
{
  "created": 0,
  "updated": 2,
  "unchanged": 0,
  "duplicates": 0,
  "refused": 0,
  "deleted": 0,
  "mended": 0,
  "changed_fields": {
    "first_crawl": 2
  },
  "unscheduled": 0,
  "seedless": 0
}
`)
	if a = clitest.SourceSpec(t, env, "feeds.a.example_rss.xml"); a.GetFirstCrawl() != pb.FirstCrawl_FIRST_CRAWL_NOW {
		t.Errorf("with --now a is %v", a)
	}
}

// What is wrong with an entry is told with its line, and stops no other.
func TestSourceImport_report(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	file := clitest.WriteFile(t, "x.csv", "id,url,every\na,https://a.example/,1h\nBad Id,https://b.example/,1h\n,,1h\n"+
		"a,https://a.example/,1h\na,https://other.example/,1h\nc,no url,\nd,https://d.example/,\ne,https://e.example/,soon\nf,,1h\n,https://g.example/\n")
	for _, name := range []string{"report.csv", "report.jsonl"} {
		report := filepath.Join(t.TempDir(), name)
		got := clitest.Command(t, env, "source", "import", file, "--dry-run", "--report", report)
		clitest.WantFailure(t, got, cli.ExitFailed, "line 3: Bad Id: spec.id", "line 4: there is neither a url nor an id",
			"line 6: a: line 2 has the same id, and says something else", `line 7: c: spec.seeds[0].url`, "1 source has no schedule", "line 9: e: every", "1 source: it has a schedule and no seeds")
		if want := "10 sources: would be 3 created, 0 updated, 0 unchanged, 1 duplicate, 6 refused\n  create a\n  create d\n  create f\n"; got.Out != want {
			t.Errorf("printed %q, want %q", got.Out, want)
		}
		lines := strings.Split(strings.TrimSpace(clitest.ReadFile(t, report)), "\n")
		if name == "report.csv" {
			if len(lines) != 11 || lines[0] != "line,id,result,error,changed,lost" || lines[1] != "2,a,CREATED,,," ||
				lines[4] != "5,a,DUPLICATE,the same as line 2,," || lines[10] != `11,g.example,INVALID,"has 2 fields, the header 3",,` {
				t.Errorf("%s:\n%s", name, strings.Join(lines, "\n"))
			}
			continue
		}
		var first, second struct {
			Line              int
			ID, Result, Error string
		}
		if err := json.Unmarshal([]byte(lines[0]), &first); err != nil || first.Line != 2 || first.ID != "a" || first.Result != "CREATED" || len(lines) != 10 {
			t.Errorf("%v: %s", err, lines[0])
		}
		if err := json.Unmarshal([]byte(lines[1]), &second); err != nil || second.Result != "INVALID" || !strings.Contains(second.Error, "Bad Id") {
			t.Errorf("%v: %s", err, lines[1])
		}
	}
}

func TestSourceImport_formats(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	for _, c := range []struct{ in, id, kind, category string }{
		{`<opml><body><outline text="News"><outline text="F" xmlUrl="https://f.example/"/></outline></body></opml>`, "f.example", "feed", "News"},
		{`<sitemapindex><sitemap><loc>https://m.example/1.xml</loc></sitemap></sitemapindex>`, "m.example_1.xml", "sitemap", ""},
		{"# pages\nhttps://u.example/a\n", "u.example_a", "", ""},
		{`{"id": "j", "seeds": [{"url": "https://j.example/"}]}`, "j", "", ""},
	} {
		got := clitest.CommandWith(t, env, c.in, "source", "import", "-", "--every", "1d")
		if got.Code != cli.ExitOK || !strings.HasPrefix(got.Out, "1 source: 1 created") {
			t.Errorf("%s: %d, %s%s", c.in, got.Code, got.Out, got.Err)
			continue
		}
		if s := clitest.SourceSpec(t, env, c.id); s.GetSeeds()[0].GetKind() != c.kind || s.GetLabels()["category"] != c.category {
			t.Errorf("%s is %v", c.id, s)
		}
	}
	got := clitest.CommandWith(t, env, "<opml><body><outline xmlUrl='https://g.example/'/><outline", "source", "import", "-")
	clitest.WantFailure(t, got, cli.ExitFailed, "-: the rest cannot be read: line 1: unexpected EOF", "stopped after 1 source")
	if s := clitest.SourceSpec(t, env, "g.example"); len(s.GetSeeds()) != 1 {
		t.Errorf("what came before the fault is %v", s)
	}
}

func TestSourceImport_usage(t *testing.T) {
	t.Parallel()
	env := map[string]string{"WAGGLE_SERVER": "127.0.0.1:1"}
	for args, want := range map[string]string{
		"x --format yaml":            "--format: \"yaml\" is unknown; say csv",
		"x --every 1h --cron @daily": "--every and --cron",
		"x --time-zone UTC":          "--time-zone is the zone of --cron",
	} {
		clitest.WantFailure(t, clitest.Command(t, env, append([]string{"source", "import"}, strings.Fields(args)...)...), cli.ExitUsage, want)
	}
	clitest.WantFailure(t, clitest.Command(t, env, "source", "import", filepath.Join(t.TempDir(), "none")), cli.ExitFailed, "no such file")
}

// An import does not write over what it reads.
func TestSourceImport_sameFile(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	const text = "url\nhttps://a.example/\n"
	file := clitest.WriteFile(t, "feeds.csv", text)
	link := filepath.Join(t.TempDir(), "link.csv")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"--report", file, "--dry-run"}, {"--report", link},
	} {
		clitest.WantFailure(t, clitest.Command(t, env, append([]string{"source", "import", file, "--every", "1h"}, args...)...), cli.ExitUsage, "are the same file")
	}
	if got := clitest.ReadFile(t, file); got != text {
		t.Errorf("the input became %q", got)
	}
}

// TestSourceImport_narrow imports with a token for the sources below one prefix: under that prefix, and under others, of which the
// refusal names which one it was.
func TestSourceImport_narrow(t *testing.T) {
	t.Parallel()
	rules := fmt.Sprintf("tokens: [{name: feeds, sha256: %x}]\ngrants: [{identity: 'token:feeds', role: operator, sources: [news.]}]\n", sha256.Sum256([]byte("wgl_feeds")))
	d := clitest.Start(t, nil, "serve", "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json", "--drain-timeout", "5s", "--auth", clitest.WriteFile(t, "auth.yaml", rules))
	env := map[string]string{"WAGGLE_SERVER": clitest.Address(t, d), "WAGGLE_TOKEN": "wgl_feeds"}
	imported := func(prefix string) clitest.Answer {
		return clitest.CommandWith(t, env, "https://a.example/1\nhttps://a.example/2\n", "source", "import", "-", "--every", "1h", "--prefix", prefix)
	}
	clitest.WantOutput(t, imported("news."), "2 sources: 2 created, 0 updated, 0 unchanged, 0 duplicates, 0 refused\n")
	clitest.WantFailure(t, imported("blogs."), cli.ExitFailed, `under --prefix "blogs."`, `"blogs.a.example_1" does not begin with news.`)
	clitest.WantFailure(t, imported(""), cli.ExitFailed, `under --prefix ""`, `"a.example_1" does not begin with news.`)
}
