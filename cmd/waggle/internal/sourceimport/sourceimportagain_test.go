package sourceimport_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// A file that says less than the one before takes nothing away, unless it is asked
// to, and then says what.
func TestSourceImport_fewerColumns(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	whole := clitest.WriteFile(t, "whole.csv", "id,url,every,labels,name\na,https://a.example/,1h,team=x,A\nb,https://b.example/,2h,team=y,B\n")
	fewer := clitest.WriteFile(t, "fewer.csv", "id,url,name\na,https://a.example/,Other\nb,https://b.example/,\n")
	clitest.Command(t, env, "source", "import", whole)
	clitest.WantOutput(t, clitest.Command(t, env, "source", "import", fewer), `
2 sources: 0 created, 1 updated, 1 unchanged, 0 duplicates, 0 refused
updated: display_name of 1
`)
	if a := clitest.SourceSpec(t, env, "a"); a.GetSchedule().GetEvery().AsDuration() != time.Hour || a.GetLabels()["team"] != "x" || a.GetDisplayName() != "Other" {
		t.Errorf("a is %v", a)
	}
	report := filepath.Join(t.TempDir(), "report.csv")
	got := clitest.Command(t, env, "source", "import", fewer, "--replace", "--dry-run", "--report", report)
	if got.Code != cli.ExitOK || !strings.Contains(got.Out, "would be 0 created, 2 updated") ||
		!strings.Contains(got.Out, "updated: labels of 2, schedule of 2, display_name of 1\n") ||
		!strings.Contains(got.Err, "would be lost, with nothing in its place: labels of 2, schedule of 2, display_name of 1; "+report+" names the sources\n") {
		t.Errorf("%d: %s%s", got.Code, got.Out, got.Err)
	}
	if text := clitest.ReadFile(t, report); !strings.HasPrefix(text, "line,id,result,error,changed,lost\n2,a,UPDATED,,labels schedule,labels schedule\n") {
		t.Errorf("report:\n%s", text)
	}
	clitest.Command(t, env, "source", "import", fewer, "--replace")
	if b := clitest.SourceSpec(t, env, "b"); b.GetSchedule() != nil || len(b.GetLabels()) > 0 || b.GetDisplayName() != "" {
		t.Errorf("b is %v", b)
	}
}

// Two spellings of one URL are one source.
func TestSourceImport_spellings(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.WantOutput(t, clitest.CommandWith(t, env, "https://a.example/\nHTTPS://A.example:443\nhttps://b.example/?utm_source=x\nhttps://b.example/\n", "source", "import", "-", "--every", "1d", "--format", "urls"), `
4 sources: 2 created, 0 updated, 0 unchanged, 2 duplicates, 0 refused
`)
}

