//go:build e2e

package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// runbook is the document for those who run Waggle, seen from this package.
const runbook = "../README.md"

// runbookTroubles is where the runbook begins: a held source, a pool without collectors and a host that answers 429.
var runbookTroubles = []string{
	"OUT=$(mktemp -d)",
	"waggle serve --store memory",
	"waggle collect --id paris-1 --out $OUT",
	"until waggle collector list | grep -q paris-1; do sleep 0.1; done",
	"waggle source create news.example --seed http://news.example/ --every 1h",
	"waggle source create busy.example --seed http://busy.example/ --every 1h",
	"waggle source create shop.example --seed http://shop.example/ --every 1d --pool browser",
	"waggle hold set --queue '*.old.example' --reason 'they asked' --for 50m",
	"until waggle hold list --blocks | grep -q busy && waggle source list | grep -q 'news.example.* OK '; do sleep 0.1; done",
}

// TestRunbook runs the commands of the runbook as printed and compares what they print.
func TestRunbook(t *testing.T) {
	t.Parallel()
	checkDocument(t, runbook, nil, documentRun{dir: "../..", prepare: runbookTroubles, env: busyProxy(t)})
}

// TestRunbook_Restore empties Redis, while no dispatcher lives, between the runbook's commands that keep what operators set in files and
// those that bring it back: all of it is there again, and nothing else is held.
func TestRunbook_Restore(t *testing.T) {
	t.Parallel()
	doc, err := readDocument(runbook)
	if err != nil {
		t.Fatal(err)
	}
	keep, restore := doc.section("What operators set, kept in files"), doc.section("When the store has lost its data")
	if len(keep) < 5 || len(restore) < 3 {
		t.Fatalf("%s keeps by %d commands, and restores by %d", runbook, len(keep), len(restore))
	}
	look := step{command: "waggle source list | cut -d ' ' -f 1; waggle queue rule list; waggle hold list"}
	steps := slices.Concat(keep, []step{
		look,
		{command: "kill -9 $(jobs -l | grep 'waggle serve' | grep -o '[0-9]\\+ *Running' | cut -d ' ' -f 1)"}, // else the owner writes everything again
		{command: "redis-cli -p 7079 FLUSHALL"},
		{command: "waggle serve --store redis://127.0.0.1:7079 2>> $DATA/serve.log"},
		{command: "until waggle stats > /dev/null 2>&1; do sleep 0.1; done"},
		{command: "until ! { waggle source list; waggle queue rule list; waggle hold list; } 2>&1 | grep example; do sleep 0.1; done"},
	}, restore, []step{look})
	got := runSteps(t, steps, documentRun{
		dir: t.TempDir(), prepare: []string{
			"DATA=$(mktemp -d)",
			"redis-server --port 7079 --save '' --dir $DATA > /dev/null &",
			"until redis-cli -p 7079 PING; do sleep 0.1; done",
			"waggle serve --store redis://127.0.0.1:7079 2> $DATA/serve.log", // what it logs of the FLUSHALL may come late
			"waggle hold set --source news.example --reason 'they move'",
		},
	})
	for _, fault := range faults(steps, got) {
		t.Errorf("%s:%s", runbook, fault)
	}
	was, is := got[len(keep)].text, got[len(got)-1].text
	for _, part := range []string{"news.example", "*.example", "queue *.old.example", "source news.example"} {
		if !strings.Contains(was, part) {
			t.Errorf("%q was not set:\n%s", part, was)
		}
	}
	if !matches(was, is) {
		t.Errorf("restored is\n%s\nand not\n%s", is, was)
	}
}

// busyProxy plays all hosts. One of them wants no requests for half an hour.
func busyProxy(t *testing.T) []string {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/robots.txt":
			http.NotFound(w, r)
		case r.URL.Host == "busy.example":
			w.Header().Set("Retry-After", "1800")
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, "<title>%s</title>", r.URL.Host)
		}
	}))
	t.Cleanup(proxy.Close)
	return []string{"HTTP_PROXY=" + proxy.URL, "http_proxy=" + proxy.URL, "NO_PROXY=127.0.0.1,localhost", "no_proxy=127.0.0.1,localhost"}
}
