//go:build e2e

package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/collector/web"
)

const (
	newsFeeds     = 200
	newsPerHost   = 10 // feeds of one site
	newsItemHosts = 60
	newsRounds    = 3 // of new items; the first is there before the import
	newsEvery     = 4 * time.Second
	newsLimit     = 30 * time.Second // of a round

	// The last feeds are broken.
	newsMissing = newsFeeds - 3 // answers 404
	newsNoFeed  = newsFeeds - 2 // answers what is no XML
	newsRefused = newsFeeds - 1 // its host refuses connections
)

// TestNews follows news as a user does: 200 feeds (RSS, Atom, JSON Feed) from one OPML file, broken as such files are. Their
// items are on 60 other hosts, with utm_ parameters, and two feeds of a site list some of the same articles. Each article is
// fetched once, by one of two collectors, and is on disk; the three feeds that are broken are named. The test prints how
// long after its publication an article is fetched.
func TestNews(t *testing.T) {
	t.Parallel()
	site := newNewsSites(t)
	server, prefix := shared.Server(t)
	d := serve(t, "dispatcher", server.URL(), prefix)
	out := t.TempDir()
	command(t, d.addr, "queue", "rule", "set", "*", "--min-delay", "100ms")
	imported := command(t, d.addr, "source", "import", site.opml(t), "--every", newsEvery.String(), "--prefix", "news.")
	for _, want := range []string{
		"201 sources: 200 created, 0 updated, 0 unchanged, 1 duplicate, 0 refused\n", `line 2: raw "&" read as "&amp;"`,
		`line 3: "feed://`, "line 203: ", "merged into line 3, which has the labels category=World & Local,Twice\n",
	} {
		if !strings.Contains(imported, want) {
			t.Errorf("import did not print %q:\n%s", want, imported)
		}
	}
	var collectors []*process
	for _, id := range []string{"news-1", "news-2"} {
		collectors = append(collectors, launch(t, id, programs.path("waggle"), "collect", "--server", d.addr, "--id", id, "--allow-private", "--out", out))
	}
	var waits []time.Duration
	for round := range newsRounds {
		site.publish()
		until(t, newsLimit, fmt.Sprintf("the articles of round %d are fetched", round), func() bool { return len(site.waits(round)) == site.listed(round) })
		if round > 0 { // those of the first were there before the feeds were known
			waits = append(waits, site.waits(round)...)
		}
	}
	// Each feed is read twice more, so that what would be fetched again has been.
	enough := site.reads()
	for i := range enough {
		enough[i] += 2
	}
	until(t, newsLimit, "each feed is read twice more", func() bool {
		return slices.CompareFunc(site.reads(), enough, func(is, want int) int { return min(is-want, 0) }) == 0
	})
	brokenNamed(t, d, newsMissing, newsNoFeed, newsRefused)
	for _, c := range collectors {
		c.stop(20 * time.Second)
	}
	site.checkOnce(t)
	site.checkStored(t, out)
	slices.Sort(waits)
	at := func(percent int) time.Duration { return waits[(len(waits)-1)*percent/100].Round(10 * time.Millisecond) }
	t.Logf("%d articles published while %d feeds are read each %v: from publication to fetch p50 %v, p99 %v, at most %v",
		len(waits), newsFeeds, newsEvery, at(50), at(99), at(100))
}

// brokenNamed wants the feeds that are broken, and no others, to be shown to whoever looks for what does not work.
func brokenNamed(t *testing.T, d *dispatcher, broken ...int) {
	t.Helper()
	text := command(t, d.addr, "source", "list", "--health", "failing,backed_off", "--prefix", "news.")
	for _, feed := range broken {
		if !strings.Contains(text, fmt.Sprintf("_feed_%d-", feed)) {
			t.Errorf("feed %d is not named in\n%s", feed, text)
		}
	}
	if n := strings.Count(text, "news."); n != len(broken) {
		t.Errorf("%d sources are shown as broken, want %d:\n%s", n, len(broken), text)
	}
}

// newsSites are the sites of feeds, and those of the articles that they list.
type newsSites struct {
	feeds, items []string // addresses of the hosts
	refused      string   // of a host where nobody listens

	mu        sync.Mutex             // guards what follows
	published []time.Time            // rounds
	read      [newsFeeds]int         // how often each feed was answered
	fetched   map[string][]time.Time // requests for articles, by what the feeds list less its utm_ parameters
	odd       []string               // requests for anything else
}

func newNewsSites(t *testing.T) *newsSites {
	t.Helper()
	s := &newsSites{fetched: map[string][]time.Time{}}
	listen := func(net3, i int) string {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.%d.%d:0", net3, i+1))
		if err != nil {
			t.Fatal(err)
		}
		server, ended := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}, make(chan struct{})
		go func() {
			defer close(ended)
			_ = server.Serve(listener) // it ends with the test
		}()
		t.Cleanup(func() {
			if err := server.Close(); err != nil {
				t.Error(err)
			}
			<-ended
		})
		return listener.Addr().String()
	}
	for i := range newsFeeds / newsPerHost {
		s.feeds = append(s.feeds, listen(2, i))
	}
	for i := range newsItemHosts {
		s.items = append(s.items, listen(3, i))
	}
	s.refused = "127.0.4.1:" + freePort(t)
	return s
}

