//go:build e2e

package e2e_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/collector/web"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	docsPackage  = "python3.11-doc"
	docsIn       = "/usr/share/doc/python3.11/html"
	docsPages    = 500 // at least so many HTML pages make it the real thing
	docsLimit    = 2 * time.Minute
	docsSlots    = 8
	docsInFlight = "16"
	wgetAgent    = "Wget"
	waggleAgent  = "waggle"
)

// TestPythonDocs crawls Python's documentation as Debian packages it, from its index, with four collectors, and compares
// what they asked the web server for with what `wget --recursive` asks it for.
func TestPythonDocs(t *testing.T) {
	t.Parallel()
	root := pythonDocs(t)
	site := serveSite(t, root)
	wget(t, site.url)

	server, prefix := shared.Server(t)
	d := serve(t, "dispatcher", server.URL(), prefix)
	host := strings.TrimPrefix(site.url, "http://")
	t.Log(command(t, d.addr, "queue", "rule", "set", host, "--min-delay", "0s", "--max-in-flight", docsInFlight))
	began := time.Now()
	command(t, d.addr, "source", "create", "python.docs", "--seed", site.url+"/", "--follow-host", host, "--max-attempts", "1")
	out := t.TempDir()
	var collectors []*process
	for i := range 4 {
		id := fmt.Sprintf("docs-%d", i)
		collectors = append(collectors, launch(t, id, programs.path("waggle"), "collect", "--server", d.addr, "--id", id, "--allow-private",
			"--slots", fmt.Sprint(docsSlots), "--resources", "--out", out, "--contact", "https://crawler.example"))
	}
	c := dial(t, d.addr)
	var counts *pb.TaskCounts
	until(t, docsLimit, "the crawl is over", func() bool {
		reply, err := c.sources.GetSource(t.Context(), &pb.GetSourceRequest{Id: "python.docs"})
		if err != nil {
			t.Fatal(err)
		}
		counts = reply.GetSource().GetStatus().GetTasks()
		return counts.GetScheduled()+counts.GetReady()+counts.GetLeased() == 0 && counts.GetDone() > 0
	})
	took := time.Since(began)
	for _, p := range collectors {
		p.stop(10 * time.Second)
	}
	stored := readPages(t, out, root)
	t.Logf("crawled in %v: %d tasks DONE, %d DEAD; %d pages stored", took.Round(time.Millisecond), counts.GetDone(), counts.GetDead(), len(stored))
	compare(t, site, stored)
}

// compare holds what the collectors asked for against what wget asked for.
func compare(t *testing.T, site *site, stored map[string]bool) {
	t.Helper()
	byWaggle, byWget := site.requests(waggleAgent), site.requests(wgetAgent)
	pages := 0
	for target, r := range byWget {
		if r.status == http.StatusOK && r.html {
			pages++
		}
		if w, is := byWaggle[target]; is && w.status != r.status {
			t.Errorf("%s answered %d to wget and %d to the collectors", target, r.status, w.status)
		}
	}
	if pages < docsPages {
		t.Errorf("wget found %d HTML pages; the documentation has more than %d", pages, docsPages)
	}
	for target, r := range byWaggle {
		if _, robots := explained(target); r.times != 1 && !robots {
			t.Errorf("the collectors asked for %s %d times", target, r.times)
		}
		if r.status == http.StatusOK && !stored[target] {
			t.Errorf("%s was fetched and not stored", target)
		}
	}
	only := func(a, b map[string]request) []string {
		var found []string
		for _, target := range slices.Sorted(maps.Keys(a)) {
			if _, is := b[target]; !is {
				found = append(found, target)
			}
		}
		return found
	}
	unexplained := 0
	for _, side := range []struct {
		name    string
		targets []string
	}{{"only the collectors", only(byWaggle, byWget)}, {"only wget", only(byWget, byWaggle)}} {
		for _, target := range side.targets {
			why, is := explained(target)
			if !is {
				unexplained++
				t.Errorf("%s asked for %s, and no rule explains it", side.name, target)
				continue
			}
			t.Logf("%s asked for %s: %s", side.name, target, why)
		}
	}
	t.Logf("asked for: %d URLs by the collectors, %d by wget, of which %d HTML pages; differences without explanation: %d",
		len(byWaggle), len(byWget), pages, unexplained)
	t.Logf("HTML files that no page links to: %v", unlinked(t, site.root, byWget))
}

