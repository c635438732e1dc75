// Package loadtest builds the command that tests of benchmarks measure.
package loadtest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Program builds the waggle command, by the go.sum of its own module, and returns its path.
func Program(t testing.TB) string {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/waggle-crawl/waggle").Output()
	if err != nil {
		t.Fatalf("find Waggle's module: %v", err)
	}
	path := filepath.Join(t.TempDir(), "waggle")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./cmd/waggle")
	cmd.Dir = strings.TrimSpace(string(root))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}
