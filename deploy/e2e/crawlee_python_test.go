//go:build e2e

package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// crawleePackage is the folder of the package for Crawlee, seen from this package; crawleeWheel is the file of the package.
const (
	crawleePackage = "../../collector/crawlee/python"
	crawleeWheel   = "waggle_crawlee-0.1.0-py3-none-any.whl"
)

// crawleeLimit is when a program that runs many small crawls is given up.
const crawleeLimit = 5 * time.Minute

// crawleePython returns how a program is run by a Python that has Crawlee and both packages of this tree: the newest 1.x, or
// what WAGGLE_E2E_CRAWLEE names.
func crawleePython(t *testing.T) func(args ...string) *exec.Cmd {
	t.Helper()
	python := pythonWith(t, "WAGGLE_E2E_CRAWLEE",
		"import grpc, google.rpc.status_pb2; from crawlee.crawlers import BeautifulSoupCrawler, ParselCrawler, PlaywrightCrawler;"+
			"from crawlee.http_clients import CurlImpersonateHttpClient, HttpxHttpClient",
		"crawlee", "crawlee[parsel,beautifulsoup,httpx,curl-impersonate,playwright]>=1.11,<2", "grpcio>=1.66", "protobuf>=6.31.1,<8", "googleapis-common-protos>=1.70")
	path := absolute(t, "../../collector/python/src") + string(os.PathListSeparator) + absolute(t, crawleePackage, "src")
	return func(args ...string) *exec.Cmd {
		cmd := exec.Command(python, append([]string{"-u", "-W", "ignore"}, args...)...)
		cmd.Dir = t.TempDir() // for its storage
		cmd.Env = append(os.Environ(), "PYTHONPATH="+path, "PYTHONDONTWRITEBYTECODE=1")
		return cmd
	}
}

// runCrawlee runs a program of the package's tests to its end.
func runCrawlee(t *testing.T, name string, cmd *exec.Cmd) {
	t.Helper()
	p := launchCommand(t, name, cmd)
	if code := p.exit(crawleeLimit); code != 0 {
		t.Fatalf("%s ended with code %d", name, code)
	}
	said, _ := p.out.text()
	t.Log("\n" + said)
}

// TestCrawleePython_Shop lets three crawlers of Crawlee for Python crawl a shop.
func TestCrawleePython_Shop(t *testing.T) {
	t.Parallel()
	python := crawleePython(t)
	crawlShop(t, spider{name: "crawlee", command: func() *exec.Cmd { return python(absolute(t, "crawleepython", "shop.py")) }})
}

// TestCrawleePython_Odd runs the odd crawls of the README: what works, and what is refused by name.
func TestCrawleePython_Odd(t *testing.T) {
	t.Parallel()
	python := crawleePython(t)
	for _, part := range []string{"1/4", "2/4", "3/4", "4/4"} { // most of their time they wait
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			d := serve(t, "dispatcher", "memory", "waggle")
			runCrawlee(t, "odd.py", python(absolute(t, crawleePackage, "tests", "odd.py"), d.addr, part))
		})
	}
}

// TestCrawleePython_Outcomes compares what failures of each HTTP client are reported as.
func TestCrawleePython_Outcomes(t *testing.T) {
	t.Parallel()
	runCrawlee(t, "outcomes.py", crawleePython(t)(absolute(t, crawleePackage, "tests", "outcomes.py")))
}

// TestCrawleePython_Readme runs the README in an empty folder with the packages that are built of this tree.
func TestCrawleePython_Readme(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pythonTools(t)
	runMake(t, repository, "wheel", "DIST="+filepath.Join(dir, "dist"))
	checkDocument(t, filepath.Join(crawleePackage, "README.md"), nil,
		documentRun{dir: dir, prepare: []string{"waggle serve --store memory"}})
}

