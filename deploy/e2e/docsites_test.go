//go:build e2e

package e2e_test

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	sitesPortal   = "docs.example" // links to the others
	sitesSource   = "e2e.sites"
	sitesLimit    = 3 * time.Minute
	sitesSlots    = 8
	sitesInFlight = 16
	sitesLease    = 3 * time.Second
	sitesPages    = 1500 // at least so many answers with content make it the real thing
)

// sitesPackages are Debian's packages of documentation, by the host that serves each.
var sitesPackages = map[string]struct{ name, within string }{
	"postgresql.docs.example": {"postgresql-doc-15", "/usr/share/doc/postgresql-doc-15/html"},
	"git.docs.example":        {"git-doc", "/usr/share/doc/git-doc"},
	"apache.docs.example":     {"apache2-doc", "/usr/share/doc/apache2-doc/manual"},
}

// sitesRobots keeps crawlers from the translations of Apache's documentation, five sixths of all pages.
const sitesRobots = `User-agent: *
Disallow: /da/
Disallow: /de/
Disallow: /es/
Disallow: /fr/
Disallow: /ja/
Disallow: /ko/
Disallow: /pt-br/
Disallow: /ru/
Disallow: /tr/
Disallow: /zh-cn/
`

// TestDocSites crawls the documentation of PostgreSQL, Git and Apache, served by nginx under names of their own, three
// times with four collectors into WARC files. In the first pass, in which one collector is killed, they ask for what
// `wget --recursive` asks for, each page once. The second costs nothing but 304s. Before the third some files change, and
// exactly those are fetched whole and reported as changed. warcio checks the files, and what it reads from them is what
// was served.
func TestDocSites(t *testing.T) {
	t.Parallel()
	python := warcPython(t)
	w := newDocSites(t)
	byWget := w.wget(t)

	first := w.firstPass(t, len(byWget)/2)
	w.compare(t, byWget, first)
	w.warcs = append(w.warcs, w.checksums(t, first))

	second := w.nextPass(t)
	w.checkUnchanged(t, first, second)
	w.warcs = append(w.warcs, w.checksums(t, first))

	edit := w.edit(t, first)
	third := w.nextPass(t)
	w.checkEdited(t, first, third, edit)
	w.warcs = append(w.warcs, w.checksums(t, third))

	for _, p := range w.collectors {
		p.stop(20 * time.Second)
	}
	w.checkArchive(t, python, edit)
}

// docSites is the world of TestDocSites.
type docSites struct {
	roots      map[string]string // of files, by host
	nginx      *nginx
	proxy      string // for the environment: a proxy is asked for hosts by their names, so nobody has to know their addresses
	dispatcher *dispatcher
	client     *client
	collectors []*process
	archive    string // directory of WARC files
	doomed     string // the user agent of the collector that is killed
	began      time.Time
	warcs      []map[string]string // the digests of what was served, by URL, in each pass
}

// newDocSites starts everything but the collectors.
func newDocSites(t *testing.T) *docSites {
	t.Helper()
	w := &docSites{roots: map[string]string{}, archive: t.TempDir(), doomed: "sites-0"}
	port := freePort(t)
	portal, links := t.TempDir(), "<title>Documentation</title>\n"
	w.roots[sitesPortal] = portal
	for host, pkg := range sitesPackages {
		w.roots[host] = filepath.Join(t.TempDir(), "files")
		// A copy, since some files will change; with their times, and without links.
		source := debianPackage(t, pkg.name, pkg.within)
		if out, err := exec.CommandContext(t.Context(), "cp", "-rL", "--preserve=timestamps", source, w.roots[host]).CombinedOutput(); err != nil {
			t.Fatalf("copy %s: %v\n%s", source, err, out)
		}
		links += fmt.Sprintf("<a href=\"http://%s/\">%s</a>\n", host, pkg.name)
	}
	w.write(t, sitesPortal, "index.html", links)
	if os.Getenv("WAGGLE_E2E_SITES") != "all" {
		w.write(t, "apache.docs.example", "robots.txt", sitesRobots)
	}
	var hosts []virtualHost
	for host, root := range w.roots {
		hosts = append(hosts, virtualHost{listen: "127.0.0.1:" + port, name: host, root: root})
	}
	w.nginx = serveNginx(t, hosts...)
	w.proxy = "http_proxy=http://127.0.0.1:" + port

	server, prefix := shared.Server(t)
	w.dispatcher = serve(t, "dispatcher", server.URL(), prefix)
	w.client = dial(t, w.dispatcher.addr)
	w.client.setRule(t, "*", 0, sitesInFlight)
	return w
}

