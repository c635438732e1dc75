//go:build e2e

package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	shopPages    = 120                   // WAGGLE_E2E_PAGES=2000 for the full size
	shopSearches = 10                    // POSTs from the first page
	shopLinks    = 10                    // links of a page to its children
	shopDelay    = 20 * time.Millisecond // of the host
	shopInWork   = 16                    // requests that a spider may have under way at once
	shopLease    = 5 * time.Second       // what a killed spider had comes back after that
	shopLoad     = 20 * time.Second      // for what takes no time on an idle machine: to start, to end
	// shopWindow requests in a row may not begin faster than the delay allows, less what a request may be late by.
	shopWindow, shopLate = 50, 400 * time.Millisecond
)

// shop is a site as spiders know them: pages with links, redirects, pages that are gone, pages that ask for a pause first, a
// robots.txt and a form.
type shop struct {
	url   string
	pages int

	mu     sync.Mutex             // guards what follows
	asked  map[string][]time.Time // by path, with the query or the form
	starts []time.Time            // of all requests but for robots.txt and those that a client may send without a turn
	hops   bool                   // a redirect's target waits for its turn, too
}

func newShop(t *testing.T, pages int, hops bool) *shop {
	t.Helper()
	s := &shop{pages: pages, asked: map[string][]time.Time{}, hops: hops}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// redirected pages are linked by /r/N only, so they are asked for once.
func (s *shop) redirected(page int) bool { return page%20 == 13 }

// throttled pages answer 429 to the first request.
func (s *shop) throttled(page int) bool { return page%60 == 7 && page < 300 }

// gone is whether a page has a link to one that answers 404, and a link to one that robots.txt forbids.
func (s *shop) gone(page int) bool { return page%25 == 4 }

// ServeHTTP implements http.Handler.
func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind, rest, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	page, err := strconv.Atoi(rest)
	query := r.PostFormValue("q")
	first := s.note(strings.TrimSuffix(r.URL.Path+"?"+query, "?"), kind != "robots.txt" && kind != "favicon.ico" && (s.hops || kind != "p" || !s.redirected(page)))
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	switch {
	case kind == "robots.txt":
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprint(w, "User-agent: *\nDisallow: /private/\n")
	case kind == "search" && r.Method == http.MethodPost:
		fmt.Fprintf(w, `<h1 class="title">Found %s</h1>`, query)
	case err != nil || page < 0 || page >= s.pages || kind != "p" && kind != "r":
		http.NotFound(w, r)
	case kind == "r":
		http.Redirect(w, r, fmt.Sprintf("/p/%d", page), http.StatusFound)
	case s.throttled(page) && first:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many", http.StatusTooManyRequests)
	default:
		s.writePage(w, page)
	}
}

// note notes a request, and returns whether it is the first of its kind.
func (s *shop) note(key string, turn bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.asked[key] = append(s.asked[key], now)
	if turn {
		s.starts = append(s.starts, now)
	}
	return len(s.asked[key]) == 1
}

func (s *shop) writePage(w http.ResponseWriter, page int) {
	fmt.Fprintf(w, "<h1 class=\"title\">Page %d</h1>\n", page)
	for child := page*shopLinks + 1; child <= (page+1)*shopLinks && child < s.pages; child++ {
		kind := "p"
		if s.redirected(child) {
			kind = "r"
		}
		fmt.Fprintf(w, "<a href=\"/%s/%d\">child</a>\n", kind, child)
	}
	if next := page + 1; next < s.pages && !s.redirected(next) {
		fmt.Fprintf(w, "<a class=\"next\" href=\"/p/%d\">next</a>\n", next)
	}
	if s.gone(page) {
		fmt.Fprintf(w, "<a href=\"/gone/%d\">gone</a> <a href=\"/private/%d\">private</a>\n", page, page)
	}
	if page == 0 {
		fmt.Fprint(w, `<form action="/search" method="post"><input name="q"></form>`)
	}
}

// requests is how many there were.
func (s *shop) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.starts)
}

