//go:build e2e

package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// pythonReadme describes the Python package, seen from this package; pythonWheel is the file of the package.
const (
	pythonReadme = "../../collector/python/README.md"
	pythonWheel  = "waggle_collector-0.1.0-py3-none-any.whl"
)

// makingTools is held by whoever makes the environment of the Python tools: two makes beside each other would both do it.
var makingTools sync.Mutex

// pythonTools makes the environment in which the package is built, unless it is there.
func pythonTools(t *testing.T) {
	t.Helper()
	makingTools.Lock()
	defer makingTools.Unlock()
	runMake(t, repository, "python-tools")
}

func absolute(t *testing.T, elements ...string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// runMake runs make in a directory, not as a part of the make that runs this test.
func runMake(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", args...)
	cmd.Dir = dir
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "MAKE") && !strings.HasPrefix(kv, "MFLAGS") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestPythonPackage builds the Python package and installs it by the lines of its README in an empty environment. Then the README's
// producer submits a task, its collector works on it, and stops by SIGTERM.
func TestPythonPackage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pythonTools(t)
	runMake(t, repository, "wheel", "DIST="+filepath.Join(dir, "dist"))
	readme, err := os.ReadFile(pythonReadme)
	if err != nil {
		t.Fatal(err)
	}
	install := regexp.MustCompile("(?s)```sh\n(.*?)```").FindSubmatch(readme)
	programs := regexp.MustCompile("(?s)```python\n(.*?)```").FindAllSubmatch(readme, -1)
	if install == nil || len(programs) != 2 {
		t.Fatalf("%s has %d programs and install lines %q", pythonReadme, len(programs), install)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", string(install[1]))
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("install: %v\n%s", err, out)
	}

	server, prefix := shared.Server(t)
	d := serve(t, "dispatcher", server.URL(), prefix)
	c, site := dial(t, d.addr), newSmallSite(t)
	c.createSource(t, &pb.SourceSpec{Id: "news"})
	python := filepath.Join(dir, "env", "bin", "python")
	run := func(name string, program []byte) *process {
		t.Helper()
		file := filepath.Join(dir, name+".py")
		replace(t, file, strings.NewReplacer("127.0.0.1:7070", d.addr, "https://example.com/", site.url+"/a").Replace(string(program)))
		return launch(t, name, python, "-u", file)
	}
	if code := run("producer", programs[1][1]).exit(startLimit); code != 0 {
		t.Fatalf("the producer ended with code %d", code)
	}
	collector := run("collector", programs[0][1])
	collector.line(site.url+"/a", startLimit)
	until(t, 10*time.Second, "the task is done", func() bool { return c.stats(t).GetTasks().GetDone() == 1 })
	collector.stop(20 * time.Second)
}
