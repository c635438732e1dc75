//go:build e2e

package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// readme is the README, seen from this package.
const readme = "../../README.md"

// readmePending are commands of the README that the program does not have yet. The list is empty in a release.
var readmePending []string

// readmeTour is the section that shows the protocol call by call, with leases long enough to type.
const readmeTour = "The lock, call by call"

// TestReadme_Run runs the commands of the README as printed and compares what they print.
func TestReadme_Run(t *testing.T) {
	t.Parallel()
	checkDocument(t, readme, readmePending, documentRun{dir: "../..", env: newsProxy(t)})
}

// TestReadme_Slowly runs the tour with 5 s between commands: no lease or client token ends while somebody types.
func TestReadme_Slowly(t *testing.T) {
	t.Parallel()
	doc, err := readDocument(readme)
	if err != nil {
		t.Fatal(err)
	}
	steps := doc.section(readmeTour)
	if len(steps) < 10 {
		t.Fatalf("the section %q has %d commands", readmeTour, len(steps))
	}
	for _, fault := range faults(steps, runSteps(t, steps, documentRun{dir: t.TempDir(), pause: 5 * time.Second})) {
		t.Errorf("%s:%s", readme, fault)
	}
}

// TestReadme_PortTaken holds that the first crawl does not wait for ever for a program that cannot start, as another one
// has its port: the loop that waits ends, and shows why.
func TestReadme_PortTaken(t *testing.T) {
	t.Parallel()
	doc, err := readDocument(readme)
	if err != nil {
		t.Fatal(err)
	}
	steps := doc.section("A first crawl")
	waits := slices.IndexFunc(steps, func(s step) bool { return strings.HasPrefix(s.command, "until ") })
	if waits < 0 {
		t.Fatalf("%s waits for nothing", readme)
	}
	for port, want := range map[string]string{
		"7070": "waggle: --listen: 127.0.0.1:7070 is in use",
		"7080": "waggle: --http: 127.0.0.1:7080 is in use",
		"7090": "Address already in use",
	} {
		t.Run(port, func(t *testing.T) {
			t.Parallel()
			got := runSteps(t, steps[:waits+1], documentRun{dir: t.TempDir(), taken: port})[waits]
			if !strings.Contains(got.text, want) {
				t.Errorf("the loop prints\n%s\nand not\n%s", got.text, want)
			}
		})
	}
}

// newsProxy plays the hosts of the README's news recipe, as the proxy that all requests to other machines go through. It
// returns the environment for that. Each feed lists two articles, on another host.
func newsProxy(t *testing.T) []string {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/robots.txt":
			http.NotFound(w, r)
		case strings.HasPrefix(r.URL.Path, "/article/"):
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, "<title>%s</title>", r.URL.Path)
		default:
			w.Header().Set("Content-Type", "application/rss+xml")
			fmt.Fprint(w, `<rss version="2.0"><channel>`)
			for i := range 2 {
				fmt.Fprintf(w, "<item><link>http://articles.%s/article/%d</link></item>", r.URL.Host, i)
			}
			fmt.Fprint(w, "</channel></rss>")
		}
	}))
	t.Cleanup(proxy.Close)
	return []string{"HTTP_PROXY=" + proxy.URL, "http_proxy=" + proxy.URL, "NO_PROXY=127.0.0.1,localhost", "no_proxy=127.0.0.1,localhost"}
}
