//go:build e2e

package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// crawleePackage is the folder of the package for Crawlee, seen from this package.
const crawleePackage = "../../collector/crawlee/python"

// crawleeLimit is when a program that runs many small crawls is given up.
const crawleeLimit = 5 * time.Minute

// crawleePython returns how a program is run by a Python that has Crawlee and both packages of this tree: the newest 1.x, or
// what WAGGLE_E2E_CRAWLEE names.
func crawleePython(t *testing.T) func(args ...string) *exec.Cmd {
	t.Helper()
	python := pythonWith(t, "WAGGLE_E2E_CRAWLEE",
		"import grpc, google.rpc.status_pb2; from crawlee.crawlers import BeautifulSoupCrawler, ParselCrawler;"+
			"from crawlee.http_clients import CurlImpersonateHttpClient, HttpxHttpClient",
		"crawlee", "crawlee[parsel,beautifulsoup,httpx,curl-impersonate]>=1.11,<2", "grpcio>=1.66", "protobuf>=6.31.1,<8", "googleapis-common-protos>=1.70")
	path := absolute(t, "../../collector/python/src") + string(os.PathListSeparator) + absolute(t, crawleePackage, "src")
	return func(args ...string) *exec.Cmd {
		cmd := exec.Command(python, append([]string{"-u", "-W", "ignore"}, args...)...)
		cmd.Dir = dir(t) // for its storage
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
