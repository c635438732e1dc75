//go:build e2e

package e2e_test

import (
	"os"
	"os/exec"
	"testing"
)

// crawleePython is a Python that has Crawlee and both packages of this tree.
func crawleePython(t *testing.T) string {
	t.Helper()
	return os.Getenv("WAGGLE_E2E_CRAWLEE_PYTHON")
}

// TestCrawleePython_Shop lets three crawlers of Crawlee for Python crawl a shop.
func TestCrawleePython_Shop(t *testing.T) {
	t.Parallel()
	python := crawleePython(t)
	crawlShop(t, spider{name: "crawlee", command: func() *exec.Cmd {
		cmd := exec.Command(python, absolute(t, "crawleepython", "shop.py"))
		cmd.Dir = t.TempDir()
		return cmd
	}})
}
