//go:build e2e

package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// crawleeNode is the package for Crawlee, seen from this package.
const crawleeNode = repository + "/collector/crawlee/node"

// crawleeFolder packs the package for Crawlee, and installs it with a version of Crawlee as its README says, in a new folder. The
// folder has the programs of crawleenode too.
func crawleeFolder(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	shell(t, repository, "make --silent crawlee-node && for package in collector/typescript collector/crawlee/node; do"+
		" (cd $package && npm pack --silent --pack-destination "+dir+"); done")
	shell(t, dir, "npm install --no-audit --no-fund --prefer-offline ./waggle-collector-0.1.0.tgz ./waggle-crawlee-0.1.0.tgz @crawlee/cheerio@"+version)
	shell(t, repository, "cp deploy/e2e/crawleenode/*.mjs "+dir)
	return dir
}

// node is a command that runs a program in a folder.
func nodeIn(dir, program string, args ...string) *exec.Cmd {
	cmd := exec.Command("node", append([]string{program}, args...)...)
	cmd.Dir = dir
	cmd.Env = os.Environ()
	return cmd
}

// TestCrawleeNode_Shop crawls a shop by Crawlee for Node.
func TestCrawleeNode_Shop(t *testing.T) {
	t.Parallel()
	dir := crawleeFolder(t, "3.18.1")
	crawlShop(t, spider{name: "crawlee", drops: true, command: func() *exec.Cmd { return nodeIn(dir, filepath.Join(dir, "shop.mjs")) }})
}
