package status_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
)

// A collector that can do nothing is named with the reason by status, status --check, lists, explain and its own log.
func TestStatus_collectorThatCanDoNothing(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<p>text") }))
	t.Cleanup(site.Close)
	_, port, _ := strings.Cut(strings.TrimPrefix(site.URL, "http://"), ":")
	full := t.TempDir()
	if err := os.Symlink("/dev/full", filepath.Join(full, "pages-c1.jsonl")); err != nil {
		t.Fatal(err)
	}
	for name, one := range map[string]struct {
		seed   string // of some, with their number
		reason string
		flags  []string
	}{
		"its disk is full":          {site.URL + "/%d", "DISK", []string{"--allow-private", "--out", full}},
		"its proxy is away":         {site.URL + "/%d", "PROXY", []string{"--allow-private", "--proxy", "http://127.0.0.1:1"}},
		"it may not fetch there":    {site.URL + "/%d", "INTERNAL", nil},
		"nor by a name":             {"http://localhost:" + port + "/%d", "INTERNAL", nil},
		"nothing can be connected":  {"http://127.0.0.%d:1/", "CONNECT", []string{"--allow-private"}},
		"no connection, no robots":  {"http://127.0.1.%d:1/", "CONNECT", []string{"--allow-private", "--ignore-robots"}},
		"no proxy, pages in memory": {site.URL + "/?n=%d", "PROXY", []string{"--allow-private", "--proxy", "socks5://127.0.0.1:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, _ := clitest.Served(t)
			if got := clitest.Command(t, env, "status", "--check"); got.Code != cli.ExitOK {
				t.Fatalf("before: exit code %d: %s%s", got.Code, got.Out, got.Err)
			}
			clitest.Command(t, env, "queue", "rule", "set", "*", "--min-delay", "0s", "--max-in-flight", "8")
			create := []string{"source", "create", "news.a", "--every", "1h"}
			for n := range 8 {
				create = append(create, "--seed", fmt.Sprintf(one.seed, n+2))
			}
			clitest.Command(t, env, create...)
			k := clitest.Start(t, env, append([]string{"collect", "--id", "c1", "--wait", "1s", "--log-format", "json"}, one.flags...)...)
			wantStatus(t, env, "waggle collector list --collector c1", "COLLECTOR", "collector c1: can do nothing since ", one.reason)
			k.Err.Line(t, `"level":"warn".*"tasks fail.*"reason":"FAILURE_REASON_`+one.reason)
			if got := clitest.Command(t, env, "status", "--check"); got.Code != cli.ExitFailed || !strings.Contains(got.Out, "COLLECTOR ") || got.Err != "" {
				t.Errorf("--check: exit code %d: %s%s", got.Code, got.Out, got.Err)
			}
			for _, words := range []string{"explain source news.a", "source list", "collector list"} {
				if got := clitest.Command(t, env, strings.Fields(words)...); !strings.Contains(got.Out, one.reason) {
					t.Errorf("%s:\n%s", words, got.Out)
				}
			}
		})
	}
}

// A hold is no finding of a check, and a dispatcher that does not answer has a code of its own.
func TestStatus_check(t *testing.T) {
	t.Parallel()
	env, d := clitest.Served(t)
	clitest.Command(t, env, "hold", "set", "--everything", "--reason", "they move")
	got := clitest.Command(t, env, "status", "--check")
	if got.Code != cli.ExitOK || !strings.Contains(got.Out, "HELD ") {
		t.Errorf("held: exit code %d: %s%s", got.Code, got.Out, got.Err)
	}
	clitest.WantFailure(t, clitest.Command(t, env, "status", "--check", "--watch"), cli.ExitUsage, "--check looks once")
	d.End()
	clitest.WantFailure(t, clitest.Command(t, env, "status", "--check"), cli.ExitSilent, "waggle: ")
	clitest.WantFailure(t, clitest.Command(t, env, "status"), cli.ExitFailed, "waggle: ")
}
