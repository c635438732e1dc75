package root_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
)

// A URL with a password is refused, with what to do about it, and shown nowhere: neither on the terminal nor in a report,
// nor as a part of the id that an import makes of it.
func TestURLs_withCredentials(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "news")
	const limit = `it must have no user name or password, since URLs are kept and shown; remove what is before the "@"`
	url := "https://ada:secret@a.example/feed"
	lists := []string{clitest.WriteFile(t, "a.urls", url+"\n"), clitest.WriteFile(t, "a.csv", "url\n"+url+"\n"), clitest.WriteFile(t, "a.urls", "feed:"+url+"\n")}
	specs := clitest.WriteFile(t, "a.yaml", "seeds:\n- url: "+url+"\n")
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
			got := clitest.Command(t, env, append(call, "-o", format)...)
			if got.Code == cli.ExitOK || call[1] != "queue" && call[0] != "queue" && !strings.Contains(got.Err+got.Out, limit[:60]) {
				t.Errorf("%q: code %d\n%s%s", call, got.Code, got.Out, got.Err)
			}
			said := got.Out + got.Err
			if call[1] == "import" {
				said += clitest.ReadFile(t, report)
			}
			if strings.Contains(said, "secret") {
				t.Errorf("%q shows the password:\n%s", call, said)
			}
		}
	}
	if got := clitest.Command(t, env, "source", "list"); strings.Contains(got.Out, "example") {
		t.Errorf("a source was made:\n%s", got.Out)
	}
}