// opml writes the file of the feeds: one a line from the third on, and the first of them a second time in another folder.
func (s *newsSites) opml(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("<opml version=\"2.0\"><head><title>News</title></head><body>\n<outline text=\"World & Local\">\n")
	for i := range newsFeeds {
		fmt.Fprintf(&b, "<outline type=\"rss\" text=\"Feed %d\" xmlUrl=\"%s\"/>\n", i, strings.Replace(s.feedURL(i), "http:", map[bool]string{true: "feed:", false: "http:"}[i == 0], 1))
	}
	fmt.Fprintf(&b, "</outline><outline text=\"Twice\"><outline type=\"rss\" text=\"Feed 0\" xmlUrl=\"%s\"/></outline>\n</body></opml>\n", s.feedURL(0))
	path := filepath.Join(t.TempDir(), "feeds.opml")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (s *newsSites) feedURL(feed int) string {
	host := s.feeds[feed/newsPerHost]
	if feed == newsRefused {
		host = s.refused
	}
	return fmt.Sprintf("http://%s/feed/%d", host, feed)
}

// articles are those that a feed lists of a round: one of its own, and one that its neighbor of the same site lists, too.
func (s *newsSites) articles(feed, round int) []string {
	host := func(n int) string { return s.items[(n*7+round*13)%newsItemHosts] }
	pair := feed / 2
	return []string{
		fmt.Sprintf("%s/article/%d/own?id=%d", host(feed), round, feed), fmt.Sprintf("%s/article/%d/shared-%d", host(pair+3), round, pair),
	}
}

// listed is how many articles the feeds that work list of a round.
func (s *newsSites) listed(round int) int {
	all := map[string]bool{}
	for feed := range newsMissing {
		for _, article := range s.articles(feed, round) {
			all[article] = true
		}
	}
	return len(all)
}

// publish has the feeds list another round.
func (s *newsSites) publish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.published = append(s.published, time.Now())
}

// waits are the times from the publication of the articles of a round to their first fetches.
func (s *newsSites) waits(round int) (waits []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for article, at := range s.fetched {
		if strings.Contains(article, fmt.Sprintf("/article/%d/", round)) {
			waits = append(waits, at[0].Sub(s.published[round]))
		}
	}
	return waits
}

// reads is how often each feed that works was read.
func (s *newsSites) reads() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.read[:newsMissing])
}

// ServeHTTP implements [http.Handler].
func (s *newsSites) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var feed int
	switch n, _ := fmt.Sscanf(r.URL.Path, "/feed/%d", &feed); {
	case n == 1 && feed == newsMissing, r.URL.Path == "/robots.txt":
		http.NotFound(w, r)
	case n == 1 && feed == newsNoFeed:
		w.Header().Set("Content-Type", "application/rss+xml")
		fmt.Fprint(w, "The database is away.")
	case n == 1:
		s.read[feed]++
		s.serveFeed(w, feed)
	case strings.HasPrefix(r.URL.Path, "/article/"):
		query := r.URL.Query()
		maps.DeleteFunc(query, func(name string, _ []string) bool { return strings.HasPrefix(name, "utm_") })
		article := strings.TrimSuffix(r.Host+r.URL.Path+"?"+query.Encode(), "?")
		s.fetched[article] = append(s.fetched[article], time.Now())
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<title>%s</title><a href="/more">what is not followed</a>`, article)
	default:
		s.odd = append(s.odd, r.Host+r.URL.Path)
		http.NotFound(w, r)
	}
}

// serveFeed writes a feed as RSS, Atom or JSON Feed. Called with mu held.
func (s *newsSites) serveFeed(w http.ResponseWriter, feed int) {
	var items []string
	for round := range s.published {
		for _, article := range s.articles(feed, round) {
			mark := "?"
			if strings.Contains(article, "?") {
				mark = "&"
			}
			link := fmt.Sprintf("http://%s%sutm_source=feed-%d&utm_medium=rss", article, mark, feed)
			items = append(items, fmt.Sprintf([]string{
				"<item><title>x</title><link>%s</link></item>", "<entry><id>urn:x</id><title>x</title><link href=\"%s\"/></entry>", `{"id":"x","url":"%s"}`,
			}[feed%3], map[bool]string{true: link, false: html.EscapeString(link)}[feed%3 == 2]))
		}
	}
	w.Header().Set("Content-Type", []string{"application/rss+xml", "application/atom+xml", "application/feed+json"}[feed%3])
	fmt.Fprintf(w, []string{
		`<?xml version="1.0"?><rss version="2.0"><channel><title>x</title>%s</channel></rss>`,
		`<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom"><title>x</title>%s</feed>`,
		`{"version":"https://jsonfeed.org/version/1.1","title":"x","items":[%s]}`,
	}[feed%3], strings.Join(items, map[bool]string{true: ","}[feed%3 == 2]))
}

// checkOnce wants each article to have been asked for once, by the sites' log, and nothing that none of them lists.
func (s *newsSites) checkOnce(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	want := 0
	for round := range newsRounds {
		want += s.listed(round)
	}
	if len(s.fetched) != want || len(s.odd) > 0 {
		t.Errorf("%d articles were asked for, want %d; and beside them %q", len(s.fetched), want, s.odd)
	}
	for article, at := range s.fetched {
		if len(at) != 1 {
			t.Errorf("%s was asked for %d times", article, len(at))
		}
	}
}

// checkStored wants each article to be on disk, once.
func (s *newsSites) checkStored(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "pages-*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	stored := map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			var page web.Page
			if err := json.Unmarshal(line, &page); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(page.URL, "/article/") {
				continue
			}
			stored[page.URL]++
			if body, err := os.ReadFile(filepath.Join(dir, page.File)); err != nil || !strings.HasPrefix(string(body), "<title>") {
				t.Errorf("%s is %q, %v", page.URL, body, err)
			}
		}
	}
	if len(files) != 2 || len(stored) != len(s.fetched) {
		t.Errorf("%d collectors stored %d articles, want 2 and %d", len(files), len(stored), len(s.fetched))
	}
	for article, n := range stored {
		if n != 1 {
			t.Errorf("%s is stored %d times", article, n)
		}
	}
}