// TestCrawleePython_Example crawls a small shop by the two examples: lists with products behind a proxy, and a form.
func TestCrawleePython_Example(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		var page int
		switch {
		case r.URL.Path == "/search" && r.Method == http.MethodPost:
			fmt.Fprintf(w, "<ul><li>red %[1]s</li><li>blue %[1]s</li></ul>", r.PostFormValue("q"))
		case r.URL.Path == "/list":
			_, _ = fmt.Sscan(r.FormValue("page"), &page)
			for i := range 3 {
				fmt.Fprintf(w, `<a class="product" href="/product/%d">product</a>`, 3*page+i)
			}
			if page < 2 {
				fmt.Fprintf(w, `<a class="next" href="/list?page=%d">next</a>`, page+1)
			}
		case strings.HasPrefix(r.URL.Path, "/product/") && r.Header.Get("Via") != "":
			fmt.Fprintf(w, `<h1>Product %s</h1><p class="price">9.99</p>`, filepath.Base(r.URL.Path))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(site.Close)
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.Out.Header.Set("Via", "1.1 proxy") }})
	t.Cleanup(proxy.Close)
	d := serve(t, "dispatcher", "memory", "waggle")
	c := dial(t, d.addr)
	c.setRule(t, strings.TrimPrefix(site.URL, "http://"), time.Millisecond, 4)
	python := crawleePython(t)
	for name, test := range map[string]struct {
		args []string
		done int64
		want string // in one of the items
	}{
		"products": {[]string{site.URL, proxy.URL}, 12, `"name": "Product 8"`},
		"search":   {[]string{site.URL, "shoes", "hat & coat"}, 2, `"blue hat & coat"`},
	} {
		c.createSource(t, &pb.SourceSpec{Id: name})
		cmd := python(append([]string{absolute(t, crawleePackage, "example", name+".py")}, test.args...)...)
		cmd.Env = append(cmd.Env, "WAGGLE_SERVER="+d.addr)
		runCrawlee(t, name+".py", cmd)
		reply, err := c.sources.GetSource(t.Context(), &pb.GetSourceRequest{Id: name})
		if err != nil {
			t.Fatal(err)
		}
		if tasks := reply.GetSource().GetStatus().GetTasks(); tasks.GetDone() != test.done || tasks.GetDead() != 0 {
			t.Errorf("%s: %v, want %d DONE", name, tasks, test.done)
		}
		files, err := filepath.Glob(filepath.Join(cmd.Dir, "storage", "datasets", name, "0*.json"))
		if err != nil {
			t.Fatal(err)
		}
		var items strings.Builder
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			items.Write(text)
		}
		if !strings.Contains(items.String(), test.want) {
			t.Errorf("%s: no item has %s:\n%s", name, test.want, items.String())
		}
	}
}

// TestCrawleePython_Token crawls with a token that has the two roles that are needed, and is told what one lacks that has less.
func TestCrawleePython_Token(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policy := filepath.Join(dir, "auth.yaml")
	command := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), programs.path("waggle"), args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("waggle %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	for name, role := range map[string]string{"ada": "admin", "both": "collector", "producer": "producer"} {
		command("auth", "token", "new", name, "--role", role, "--out", name+".token")
	}
	text, err := os.ReadFile(policy)
	if err != nil {
		t.Fatal(err)
	}
	replace(t, policy, string(text)+"  - identity: token:both\n    role: producer\n")
	d := serve(t, "dispatcher", "memory", "waggle", "--auth", policy)
	command("source", "create", "search", "--server", d.addr, "--token-file", "ada.token")
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<li>a hat</li>")
	}))
	t.Cleanup(site.Close)
	python := crawleePython(t)
	crawl := func(token string) *process {
		cmd := python(absolute(t, crawleePackage, "example", "search.py"), site.URL, "hat")
		cmd.Env = append(cmd.Env, "WAGGLE_SERVER="+d.addr, "WAGGLE_TOKEN_FILE="+filepath.Join(dir, token+".token"))
		return launchCommand(t, token, cmd)
	}
	if p := crawl("producer"); p.exit(shopLoad) == 0 {
		t.Error("a crawl with the role producer alone ended well")
	} else if said, _ := p.out.text(); !strings.Contains(said, "NotAllowed: fetch: not allowed: token:producer has the role producer") {
		t.Errorf("it said\n%s", said)
	}
	if code := crawl("both").exit(shopLoad); code != 0 {
		t.Errorf("a crawl with both roles ended with code %d", code)
	}
}

// TestCrawleePython_Browser crawls with Playwright and Debian's Chromium.
func TestCrawleePython_Browser(t *testing.T) {
	t.Parallel()
	d := serve(t, "dispatcher", "memory", "waggle")
	runCrawlee(t, "browser.py", crawleePython(t)(absolute(t, crawleePackage, "tests", "browser.py"), d.addr))
}
