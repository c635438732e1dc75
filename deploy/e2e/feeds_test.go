//go:build e2e

package e2e_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// TestFeeds imports feeds by the line of the README, with either store, and collects them twice: every article that they
// list is fetched once, on whichever host it is, and nothing that an article links to. `source get` and `source list` count
// what was left out, and why.
func TestFeeds(t *testing.T) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) { collectFeeds(t, "memory", "feeds") })
	t.Run("redis", func(t *testing.T) {
		server, prefix := shared.Server(t)
		collectFeeds(t, server.URL(), prefix)
	})
}

func collectFeeds(t *testing.T, store, prefix string) {
	web := newFeedSites(t)
	file := filepath.Join(t.TempDir(), "feeds.opml")
	opml := fmt.Sprintf(`<opml version="2.0"><body><outline text="a" xmlUrl="%s/a.xml"/><outline text="b" xmlUrl="%s/b.xml"/></body></opml>`,
		web.feeds.URL, web.feeds.URL)
	if err := os.WriteFile(file, []byte(opml), 0o600); err != nil {
		t.Fatal(err)
	}
	d := serve(t, "dispatcher", store, prefix)
	command(t, d.addr, "queue", "rule", "set", "*", "--min-delay", "0s")
	command(t, d.addr, "source", "import", file, "--every", "30m", "--prefix", "feeds.")
	c := launch(t, "collector", programs.path("waggle"), "collect", "--server", d.addr, "--id", "feeds", "--allow-private")
	for crawl := 1; crawl <= 2; crawl++ {
		crawlFeeds(t, d)
		seen := web.paths()
		feeds := seen["/a.xml"]
		if feeds < crawl || seen["/b.xml"] < crawl { // at most half an hour later their first crawls are due, too
			t.Errorf("crawl %d: the feeds were asked for %d and %d times", crawl, feeds, seen["/b.xml"])
		}
		delete(seen, "/a.xml")
		delete(seen, "/b.xml")
		want := map[string]int{"/article-1": 1, "/article-2": 1, "/moved": 1, "/article-3": 1, "/article-4": 1, "/robots.txt": 3}
		if !maps.Equal(seen, want) {
			t.Errorf("crawl %d: beside the feeds asked for %v, want %v", crawl, seen, want)
		}
		// What articles 1 to 3 link to, and with each crawl the older part of feed a; what article 4 links to.
		for path, filtered := range map[string]int{"/a.xml": 3 + feeds, "/b.xml": 1} {
			wantFiltered(t, d, web.feeds.URL+path, fmt.Sprintf("%d NO_RULE", filtered))
		}
	}
	c.stop(20 * time.Second)
}

// crawlFeeds has all sources crawled once more.
func crawlFeeds(t *testing.T, d *dispatcher) {
	t.Helper()
	var ids []string
	for _, s := range listSources(t, d) {
		ids = append(ids, s.GetId())
	}
	command(t, d.addr, append([]string{"source", "trigger"}, ids...)...)
	command(t, d.addr, append([]string{"source", "wait", "--for", "1m"}, ids...)...)
}

func listSources(t *testing.T, d *dispatcher) []*pb.Source {
	t.Helper()
	reply, err := dial(t, d.addr).sources.ListSources(t.Context(), &pb.ListSourcesRequest{WholeSpecs: true})
	if err != nil {
		t.Fatal(err)
	}
	return reply.GetSources()
}

// wantFiltered wants the commands to say how many links of a source, found by its seed, are not followed.
func wantFiltered(t *testing.T, d *dispatcher, seed, want string) {
	t.Helper()
	for _, s := range listSources(t, d) {
		if s.GetSpec().GetSeeds()[0].GetUrl() != seed {
			continue
		}
		for _, text := range []string{
			command(t, d.addr, "source", "get", s.GetId()), command(t, d.addr, "source", "list", "--prefix", s.GetId()),
		} {
			if !strings.Contains(text, " "+want) {
				t.Errorf("of %s there is no %q in\n%s", seed, want, text)
			}
		}
		return
	}
	t.Errorf("no source has the seed %s", seed)
}

// feedSites is a site with two feeds, and two others with what they list.
type feedSites struct {
	feeds, here, there *httptest.Server

	mu   sync.Mutex     // guards seen
	seen map[string]int // requests, by path
}

func newFeedSites(t *testing.T) *feedSites {
	t.Helper()
	s := &feedSites{seen: map[string]int{}}
	site := func() *httptest.Server {
		server := httptest.NewServer(http.HandlerFunc(s.serve))
		t.Cleanup(server.Close)
		return server
	}
	s.feeds, s.here, s.there = site(), site(), site()
	return s
}

// serve answers for all three.
func (s *feedSites) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.seen[r.URL.Path]++
	s.mu.Unlock()
	item := func(site *httptest.Server, path string) string {
		return "<item><title>" + path + "</title><link>" + site.URL + path + "</link></item>"
	}
	rss := func(items ...string) {
		w.Header().Set("Content-Type", "application/rss+xml")
		fmt.Fprintf(w, `<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel>%s</channel></rss>`, strings.Join(items, ""))
	}
	switch r.URL.Path {
	case "/a.xml":
		rss(item(s.here, "/article-1"), item(s.there, "/article-2"), item(s.here, "/moved"), `<atom:link rel="next" href="/older.xml"/>`)
	case "/b.xml":
		rss(item(s.there, "/article-4"))
	case "/moved":
		http.Redirect(w, r, s.there.URL+"/article-3", http.StatusMovedPermanently)
	case "/robots.txt":
		http.NotFound(w, r)
	default: // an article, and what it should not lead to
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<title>%s</title><a href="%s/about">about</a>`, r.URL.Path, r.URL.Path)
	}
}

// paths are the requests so far, by path.
func (s *feedSites) paths() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.seen)
}