// The sources of an import share a scope, unless the file or a flag says otherwise; those that are there keep theirs.
func TestSourceImport_scope(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "old", "--seed", "https://a.example/old", "--every", "1h")
	clitest.Command(t, env, "source", "create", "named", "--seed", "https://a.example/named", "--every", "1h", "--scope", "other")
	file := clitest.WriteFile(t, "a.csv", "id,url,scope\nold,https://a.example/old,\nnamed,https://a.example/named,\n"+
		"1,https://a.example/1,\n2,https://A.example:443/2,\nport,http://a.example:8080/,\nown,https://a.example/own,mine\nboth,https://a.example/x https://b.example/x,\nnone,,\n")
	args := []string{"source", "import", file, "--every", "1h"}
	want := "8 sources: would be 6 created, 0 updated, 2 unchanged, 0 duplicates, 0 refused\n"
	for _, more := range []string{"--dry-run", "--now"} {
		if got := clitest.Command(t, env, append(args, more)...); got.Code != cli.ExitOK || !strings.HasPrefix(got.Out, want) {
			t.Errorf("%s: %d: %s%s", more, got.Code, got.Out, got.Err)
		}
		want = strings.Replace(want, "would be ", "", 1)
	}
	scopes := map[string]string{"old": "", "named": "other", "1": "import", "2": "import", "port": "import", "own": "mine", "both": "import", "none": "import"}
	for id, want := range scopes {
		if got := clitest.SourceSpec(t, env, id).GetScope(); got != want {
			t.Errorf("%s has the scope %q, want %q", id, got, want)
		}
	}
	clitest.CommandWith(t, env, "https://c.example/\n", "source", "import", "-", "--format", "urls", "--every", "1h", "--prefix", "news.")
	if scope := clitest.SourceSpec(t, env, "news.c.example").GetScope(); scope != "news.import" {
		t.Errorf("with --prefix the scope is %q", scope)
	}
	if old, is := clitest.SourceSpec(t, env, "old").GetCanonicalRules(), clitest.SourceSpec(t, env, "1").GetCanonicalRules(); old != 1 || is != 2 {
		t.Errorf("canonical rules are %d of the old one, %d of the new one", old, is)
	}
	for _, more := range []string{"--replace", "--scope-per-source"} {
		got := clitest.Command(t, env, append(args, "--now", more)...)
		if !strings.Contains(got.Out, " 0 created, ") || !strings.HasSuffix(strings.SplitAfter(got.Out, "\n")[0], " 0 refused\n") {
			t.Errorf("again with %s: %d: %s%s", more, got.Code, got.Out, got.Err)
		}
	}
	clitest.CommandWith(t, env, "https://a.example/3\n", "source", "import", "-", "--format", "urls", "--scope-per-source")
	if scope := clitest.SourceSpec(t, env, "a.example_3").GetScope(); scope != "" {
		t.Errorf("with --scope-per-source the scope is %q", scope)
	}
	// What is refused for another reason stays refused.
	got := clitest.CommandWith(t, env, "id,url\nagain,https://a.example/1\n", "source", "import", "-", "--every", "1h")
	clitest.WantFailure(t, got, cli.ExitFailed, `line 2: again: spec.seeds[0]`, `is a seed of source "1" already`)
}

// --follow-host keeps items and links on the host of the source.
func TestSourceImport_followHost(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	for flags, want := range map[string]*pb.Follow{
		"":                               nil,
		"--follow":                       {},
		"--max-depth 2":                  {MaxDepth: new(int32(2))},
		"--follow-host":                  {AllowHosts: []string{"f.example:8080"}, MaxDepth: new(int32(1))},
		"--follow-host --follow":         {AllowHosts: []string{"f.example:8080"}},
		"--follow-host --max-depth 2":    {AllowHosts: []string{"f.example:8080"}, MaxDepth: new(int32(2))},
		"--follow-host=false":            nil,
		"--follow-host --prefix by-file": {AllowHosts: []string{"other.example"}},
	} {
		file := "id,url\nx,http://F.example:8080/rss\n"
		if strings.Contains(flags, "by-file") {
			file = "id,url,follow\nx,http://F.example:8080/rss,other.example\n"
		}
		got := clitest.CommandWith(t, env, file, append([]string{"source", "import", "-", "--every", "1h", "--replace"}, strings.Fields(flags)...)...)
		if is := clitest.SourceSpec(t, env, "x").GetFollow(); got.Code != cli.ExitOK || !proto.Equal(is, want) {
			t.Errorf("%s: follow is %v, want %v\n%s", flags, is, want, got.Err)
		}
	}
}

