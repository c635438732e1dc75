package main_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/waggle-crawl/waggle/deploy/conformance/internal/collectorkit"
)

// goClient builds the client program of the Go package.
var goClient = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs(filepath.Join("..", "..", "bin"))
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "conformance-go")
	out, err := exec.Command("go", "build", "-o", path, "./clients/go").CombinedOutput() //nolint:noctx // it ends by itself
	if err != nil {
		return string(out), err
	}
	return path, nil
})

func client(t *testing.T) string {
	t.Helper()
	path, err := goClient()
	if err != nil {
		t.Fatalf("build the client program: %v: %s", err, path)
	}
	return path
}

// TestCollector_Go runs all scenarios against the Go package.
func TestCollector_Go(t *testing.T) {
	t.Parallel()
	results := collectorkit.Run(t.Context(), collectorkit.Options{Command: []string{client(t)}, Parallel: 12})
	if len(results) < 60 {
		t.Errorf("%d scenarios, want at least 60", len(results))
	}
	for _, r := range results {
		if r.Verdict != "" {
			t.Errorf("%s: %s\n%s", r.Scenario.Name, r.Verdict, r.Log)
		}
	}
}

// TestCollector_Faults shows that the kit finds each fault of a client, and names it.
func TestCollector_Faults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ fault, scenario, verdict string }{
		{"no-margin", "lease/margin", "canceled .* too late"},
		{"counts-from-reply", "lease/from-sent", "canceled .* too late|no cancellation"},
		{"beats-late", "lease/renewed", "want a third of the lease"},
		{"ignores-lost", "lease/lost", "no cancellation"},
		{"ignores-cancel", "beat/cancel", "no cancellation"},
		{"ignores-hold", "beat/held", "fetches came while a hold"},
		{"ignores-reconnect", "beat/reconnect", "no heartbeat stream"},
		{"fetches-without-slots", "fetch/free-slots", "with 4 free slots"},
		{"new-token-on-repeat", "fetch/lost-reply", "another client token"},
		{"old-session", "servers/new-session", "session of the first"},
		{"another-outcome", "fetch/one-task", "another outcome"},
		{"gives-up-reports", "report/lost-reply", "no second report"},
		{"tight-loop", "fetch/rate-limited-long", "no growing wait"},
		{"one-dispatcher", "servers/spread", "no call came to dispatcher 2"},
		{"token-read-once", "servers/token-renewed", "no start|no report"},
		{"releases-nothing-at-stop", "stop/drain-over", "no cancellation"},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel()
			results := collectorkit.Run(t.Context(), collectorkit.Options{
				Command: []string{client(t), "--fault", c.fault}, Match: regexp.MustCompile("^" + regexp.QuoteMeta(c.scenario) + "$"), Parallel: 1,
			})
			if len(results) != 1 {
				t.Fatalf("%d scenarios are called %s", len(results), c.scenario)
			}
			if found := results[0].Verdict; !regexp.MustCompile(c.verdict).MatchString(found) {
				t.Errorf("the verdict is %q, want one with %q\n%s", found, c.verdict, strings.TrimSpace(results[0].Log))
			}
		})
	}
}
