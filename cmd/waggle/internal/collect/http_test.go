package collect_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
)

// get is what an address answers.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// eventually waits until an address answers with a status and a text.
func eventually(t *testing.T, url string, status int, text string) {
	t.Helper()
	for limit := time.Now().Add(clitest.WaitLimit); ; {
		got, body := get(t, url)
		if got == status && strings.Contains(body, text) {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("%s answers %d, want %d with %q:\n%s", url, got, status, text, body)
		}
	}
}

// A collector counts what it does and how it ended, is ready unless it is held, and unhealthy while no page can be kept.
func TestCollect_HTTP(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" && r.URL.Path != "/later" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, "12345"+r.URL.Path)
	}))
	t.Cleanup(site.Close)
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "queue", "rule", "set", "*", "--min-delay", "0s")
	clitest.Command(t, env, "source", "create", "site", "--seed", site.URL+"/", "--seed", site.URL+"/gone")
	dir := t.TempDir()
	k := clitest.Start(t, env, "collect", "--id", "paris-1", "--out", dir, "--allow-private", "--slots", "3", "--http", "127.0.0.1:0")
	at := "http://" + k.Err.Line(t, `"msg":"serves metrics and probes","http":"([^"]*)"`)[1]
	eventually(t, at+"/readyz", http.StatusOK, "ok")
	for _, series := range []string{
		`waggle_collector_tasks_total{outcome="succeeded"} 1`, `waggle_collector_tasks_total{outcome="not_found"} 1`,
		`waggle_collector_tasks_total{outcome="released"} 0`, "waggle_collector_page_bytes_total 6\n",
		"waggle_collector_handler_duration_seconds_count 2", "waggle_collector_slots 3", "waggle_collector_busy_slots 0",
		"waggle_collector_leases 0", `waggle_collector_lost_leases_total{reason="expired"} 0`, "waggle_collector_connected 1",
		"waggle_collector_held 0", "waggle_collector_unsent_reports 0", "process_resident_memory_bytes",
	} {
		eventually(t, at+"/metrics", http.StatusOK, series)
	}
	clitest.Command(t, env, "hold", "set", "--collector", "paris-1")
	eventually(t, at+"/readyz", http.StatusServiceUnavailable, "a hold stops the collector")
	eventually(t, at+"/metrics", http.StatusOK, "waggle_collector_held 1")
	eventually(t, at+"/healthz", http.StatusOK, "ok")
	clitest.Command(t, env, "hold", "lift", "--collector", "paris-1")
	eventually(t, at+"/readyz", http.StatusOK, "ok")

	bodies := filepath.Join(dir, "bodies")
	if err := os.RemoveAll(bodies); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bodies, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	clitest.Command(t, env, "task", "submit", "--source", "site", site.URL+"/later")
	eventually(t, at+"/healthz", http.StatusServiceUnavailable, "the last page could not be kept")
	k.End()
}

// A collector whose command takes no page is known to the dispatchers for it, with its words, until the command works again.
func TestCollect_deadSink(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "12345") }))
	t.Cleanup(site.Close)
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "site", "--seed", site.URL+"/")
	works := filepath.Join(t.TempDir(), "works")
	k := clitest.Start(t, env, "collect", "--id", "paris-1", "--send-command", "cat >&2; test -e "+works, "--allow-private", "--lease", "1s", "--http", "127.0.0.1:0")
	at := "http://" + k.Err.Line(t, `"msg":"serves metrics and probes","http":"([^"]*)"`)[1]
	eventually(t, at+"/metrics", http.StatusOK, "waggle_collector_problem 1")
	listed := func(problem bool) {
		t.Helper()
		for limit := time.Now().Add(clitest.WaitLimit); ; {
			list := clitest.Command(t, env, "collector", "list", "--output", "json").Out
			if strings.Contains(list, "the last page could not be kept: command") == problem {
				return
			}
			if time.Now().After(limit) {
				t.Fatalf("problem: %v expected\n%s", problem, list)
			}
		}
	}
	listed(true)
	if got := clitest.Command(t, env, "explain", "source", "site"); !strings.Contains(got.Out, "it reports a problem for ") {
		t.Errorf("explain source:\n%s", got.Out)
	}
	if err := os.WriteFile(works, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, at+"/metrics", http.StatusOK, "waggle_collector_problem 0")
	listed(false)
	k.End()
}
