package main_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
)

// A file that says less than the one before takes nothing away, unless it is asked
// to, and then says what.
func TestSourceImport_fewerColumns(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	whole := write(t, "whole.csv", "id,url,every,labels,name\na,https://a.example/,1h,team=x,A\nb,https://b.example/,2h,team=y,B\n")
	fewer := write(t, "fewer.csv", "id,url,name\na,https://a.example/,Other\nb,https://b.example/,\n")
	command(t, env, "source", "import", whole)
	wantOutput(t, command(t, env, "source", "import", fewer), `
2 sources: 0 created, 1 updated, 1 unchanged, 0 duplicates, 0 refused
updated: display_name of 1
`)
	if a := spec(t, env, "a"); a.GetSchedule().GetEvery().AsDuration() != time.Hour || a.GetLabels()["team"] != "x" || a.GetDisplayName() != "Other" {
		t.Errorf("a is %v", a)
	}
	report := filepath.Join(t.TempDir(), "report.csv")
	got := command(t, env, "source", "import", fewer, "--replace", "--dry-run", "--report", report)
	if got.code != waggle.ExitOK || !strings.Contains(got.out, "would be 0 created, 2 updated") ||
		!strings.Contains(got.out, "updated: labels of 2, schedule of 2, display_name of 1\n") ||
		!strings.Contains(got.err, "would be lost, with nothing in its place: labels of 2, schedule of 2, display_name of 1; "+report+" names the sources\n") {
		t.Errorf("%d: %s%s", got.code, got.out, got.err)
	}
	if text := readText(t, report); !strings.HasPrefix(text, "line,id,result,error,changed,lost\n2,a,UPDATED,,labels schedule,labels schedule\n") {
		t.Errorf("report:\n%s", text)
	}
	command(t, env, "source", "import", fewer, "--replace")
	if b := spec(t, env, "b"); b.GetSchedule() != nil || len(b.GetLabels()) > 0 || b.GetDisplayName() != "" {
		t.Errorf("b is %v", b)
	}
}

// Two spellings of one URL make two sources, which crawl one page: that is told.
func TestSourceImport_twins(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	got := commandWith(t, env, "https://a.example/\nHTTPS://A.example:443\nhttps://b.example/\n", "source", "import", "-", "--every", "1d", "--format", "urls")
	if got.code != waggle.ExitOK || !strings.Contains(got.out, "3 created") || strings.Count(got.err, "\n") != 1 ||
		!strings.Contains(got.err, "HTTPS://A.example:443 is the page that the source of line 1 crawls: it is crawled twice, unless one of them goes\n") {
		t.Errorf("%d: %s%s", got.code, got.out, got.err)
	}
}

// What is right, and is not handed out all the same, is told when it is made.
func TestSource_warnings(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "queue", "rule", "set", "*.bad.example", "--deny")
	const pool, denied = `no active collector takes tasks of pool "browsr"`, `the rule for "*.bad.example" denies the queue "x.bad.example" of a seed`
	for _, c := range []struct {
		want string
		args []string
	}{
		{"", []string{"create", "a", "--seed", "https://a.example/"}},
		{pool, []string{"create", "b", "--seed", "https://b.example/", "--pool", "browsr"}},
		{denied, []string{"create", "c", "--seed", "https://x.bad.example/"}},
		{pool, []string{"update", "a", "--pool", "browsr"}},
	} {
		got := command(t, env, append([]string{"source"}, c.args...)...)
		want := ""
		if c.want != "" {
			want = "waggle: " + c.want + "\n"
		}
		if got.code != waggle.ExitOK || got.err != want {
			t.Errorf("%v: %d, told %q, want %q", c.args, got.code, got.err, want)
		}
	}
	got := commandWith(t, env, "url,pool\nhttps://1.example/,browsr\nhttps://2.example/,browsr\nhttps://x.bad.example/2,\n",
		"source", "import", "-", "--every", "1d", "--dry-run")
	if want := "waggle: 2 sources: " + pool + "\nwaggle: 1 source: " + denied + "\n"; got.code != waggle.ExitOK || got.err != want {
		t.Errorf("%d, told %q, want %q", got.code, got.err, want)
	}
}
