//go:build e2e

package e2e_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// crawleeNode is the package for Crawlee, seen from this package.
const crawleeNode = repository + "/collector/crawlee/node"

// crawleeEnd is how long a process of Crawlee may take to end, after its crawl: it waits for timers and connections of its own.
const crawleeEnd = 40 * time.Second

// packCrawlee packs the packages for TypeScript and for Crawlee into a new folder.
func packCrawlee(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	shell(t, repository, "make --silent crawlee-node && for package in collector/typescript collector/crawlee/node; do"+
		" (cd $package && npm pack --silent --pack-destination "+dir+"); done")
	return dir
}

// crawleeFolder installs the package for Crawlee with a version of Crawlee in a new folder, which has the programs of crawleenode.
func crawleeFolder(t *testing.T, version string) string {
	t.Helper()
	dir := packCrawlee(t)
	shell(t, dir, "npm install --no-audit --no-fund --prefer-offline ./waggle-collector-0.1.0.tgz ./waggle-crawlee-0.1.0.tgz @crawlee/cheerio@"+version+
		" @crawlee/core@"+version)
	shell(t, repository, "cp deploy/e2e/crawleenode/*.mjs "+dir)
	return dir
}

// nodeIn is a command that runs a program in a folder, with variables in its environment.
func nodeIn(dir string, args []string, variables ...string) *exec.Cmd {
	cmd := exec.Command("node", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), variables...)
	return cmd
}

// TestCrawleeNode crawls a shop by Crawlee for Node, and lets its crawlers meet trouble.
func TestCrawleeNode(t *testing.T) {
	t.Parallel()
	dir := crawleeFolder(t, "3.18.1")
	t.Run("shop", func(t *testing.T) {
		t.Parallel()
		crawlShop(t, spider{name: "crawlee", drops: true, command: func() *exec.Cmd { return nodeIn(dir, []string{"shop.mjs"}) }})
	})
	t.Run("odd", func(t *testing.T) {
		t.Parallel()
		crawlOdd(t, dir)
	})
}

// TestCrawleeNode_Versions does the same with the versions of Crawlee that WAGGLE_E2E_CRAWLEE_VERSIONS names, as 3.18.0,3.18.1.
func TestCrawleeNode_Versions(t *testing.T) {
	for version := range strings.FieldsFuncSeq(os.Getenv("WAGGLE_E2E_CRAWLEE_VERSIONS"), func(r rune) bool { return r == ',' }) {
		t.Run(version, func(t *testing.T) {
			dir := crawleeFolder(t, version)
			crawlShop(t, spider{name: "crawlee", drops: true, command: func() *exec.Cmd { return nodeIn(dir, []string{"shop.mjs"}) }})
			crawlOdd(t, dir)
		})
	}
}

// TestCrawleeNode_Browser crawls a shop by PlaywrightCrawler with the browser that WAGGLE_E2E_CHROMIUM names, as /usr/bin/chromium.
func TestCrawleeNode_Browser(t *testing.T) {
	if browser := os.Getenv("WAGGLE_E2E_CHROMIUM"); browser != "" {
		dir := crawleeFolder(t, "3.18.1")
		shell(t, dir, "PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 npm install --no-audit --no-fund --prefer-offline @crawlee/playwright@3.18.1 playwright")
		crawlShop(t, spider{name: "browser", drops: true, command: func() *exec.Cmd {
			return nodeIn(dir, []string{"browser.mjs"}, "CHROMIUM="+browser)
		}})
	}
}

// TestCrawleeNode_Readme runs the commands of the package's README in an empty folder: install, source, rule, its program, and both
// examples.
func TestCrawleeNode_Readme(t *testing.T) {
	t.Parallel()
	readme := crawleeNode + "/README.md"
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	program := regexp.MustCompile("(?s)```js\n(.*?)```").FindStringSubmatch(string(text))
	if program == nil {
		t.Fatal("the README has no program")
	}
	checkDocument(t, readme, nil, documentRun{dir: packCrawlee(t), prepare: []string{"cat > spider.mjs <<'END'\n" + program[1] + "END"}})
}
