//go:build e2e

package e2e_test

import (
	"os"
	"os/exec"
	"testing"
)

// sourceTag is the tag of the commit in a sourceTree.
const sourceTag = "v1.2.3"

// sourceTree copies the files of the repository, as they are now, into a repository of one commit. The commit is the same
// each time.
func sourceTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	const script = `
		cd ../..
		git ls-files -z --cached --others --exclude-standard | tar -c --null --no-recursion -T - | tar -x -C "$0"
		cd "$0"
		git init -q
		git add -A
		git commit -q -m tree
		git tag "$1"`
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script, dir, sourceTag)
	cmd.Env = append(
		os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_AUTHOR_DATE=2026-01-02T03:04:05Z",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com", "GIT_COMMITTER_DATE=2026-01-02T03:04:05Z",
	)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("copy the repository: %v\n%s", err, out)
	}
	return dir
}
