package status_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// Collectors that can do nothing are named with the reason by status, status --check, lists and explain, and each by its own log.
func TestStatus_collectorsThatCanDoNothing(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<p>text") }))
	t.Cleanup(site.Close)
	_, port, _ := strings.Cut(strings.TrimPrefix(site.URL, "http://"), ":")
	full := t.TempDir()
	if err := os.Symlink("/dev/full", filepath.Join(full, "pages-disk.jsonl")); err != nil {
		t.Fatal(err)
	}
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "queue", "rule", "set", "*", "--min-delay", "0s", "--max-in-flight", "8")
	if got := clitest.Command(t, env, "status", "--check"); got.Code != cli.ExitOK {
		t.Fatalf("before: exit code %d: %s%s", got.Code, got.Out, got.Err)
	}
	cases := map[string]struct { // by collector
		seed   string // of some, with their number
		reason string
		flags  []string
	}{
		"disk":     {site.URL + "/%d", "DISK", []string{"--allow-private", "--out", full}},
		"proxy":    {site.URL + "/?a=%d", "PROXY", []string{"--allow-private", "--proxy", "http://127.0.0.1:1"}},
		"socks":    {site.URL + "/?n=%d", "PROXY", []string{"--allow-private", "--proxy", "socks5://127.0.0.1:1"}},
		"private":  {"http://127.0.0.1:" + port + "/%d", "INTERNAL", nil},
		"name":     {"http://localhost:" + port + "/%d", "INTERNAL", nil},
		"dns":      {"http://h%d.invalid/", "DNS", nil},
		"connect":  {"http://127.0.0.%d:1/", "CONNECT", []string{"--allow-private"}},
		"unrobots": {"http://127.0.1.%d:1/", "CONNECT", []string{"--allow-private", "--ignore-robots"}},
	}
	logs := make(map[string]*clitest.Stream)
	for id, one := range cases {
		create := []string{"source", "create", id, "--pool", id, "--every", "1h"}
		for n := range 8 {
			create = append(create, "--seed", fmt.Sprintf(one.seed, n+2))
		}
		clitest.Command(t, env, create...)
		run := append([]string{"collect", "--id", id, "--pools", id, "--wait", "1s", "--log-format", "json"}, one.flags...)
		logs[id] = clitest.Start(t, env, run...).Err
	}
	watch := clitest.Start(t, env, "status", "--watch=200ms")
	for id, one := range cases {
		watch.Out.Line(t, `^COLLECTOR +`+one.reason+`: .*, nothing done for .*\b`+id+`\b`)
		logs[id].Line(t, `"level":"warn".*"tasks fail.*"reason":"FAILURE_REASON_`+one.reason+`"`)
		for _, words := range []string{"explain source " + id, "source list --prefix " + id, "collector list --collector " + id} {
			if got := clitest.Command(t, env, strings.Fields(words)...); !strings.Contains(got.Out, one.reason) {
				t.Errorf("%s:\n%s%s", words, got.Out, got.Err)
			}
		}
	}
	watch.Out.Line(t, "^ +waggle collector list --collector disk$")
	if got := clitest.Command(t, env, "status", "--check"); got.Code != cli.ExitFailed || strings.Count(got.Out, "COLLECTOR ") != 5 || got.Err != "" {
		t.Errorf("--check: exit code %d: %s%s", got.Code, got.Out, got.Err)
	}
}

// A collector that can do nothing is named by the dispatcher that got its reports, and by another one on the same Redis.
func TestStatus_eitherDispatcher(t *testing.T) {
	t.Parallel()
	redis := map[string]string{"WAGGLE_STORE": redistest.Start(t).URL()}
	var envs [2]map[string]string
	for i := range envs {
		d := clitest.Start(t, redis, "serve", "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json")
		envs[i] = map[string]string{"WAGGLE_SERVER": clitest.Address(t, d)}
	}
	clitest.Command(t, envs[0], "source", "create", "news.a", "--seed", "http://127.0.0.1:1/", "--seed", "http://127.0.0.2:1/", "--seed", "http://127.0.0.3:1/")
	c := clitest.Start(t, envs[0], "collect", "--id", "c1", "--wait", "1s", "--log-format", "json") // without --allow-private
	for _, env := range envs {
		wantStatus(t, env, "waggle collector list --collector c1", "COLLECTOR", "INTERNAL: ")
		if got := clitest.Command(t, env, "status", "--check"); got.Code != cli.ExitFailed {
			t.Errorf("exit code %d: %s%s", got.Code, got.Out, got.Err)
		}
	}
	if code := c.End(); code != cli.ExitOK {
		t.Errorf("exit code %d: %s", code, c.Err.Text())
	}
	for _, env := range envs { // it has ended in good order
		if got := clitest.Command(t, env, "status"); strings.Contains(got.Out, "nothing done") {
			t.Errorf("after its end: %s", got.Out)
		}
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

// The runbook has a line for each kind of finding.
func TestStatus_runbook(t *testing.T) {
	t.Parallel()
	_, symptoms, _ := strings.Cut(clitest.ReadFile(t, "../../../../deploy/README.md"), "\n## From symptom to command\n")
	symptoms, _, _ = strings.Cut(symptoms, "\n## ")
	for name, kind := range pb.FindingKind_value {
		name = strings.TrimPrefix(name, "FINDING_KIND_")
		if !regexp.MustCompile(`(?m)^\| [^|]*\b`+name+`\b`).MatchString(symptoms) && kind != 0 {
			t.Errorf("the runbook has no symptom %s", name)
		}
	}
}