// want is how often each path is to be asked for, and what becomes of it if it is no success.
func (s *shop) want() (asked map[string]int, dead map[string]pb.FailureReason) {
	asked, dead = map[string]int{}, map[string]pb.FailureReason{}
	for page := range s.pages {
		asked[fmt.Sprintf("/p/%d", page)] = 1
		if s.throttled(page) {
			asked[fmt.Sprintf("/p/%d", page)] = 2
		}
		if s.redirected(page) {
			asked[fmt.Sprintf("/r/%d", page)] = 1
		}
		if s.gone(page) {
			asked[fmt.Sprintf("/gone/%d", page)] = 1
			dead[fmt.Sprintf("/gone/%d", page)] = pb.FailureReason_FAILURE_REASON_NOT_FOUND
			dead[fmt.Sprintf("/private/%d", page)] = pb.FailureReason_FAILURE_REASON_ROBOTS_DENIED
		}
	}
	for q := range shopSearches {
		asked[fmt.Sprintf("/search?%d", q)] = 1
	}
	return asked, dead
}

// checkRequests fails unless each path was asked for as often as wanted, but for what a kill repeats, and never too soon.
func (s *shop) checkRequests(t *testing.T, repeats int, delay time.Duration) {
	t.Helper()
	want, _ := s.want()
	s.mu.Lock()
	defer s.mu.Unlock()
	again := 0
	for path, times := range s.asked {
		switch n := len(times) - want[path]; {
		case path == "/robots.txt", path == "/favicon.ico": // as browsers do by themselves
		case want[path] == 0:
			t.Errorf("%s was asked for %d times", path, len(times))
		case n > 0:
			again += n
		}
	}
	for path, n := range want {
		if len(s.asked[path]) < n {
			t.Errorf("%s was asked for %d times, want %d", path, len(s.asked[path]), n)
		}
	}
	if again > repeats {
		t.Errorf("%d requests were repeated, want at most %d", again, repeats)
	}
	shortest := time.Hour
	for i := shopWindow; i < len(s.starts); i++ {
		shortest = min(shortest, s.starts[i].Sub(s.starts[i-shopWindow]))
	}
	if least := shopWindow*delay - shopLate; shortest < least {
		t.Errorf("%d requests began within %v, want at least %v", shopWindow+1, shortest, least)
	}
	t.Logf("%d requests, %d repeated after the kill; %d in a row took %v or longer", len(s.starts), again, shopWindow+1, shortest)
}

// checkItems fails unless the files hold the item of each page and each search.
func (s *shop) checkItems(t *testing.T, files ...string) {
	t.Helper()
	want := map[string]int{}
	for page := range s.pages {
		want[fmt.Sprintf("Page %d", page)] = 0
	}
	for q := range shopSearches {
		want[fmt.Sprintf("Found %d", q)] = 0
	}
	for _, file := range files {
		for _, title := range itemTitles(t, file) {
			if _, known := want[title]; !known {
				t.Errorf("an item has the title %q", title)
			}
			want[title]++
		}
	}
	for _, title := range slices.Sorted(maps.Keys(want)) {
		if want[title] == 0 {
			t.Errorf("no item has the title %q", title)
		}
	}
}

// itemTitles reads a file of items; one that a kill cut short counts as none.
func itemTitles(t *testing.T, name string) []string {
	t.Helper()
	file, err := os.Open(name)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var titles []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var item struct {
			Title string `json:"title"`
		}
		if json.Unmarshal(lines.Bytes(), &item) == nil {
			titles = append(titles, item.Title)
		}
	}
	return titles
}

// spider is a crawl of a shop by a framework. Its command gets SERVER (empty: without Waggle), SOURCE, START_URL and OUT, the file
// for its items, in its environment.
type spider struct {
	name    string
	command func() *exec.Cmd
	hops    bool // it makes a task of a redirect's target
	drops   bool // it makes no task of a link that robots.txt forbids
}

