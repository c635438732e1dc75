//go:build e2e

package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// makingPython is held by whoever makes an environment, so that of two tests beside each other one makes it.
var makingPython sync.Mutex

// pythonWith is a Python in which a line of imports works: that of an environment variable, or one in a virtual environment
// with some packages, which is made in the user's cache directory and stays there.
func pythonWith(t *testing.T, variable, imports string, packages ...string) string {
	t.Helper()
	if python := os.Getenv(variable); python != "" {
		return python
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	makingPython.Lock()
	defer makingPython.Unlock()
	dir := filepath.Join(cache, "waggle-e2e", packages[0])
	python := filepath.Join(dir, "bin", "python")
	if exec.CommandContext(t.Context(), python, "-c", imports).Run() == nil {
		return python
	}
	for _, args := range [][]string{
		{"python3", "-m", "venv", "--clear", dir},
		append([]string{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"}, packages...),
	} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s\nThis test needs Python 3 with venv (on Debian: apt-get install python3-venv) and %v from Python's"+
				" package index; or %s naming a Python that has them.", strings.Join(args, " "), err, out, packages, variable)
		}
	}
	return python
}

// warcPython is a Python that has warcio.
func warcPython(t *testing.T) string {
	t.Helper()
	return pythonWith(t, "WAGGLE_E2E_WARCIO", "import warcio", warcTool)
}