// write makes a file of a site.
func (w *docSites) write(t *testing.T, host, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(w.roots[host], name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// wget crawls the sites with `wget --recursive` and returns what it asked for. Code 8 says that something was not found.
func (w *docSites) wget(t *testing.T) map[string][]access {
	t.Helper()
	began := time.Now()
	cmd := exec.CommandContext(t.Context(), "wget", "--recursive", "--level=inf", "--no-verbose", "--tries=1",
		"--span-hosts", "--domains="+sitesPortal, "--directory-prefix="+t.TempDir(), "http://"+sitesPortal+"/")
	cmd.Env = append(os.Environ(), w.proxy)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 8) {
		t.Fatalf("wget --recursive: %v (is wget installed? `make setup`)\n%s", err, out[max(0, len(out)-logTail):])
	}
	asked := byURL(w.nginx.accesses(t, 0))
	t.Logf("wget --recursive: %d URLs in %v", len(asked), time.Since(began).Round(time.Millisecond))
	return asked
}

func byURL(accesses []access) map[string][]access {
	found := map[string][]access{}
	for _, a := range accesses {
		found[a.url()] = append(found[a.url()], a)
	}
	return found
}

// collect starts a collector whose user agent is its id.
func (w *docSites) collect(t *testing.T, id string) *process {
	t.Helper()
	return launch(t, id, "env", w.proxy, programs.path("waggle"), "collect", "--server", w.dispatcher.addr, "--id", id, "--user-agent", id,
		"--slots", fmt.Sprint(sitesSlots), "--resources", "--warc", w.archive)
}

// firstPass crawls everything, and kills a collector after some requests.
func (w *docSites) firstPass(t *testing.T, killAfter int) map[string][]access {
	t.Helper()
	mark := w.nginx.count(t)
	w.began = time.Now()
	for i := range 4 {
		w.collectors = append(w.collectors, w.collect(t, fmt.Sprintf("sites-%d", i)))
	}
	w.client.createSource(t, &pb.SourceSpec{
		Id: sitesSource, Seeds: []*pb.Seed{{Url: "http://" + sitesPortal + "/"}}, LeaseDuration: durationpb.New(sitesLease),
		Follow: &pb.Follow{AllowHosts: []string{sitesPortal, "*." + sitesPortal}}, Retry: &pb.RetryPolicy{MaxAttempts: proto.Int32(1)},
	})
	until(t, sitesLimit, "half of the pages were asked for", func() bool { return w.nginx.count(t) >= mark+killAfter })
	w.collectors[0].kill()
	asked := w.settled(t, mark)
	w.collectors[0] = w.collect(t, w.doomed) // it finishes the file that it left open
	return asked
}

// nextPass crawls everything again.
func (w *docSites) nextPass(t *testing.T) map[string][]access {
	t.Helper()
	mark := w.nginx.count(t)
	w.began = time.Now()
	t.Log(command(t, w.dispatcher.addr, "source", "trigger", sitesSource, "--revisit"))
	return w.settled(t, mark)
}

// settled waits until nothing is outstanding, and returns what was asked for since the mark.
func (w *docSites) settled(t *testing.T, mark int) map[string][]access {
	t.Helper()
	var counts *pb.TaskCounts
	until(t, sitesLimit, "the pass is over", func() bool {
		reply, err := w.client.sources.GetSource(t.Context(), &pb.GetSourceRequest{Id: sitesSource})
		if err != nil {
			t.Fatal(err)
		}
		counts = reply.GetSource().GetStatus().GetTasks()
		return counts.GetScheduled()+counts.GetReady()+counts.GetLeased() == 0 && counts.GetDone() > 0
	})
	took := time.Since(w.began)
	accesses := w.nginx.accesses(t, mark)
	t.Logf("the pass took %v: %d requests, %.0f a second; %d tasks DONE, %d DEAD", took.Round(time.Millisecond), len(accesses),
		float64(len(accesses))/took.Seconds(), counts.GetDone(), counts.GetDead())
	return byURL(accesses)
}

// file is the file that a URL asks for.
func (w *docSites) file(t *testing.T, target string) string {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(u.Path, "/") {
		u.Path += "index.html"
	}
	return filepath.Join(w.roots[u.Host], filepath.FromSlash(u.Path))
}

// checksums are the digests of the files that answered with content, by URL.
func (w *docSites) checksums(t *testing.T, asked map[string][]access) map[string]string {
	t.Helper()
	sums := map[string]string{}
	for target, list := range asked {
		status := list[len(list)-1].status
		if _, robots := explained(pathOf(target)); robots || status != 200 && status != 304 {
			continue
		}
		body, err := os.ReadFile(w.file(t, target))
		if err != nil {
			t.Fatal(err)
		}
		sums[target] = sha256Hex(body)
	}
	return sums
}

// pathOf is a URL without scheme and host.
func pathOf(target string) string {
	_, path, _ := strings.Cut(strings.TrimPrefix(target, "http://"), "/")
	return "/" + path
}

// edits are what was changed between two passes, by URL.
type edits struct {
	changed []string // another content; the first one links to what is new
	touched string   // the content of before, with another time
	added   string   // a new page
}

// edit changes a few pages of each site.
func (w *docSites) edit(t *testing.T, asked map[string][]access) edits {
	t.Helper()
	const each = 5
	var e edits
	for host := range sitesPackages {
		var pages []string
		for target, list := range asked {
			name := pathOf(target)
			// An index may be asked for by two URLs, and a query is no part of a file's name.
			if list[0].host == host && list[len(list)-1].status == 200 && strings.HasSuffix(name, ".html") && !strings.HasSuffix(name, "/index.html") {
				pages = append(pages, target)
			}
		}
		slices.Sort(pages)
		for i := range each {
			e.changed = append(e.changed, pages[(2*i+1)*len(pages)/(2*each)])
		}
		e.touched = pages[0]
		e.added = "http://" + host + "/added-by-the-test.html"
	}
	text := "<title>added</title>\n"
	if err := os.WriteFile(w.file(t, e.added), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, target := range e.changed {
		body, err := os.ReadFile(w.file(t, target))
		if err != nil {
			t.Fatal(err)
		}
		body = fmt.Appendf(body, "<!-- changed --><a href=%q>added</a>\n", e.added)
		if err := os.WriteFile(w.file(t, target), body, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(w.file(t, e.touched), time.Time{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	return e
}
