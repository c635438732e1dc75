package main_test

import (
	"regexp"
	"sync"
	"testing"

	"github.com/waggle-crawl/waggle/deploy/conformance/internal/serverkit"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestServer asks a dispatcher on each kind of store, and two dispatchers on one Redis, for all promises.
func TestServer(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t).URL()
	for name, addresses := range map[string][]string{
		"Memory": {serve(t, "memory")},
		"File":   {serve(t, "file:"+t.TempDir())},
		"Redis":  {serve(t, redis), serve(t, redis)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			results, err := serverkit.Run(t.Context(), serverkit.Options{Addresses: addresses, Parallel: 12})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range results {
				if r.Verdict != "" {
					t.Errorf("%s: %s", r.Promise.Name, r.Verdict)
				}
			}
		})
	}
}

// TestServer_Faults shows that the kit finds each promise that a dispatcher breaks, and names it.
func TestServer_Faults(t *testing.T) {
	t.Parallel()
	behind := serve(t, "memory")
	var checking sync.WaitGroup
	defer checking.Wait()
	for _, c := range []struct{ fault, promise, verdict string }{
		{"grants twice", "grants/one-holder", "granted 2 times"},
		{"fences fall", "grants/fences-rise", "came after"},
		{"forgets client tokens", "grants/replay", "another lease"},
		{"grants too many", "grants/max-tasks", "for 4 tasks got 5"},
		{"never waits", "grants/parked", "without a task"},
		{"keeps expired leases", "leases/expire", "got 0 tasks"},
		{"takes stale reports", "leases/stale-report", "answered REPORT_CODE_OK, want REPORT_CODE_LEASE_LOST"},
		{"swallows lost", "leases/stale-beat", "did not say lost"},
		{"pushes nothing", "beats/cancel-pushed", "no message with the cancel"},
		{"counts reports twice", "reports/once", "want ALREADY_REPORTED"},
		{"ignores min_delay", "gates/min-delay", "apart, but its min_delay"},
		{"ignores the limit in flight", "gates/in-flight", "got a task"},
		{"ignores holds", "gates/hold$", "got a task"},
		{"fails whole batches", "requests/submit-batch", "SubmitTasks failed"},
		{"takes any field", "requests/limits", "want InvalidArgument"},
		{"knows every field", "requests/unknown-fields", "failed|refused"},
		{"ends lists early", "requests/pages", "listed 0 times"},
	} {
		checking.Go(func() {
			results, err := serverkit.Run(t.Context(), serverkit.Options{
				Addresses: []string{faultyProxy(t, behind, c.fault)}, Match: regexp.MustCompile("^" + c.promise), Parallel: 1,
			})
			if err != nil || len(results) != 1 {
				t.Errorf("%s: %d promises, %v", c.promise, len(results), err)
				return
			}
			if found := results[0].Verdict; !regexp.MustCompile(c.verdict).MatchString(found) {
				t.Errorf("fault %q: the verdict of %s is %q, want one with %q", c.fault, c.promise, found, c.verdict)
			}
		})
	}
}
