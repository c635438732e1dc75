package main_test

import (
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/waggle-crawl/waggle/deploy/conformance/internal/collectorkit"
)

// TestCollector_Go runs all scenarios against the Go package.
func TestCollector_Go(t *testing.T) {
	t.Parallel()
	results := collectorkit.Run(t.Context(), collectorkit.Options{Command: []string{programs.client}, Parallel: 12})
	if len(results) < 60 {
		t.Errorf("%d scenarios, want at least 60", len(results))
	}
	for _, r := range results {
		if r.Verdict != "" {
			t.Errorf("%s: %s\n%s", r.Scenario.Name, r.Verdict, r.Log)
		}
	}
	text, err := os.ReadFile("MATRIX.md")
	if err != nil {
		t.Fatal(err)
	}
	table, err := collectorkit.ParseMatrix(string(text))
	if err != nil {
		t.Fatal(err)
	}
	table.Merge("Go", results)
	if table.String() != string(text) {
		t.Error("MATRIX.md is not what these results and scenarios make of it: run make protocol-check, and commit it")
	}
}

// TestCollector_Faults shows that the kit finds each fault of a client, and names it.
func TestCollector_Faults(t *testing.T) {
	t.Parallel()
	var checking sync.WaitGroup
	defer checking.Wait()
	turn := make(chan struct{}, 8) // they wait more than they compute
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
		{"another-outcome", "fetch/free-slots", "another outcome"},
		{"gives-up-reports", "report/lost-reply", "no second report"},
		{"tight-loop", "fetch/rate-limited-long", "no growing wait"},
		{"one-dispatcher", "servers/killed", "no report"},
		{"token-read-once", "servers/token-renewed", "no start|no report"},
		{"releases-nothing-at-stop", "stop/drain-over", "no cancellation"},
	} {
		checking.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			results := collectorkit.Run(t.Context(), collectorkit.Options{
				Command: []string{programs.client, "--fault", c.fault}, Match: regexp.MustCompile("^" + regexp.QuoteMeta(c.scenario) + "$"), Parallel: 1,
			})
			if len(results) != 1 {
				t.Errorf("%d scenarios are called %s", len(results), c.scenario)
				return
			}
			if found := results[0].Verdict; !regexp.MustCompile(c.verdict).MatchString(found) {
				t.Errorf("fault %s: the verdict of %s is %q, want one with %q\n%s", c.fault, c.scenario, found, c.verdict, strings.TrimSpace(results[0].Log))
			}
		})
	}
}
