// Package loadtest builds what tests of the benchmarks measure.
package loadtest

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Program builds the waggle command. root is the path of the repository.
func Program(t *testing.T, root string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "waggle")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./cmd/waggle")
	cmd.Dir = root // the command is of another module
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}