// crawlShop lets the spider crawl a shop by itself, and then three of them at one dispatcher: one is killed, and then the
// dispatcher, which comes back. Every page is accepted once, no item is lost, delays are kept, and each process ends by itself.
func crawlShop(t *testing.T, s spider) {
	pages := shopPages
	if text := os.Getenv("WAGGLE_E2E_PAGES"); text != "" {
		var err error
		if pages, err = strconv.Atoi(text); err != nil || pages < shopPages {
			t.Fatalf("WAGGLE_E2E_PAGES: %q: want %d or more", text, shopPages)
		}
	}
	limit := time.Duration(pages)*shopDelay*3 + 3*shopLease + 3*shopLoad
	dir := t.TempDir()
	start := func(name string, site *shop, server string) (*process, string) {
		cmd, out := s.command(), filepath.Join(dir, name+".jsonl")
		if cmd.Env == nil {
			cmd.Env = os.Environ()
		}
		cmd.Env = append(cmd.Env, "SERVER="+server, "SOURCE=shop", "START_URL="+site.url+"/p/0", "OUT="+out)
		return launchCommand(t, s.name+", "+name, cmd), out
	}

	plainSite := newShop(t, pages, s.hops)
	plain, out := start("plain", plainSite, "")
	if code := plain.exit(limit); code != 0 {
		t.Fatalf("the plain spider ended with code %d", code)
	}
	plainSite.checkItems(t, out)

	site := newShop(t, pages, s.hops)
	store, addr := "file:"+t.TempDir(), lastingAddr(t)
	d := serve(t, "dispatcher", store, "waggle", "--listen", addr)
	c := dial(t, addr)
	host := strings.TrimPrefix(site.url, "http://")
	c.setRule(t, host, shopDelay, 8)
	c.createSource(t, &pb.SourceSpec{
		Id: "shop", LeaseDuration: durationpb.New(shopLease), Follow: &pb.Follow{AllowHosts: []string{host}},
	})
	var spiders []*process
	var files []string
	for i := range 3 {
		p, out := start(fmt.Sprintf("spider-%d", i), site, addr)
		spiders, files = append(spiders, p), append(files, out)
	}
	until(t, limit, "half of the pages are asked for", func() bool { return site.requests() > pages/2 })
	spiders[1].kill()
	until(t, limit, "some more are asked for", func() bool { return site.requests() > pages*6/10 })
	d.kill()
	serve(t, "dispatcher, again", store, "waggle", "--listen", addr)
	for _, i := range []int{0, 2} {
		if code := spiders[i].exit(limit); code != 0 {
			t.Errorf("spider %d ended with code %d", i, code)
		}
	}
	site.checkItems(t, files...)
	site.checkRequests(t, shopInWork, shopDelay)
	c.checkShop(t, site, s)
}

// checkShop fails unless every page of the shop is DONE, and what is no success DEAD for its reason.
func (c *client) checkShop(t *testing.T, site *shop, s spider) {
	t.Helper()
	reply, err := c.sources.GetSource(t.Context(), &pb.GetSourceRequest{Id: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	done := int64(site.pages + shopSearches)
	for page := range site.pages {
		if s.hops && site.redirected(page) {
			done++
		}
	}
	if n := reply.GetSource().GetStatus(); n.GetTasks().GetDone() != done || n.GetOutstanding() != 0 {
		t.Errorf("%d tasks are DONE and %d outstanding, want %d and 0", n.GetTasks().GetDone(), n.GetOutstanding(), done)
	}
	_, want := site.want()
	tasks, err := c.tasks.ListTasks(t.Context(), &pb.ListTasksRequest{Filter: &pb.Filter{SourceId: "shop"}, PageSize: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks.GetTasks() {
		path := strings.TrimPrefix(task.GetUrl(), site.url)
		if task.GetState() != pb.TaskState_TASK_STATE_DEAD || task.GetLastError().GetReason() != want[path] {
			t.Errorf("%s is %v with %v, want DEAD with %v", path, task.GetState(), task.GetLastError(), want[path])
		}
		delete(want, path)
	}
	for path, reason := range want {
		if s.drops && reason == pb.FailureReason_FAILURE_REASON_ROBOTS_DENIED {
			continue
		}
		t.Errorf("%s is not among the tasks that are DEAD", path)
	}
}
