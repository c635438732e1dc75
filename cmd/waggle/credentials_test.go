package main_test

import (
	"path/filepath"
	"strings"
	"testing"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
)

// A URL with a password is refused, with what to do about it, and shown nowhere: neither on the terminal nor in a report,
// nor as a part of the id that an import makes of it.
func TestURLs_withCredentials(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "source", "create", "news")
	const limit = `it must have no user name or password, since URLs are kept and shown; remove what is before the "@"`
	url := "https://ada:secret@a.example/feed"
	lists := []string{write(t, "a.urls", url+"\n"), write(t, "a.csv", "url\n"+url+"\n"), write(t, "a.urls", "feed:"+url+"\n")}
	specs := write(t, "a.yaml", "seeds:\n- url: "+url+"\n")
	report := filepath.Join(t.TempDir(), "report.jsonl")
	calls := [][]string{
		{"source", "create", "a", "--seed", url},
		{"apply", "-f", specs},
		{"apply", "-f", specs, "--dry-run"},
		{"task", "submit", "--source", "news", url},
		{"task", "submit", "--source", "news", "--file", lists[0]},
		{"task", "get", "--source", "news", "--url", url},
		{"explain", "queue", url},
		{"queue", "get", url},
	}
	for _, list := range lists {
		calls = append(calls, []string{"source", "import", list, "--every", "1h", "--report", report})
	}
	for _, call := range calls {
		for _, format := range []string{"table", "json"} {
			got := command(t, env, append(call, "-o", format)...)
			if got.code == waggle.ExitOK || call[1] != "queue" && call[0] != "queue" && !strings.Contains(got.err+got.out, limit[:60]) {
				t.Errorf("%q: code %d\n%s%s", call, got.code, got.out, got.err)
			}
			said := got.out + got.err
			if call[1] == "import" {
				said += readText(t, report)
			}
			if strings.Contains(said, "secret") {
				t.Errorf("%q shows the password:\n%s", call, said)
			}
		}
	}
	if got := command(t, env, "source", "list"); strings.Contains(got.out, "example") {
		t.Errorf("a source was made:\n%s", got.out)
	}
}