// unlinked lists the HTML files that were not asked for.
func unlinked(t *testing.T, root string, asked map[string]request) []string {
	t.Helper()
	var found []string
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if _, is := asked["/"+name]; err == nil && !is && !d.IsDir() && strings.HasSuffix(name, ".html") {
			found = append(found, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// explained says why one side may ask for a target when the other does not.
func explained(target string) (why string, is bool) {
	switch {
	case target == "/robots.txt":
		return "each collector asks for it once an hour, wget once a run", true
	case strings.Contains(target, "@"):
		return "wget follows a link element of rel=made, whose address is one of mail", true
	}
	return "", false
}

// request is what one client asked of the site for one target.
type request struct {
	status int
	html   bool
	times  int
}

// site serves a directory and notes who asks for what.
type site struct {
	root, url string

	mu    sync.Mutex                    // guards what follows
	asked map[string]map[string]request // by user agent, cut to its name, and target: path and query
}

func serveSite(t *testing.T, root string) *site {
	t.Helper()
	s := &site{root: root, asked: map[string]map[string]request{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// ServeHTTP answers with a file. (http.FileServer redirects index.html to its directory, as few servers do.)
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := path.Clean("/" + r.URL.Path)
	if strings.HasSuffix(r.URL.Path, "/") {
		name = path.Join(name, "index.html")
	}
	status := http.StatusNotFound
	body, err := os.ReadFile(filepath.Join(s.root, filepath.FromSlash(name)))
	if err == nil {
		status = http.StatusOK
	}
	s.note(r, request{status: status, html: strings.HasSuffix(name, ".html")})
	if err != nil {
		http.NotFound(w, r)
		return
	}
	http.ServeContent(w, r, path.Base(name), time.Time{}, strings.NewReader(string(body)))
}

func (s *site) note(r *http.Request, q request) {
	agent := r.UserAgent()
	if i := strings.IndexAny(agent, " /"); i > 0 {
		agent = agent[:i]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked[agent] == nil {
		s.asked[agent] = map[string]request{}
	}
	q.times = s.asked[agent][r.URL.RequestURI()].times + 1
	s.asked[agent][r.URL.RequestURI()] = q
}

// requests is what one client asked for.
func (s *site) requests(agent string) map[string]request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.asked[agent])
}

// wget fetches the site with `wget --recursive`. Code 8 says that something was not found.
func wget(t *testing.T, url string) {
	t.Helper()
	began := time.Now()
	cmd := exec.CommandContext(t.Context(), "wget", "--recursive", "--level=inf", "--no-parent", "--no-verbose", "--tries=1",
		"--directory-prefix="+t.TempDir(), url+"/")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 8) {
		t.Fatalf("wget --recursive: %v (is wget installed? `make setup`)\n%s", err, out[max(0, len(out)-logTail):])
	}
	t.Logf("wget --recursive took %v", time.Since(began).Round(time.Millisecond))
}

// readPages reads what the collectors stored, checks each body against the file that was served, and returns the targets.
func readPages(t *testing.T, out, root string) map[string]bool {
	t.Helper()
	lists, err := filepath.Glob(filepath.Join(out, "pages-*.jsonl"))
	if err != nil || len(lists) != 4 {
		t.Fatalf("lists of pages: %v, %v; want one of each collector", lists, err)
	}
	stored, tasks := map[string]bool{}, map[string]bool{}
	for _, list := range lists {
		file, err := os.Open(list)
		if err != nil {
			t.Fatal(err)
		}
		lines, n := bufio.NewScanner(file), 0
		for ; lines.Scan(); n++ {
			var page web.Page
			if err := json.Unmarshal(lines.Bytes(), &page); err != nil {
				t.Fatalf("%s: %v", list, err)
			}
			if tasks[page.TaskID] {
				t.Errorf("%s was stored twice", page.URL)
			}
			tasks[page.TaskID] = true
			stored[checkPage(t, out, root, page)] = true
		}
		if err := errors.Join(lines.Err(), file.Close()); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d pages", filepath.Base(list), n)
	}
	return stored
}

// checkPage compares a stored page with the file that was served, and returns its target.
func checkPage(t *testing.T, out, root string, page web.Page) string {
	t.Helper()
	_, target, _ := strings.Cut(strings.TrimPrefix(page.URL, "http://"), "/")
	name, _, _ := strings.Cut(target, "?")
	if name == "" {
		name = "index.html"
	}
	want, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Errorf("%s: %v", page.URL, err)
	}
	have, err := os.ReadFile(filepath.Join(out, page.File))
	if err != nil {
		t.Errorf("%s: %v", page.URL, err)
	}
	digest := sha256.Sum256(want)
	if string(have) != string(want) || page.Digest != hex.EncodeToString(digest[:]) {
		t.Errorf("%s is stored as %d bytes with digest %s; served were %d bytes", page.URL, len(have), page.Digest, len(want))
	}
	return "/" + target
}

// pythonDocs is a directory with the documentation: that of WAGGLE_E2E_DOCS, else the package's.
func pythonDocs(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("WAGGLE_E2E_DOCS"); dir != "" {
		return dir
	}
	return debianPackage(t, docsPackage, docsIn)
}
