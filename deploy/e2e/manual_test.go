//go:build e2e

package e2e_test

import (
	"os"
	"path/filepath"
	"testing"
)

// manual is the protocol manual, seen from this package.
const manual = "../../proto/README.md"

// TestManual_Run runs the commands of the manual as printed, in a copy of the folders that they read, and compares what they
// print. The Python in its PATH has what waggle_collector needs, and the package itself.
func TestManual_Run(t *testing.T) {
	t.Parallel()
	python, dir := grpcPython(t), t.TempDir()
	for _, folder := range []string{"proto", "collector/python"} {
		if err := os.CopyFS(filepath.Join(dir, folder), os.DirFS(filepath.Join(repository, folder))); err != nil {
			t.Fatal(err)
		}
	}
	checkDocument(t, manual, nil, documentRun{dir: dir, env: []string{
		"PATH=" + filepath.Dir(python) + ":" + os.Getenv("PATH"), "PYTHONPATH=" + filepath.Join(dir, "collector", "python", "src"),
	}})
}

// TestManual_Curl runs the commands of the page on the API over HTTP.
func TestManual_Curl(t *testing.T) {
	t.Parallel()
	checkDocument(t, "../../proto/http.md", nil, documentRun{dir: t.TempDir()})
}