// A feed in two folders is one source with the labels of both.
func TestSourceImport_merge(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	file := clitest.WriteFile(t, "feeds.opml", `<opml><body>
<outline text="News"><outline text="A" xmlUrl="https://a.example/rss"/></outline>
<outline text="Tech"><outline text="A again" xmlUrl="https://a.example/rss?utm_source=reader"/></outline>
<outline text="News"><outline text="A" xmlUrl="https://a.example/rss"/></outline>
<outline text="`+strings.Repeat("x", 120)+`"><outline text="A" xmlUrl="https://a.example/rss"/></outline>
</body></opml>`)
	report := filepath.Join(t.TempDir(), "report.csv")
	got := clitest.Command(t, env, "source", "import", file, "--every", "1h", "--report", report)
	const merged = "line 3: a.example_rss: merged into line 2, which has the labels category=News,Tech"
	clitest.WantFailure(t, got, cli.ExitFailed, merged, "line 5: a.example_rss: label category", "with that of line 2, is over 128 bytes")
	if !strings.HasPrefix(got.Out, "4 sources: 1 created, 0 updated, 0 unchanged, 2 duplicates, 1 refused\n") {
		t.Errorf("printed %s", got.Out)
	}
	if text := clitest.ReadFile(t, report); !strings.Contains(text, "\n3,a.example_rss,DUPLICATE,\"merged into line 2") || !strings.Contains(text, "\n4,a.example_rss,DUPLICATE,the same as line 2,") {
		t.Errorf("report:\n%s", text)
	}
	if a := clitest.SourceSpec(t, env, "a.example_rss"); a.GetLabels()["category"] != "News,Tech" || a.GetDisplayName() != "A" {
		t.Errorf("a is %v", a)
	}
	rows := "id,url,labels\nb,https://b.example/rss,lang=en\nb,https://b.example/rss,team=x\nb,https://b.example/rss,lang=de\n"
	got = clitest.CommandWith(t, env, rows, "source", "import", "-", "--every", "1h")
	clitest.WantFailure(t, got, cli.ExitFailed, "line 3: b: merged into line 2", "line 4: b: line 2 has the same id, and says label lang=en instead of de")
	if b := clitest.SourceSpec(t, env, "b"); b.GetLabels()["lang"] != "en" || b.GetLabels()["team"] != "x" {
		t.Errorf("b is %v", b)
	}
}

// What a file breaks is mended and told by line: the first of it one by one, the rest as a number.
func TestSourceImport_mended(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	var file strings.Builder
	file.WriteString("<opml><body>\n<outline text='A&nbsp;B' xmlUrl='feed://a.example/'/>\n<outline text='x' xmlUrl='nonsense'/>\n")
	for i := range 30 {
		fmt.Fprintf(&file, "<outline text='x' xmlUrl='https://%d.example/?a&b'/>\n", i)
	}
	file.WriteString("</body></opml>")
	got := clitest.CommandWith(t, env, file.String(), "source", "import", "-", "--every", "1h")
	clitest.WantFailure(t, got, cli.ExitFailed, `waggle: line 2: "&nbsp;" read as " "`, `waggle: line 2: "feed://a.example/" read as "http://a.example/"`,
		`waggle: line 4: raw "&" read as "&amp;"`, "waggle: and 12 more were mended\n", "line 3: nonsense")
	if strings.Count(got.Err, "read as") != 20 || !strings.HasPrefix(got.Out, "32 sources: 31 created, 0 updated, 0 unchanged, 0 duplicates, 1 refused\n") {
		t.Errorf("%s%s", got.Out, got.Err)
	}
	if got := clitest.CommandWith(t, env, file.String(), "source", "import", "-", "--every", "1h", "-o", "json"); !strings.Contains(got.Out, `"mended": 32`) {
		t.Errorf("printed %s", got.Out)
	}
}

// What is right, and is not handed out all the same, is told when it is made.
func TestSource_warnings(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	const pool = `no active collector takes tasks of pool "browsr"`
	for _, c := range []struct {
		want string
		args []string
	}{
		{"", []string{"create", "a", "--seed", "https://a.example/"}},
		{pool, []string{"create", "b", "--seed", "https://b.example/", "--pool", "browsr"}},
		{pool, []string{"update", "a", "--pool", "browsr"}},
	} {
		got := clitest.Command(t, env, append([]string{"source"}, c.args...)...)
		want := ""
		if c.want != "" {
			want = "waggle: " + c.want + "\n"
		}
		if got.Code != cli.ExitOK || got.Err != want {
			t.Errorf("%v: %d, told %q, want %q", c.args, got.Code, got.Err, want)
		}
	}
	got := clitest.CommandWith(t, env, "url,pool\nhttps://1.example/,browsr\nhttps://2.example/,browsr\n",
		"source", "import", "-", "--every", "1d", "--dry-run")
	if want := "waggle: 2 sources: " + pool + "\n"; got.Code != cli.ExitOK || got.Err != want {
		t.Errorf("%d, told %q, want %q", got.Code, got.Err, want)
	}
}
