//go:build e2e

package e2e_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestAddresses crawls URLs with spaces, backslashes, colons and stray percent signs at an nginx, which answers 400 to a
// request line with a space in it: the seed, what it links to in two spellings, and what is submitted. Each page is asked
// for once, as browsers ask for it.
func TestAddresses(t *testing.T) {
	root, port := t.TempDir(), freePort(t)
	site := "http://127.0.0.1:" + port
	for name, text := range map[string]string{
		"the index.html": `<a href="two words.html?q=a b">1</a> <a href="two%20words.html?q=a%20b">2</a> <a href='sub\it.html?q="1"'>3</a>
			<a href="12:30.html">4</a> <a href="http:same.html#a b">5</a> <a href="100%.html">6</a>`,
		"two words.html": "2", "sub/it.html": "3", "12:30.html": "4", "same.html": "5", "100%.html": "6", "50%.html": "7",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	web := serveNginx(t, virtualHost{listen: "127.0.0.1:" + port, root: root})
	d := serve(t, "dispatcher", "memory", "addresses")
	command(t, d.addr, "queue", "rule", "set", "127.0.0.1:"+port, "--min-delay", "0s")
	command(t, d.addr, "source", "create", "odd", "--seed", site+"/the index.html?of all", "--every", "1d", "--follow", "--max-attempts", "1")
	command(t, d.addr, "task", "submit", "--source", "odd", site+"/50%.html?q=c d")
	c := launch(t, "collector", programs.path("waggle"), "collect", "--server", d.addr, "--id", "odd", "--allow-private")
	command(t, d.addr, "source", "wait", "odd", "--for", "1m")
	c.stop(20 * time.Second)

	got := map[string]int{}
	for _, a := range web.accesses(t, 0) {
		got[a.target] = a.status
		if a.status != 200 && a.target != "/robots.txt" {
			t.Errorf("%s is answered %d", a.target, a.status)
		}
	}
	delete(got, "/robots.txt")
	want := []string{
		"/100%25.html", "/12:30.html", "/50%25.html?q=c%20d", "/same.html", "/sub/it.html?q=%221%22", "/the%20index.html?of%20all", "/two%20words.html?q=a%20b",
	}
	if targets := slices.Sorted(maps.Keys(got)); !slices.Equal(targets, want) {
		t.Errorf("asked for\n%q, want\n%q", targets, want)
	}
	if n := web.count(t); n != len(want)+1 {
		t.Errorf("%d requests, want %d", n, len(want)+1)
	}
}
