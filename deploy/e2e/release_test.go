//go:build e2e

package e2e_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestRelease makes the release of one platform twice, in two directories: every file has the same bytes, and the
// program knows its version.
func TestRelease(t *testing.T) {
	t.Parallel()
	first, second := release(t, sourceTree(t)), release(t, sourceTree(t))
	name := "waggle-" + sourceTag + "-linux-" + runtime.GOARCH
	want := []string{
		"SHA256SUMS", name + ".cdx.json", name + ".tar.gz", pythonWheel, scrapyWheel, crawleeWheel, "waggle-collector-0.1.0.tgz", "waggle-crawlee-0.1.0.tgz",
	}
	slices.Sort(want)
	if !slices.Equal(first.names, want) || !slices.Equal(second.names, want) {
		t.Fatalf("the releases have %v and %v, want %v", first.names, second.names, want)
	}
	for _, file := range want {
		if !bytes.Equal(first.read(t, file), second.read(t, file)) {
			t.Errorf("%s differs from one release to the next", file)
		}
	}
	first.run(t, "sha256sum", "--check", "--strict", "SHA256SUMS")
	first.run(t, "tar", "-xzf", name+".tar.gz")
	if got := first.run(t, "./"+name+"/waggle", "version"); !strings.HasPrefix(got, "waggle "+sourceTag+" ") {
		t.Errorf("waggle version prints %s", got)
	}
	for _, file := range []string{
		"LICENSE", "README.md", "proto/waggle/v1/dispatch_service.proto", "proto/waggle/v1/task.proto", "collector/python/examples/crawl.py",
		"deploy/redis.conf", "deploy/systemd/waggle-serve.service",
	} {
		first.read(t, filepath.Join(name, file))
	}
	deadLinks(t, filepath.Join(first.dir, name))
	var bom struct {
		Components []struct{ Name, Version string }
	}
	if err := json.Unmarshal(first.read(t, name+".cdx.json"), &bom); err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for _, c := range bom.Components {
		listed[c.Name] = c.Version
	}
	modules := regexp.MustCompile(`\tdep\t(\S+)\t(\S+)`).FindAllStringSubmatch(first.run(t, "go", "version", "-m", name+"/waggle"), -1)
	if len(modules) < 10 {
		t.Errorf("the program has %d modules", len(modules))
	}
	for _, m := range modules {
		if listed[m[1]] != m[2] {
			t.Errorf("the bill of materials has %s %q, not %s", m[1], listed[m[1]], m[2])
		}
	}
}

// deadLinks fails for each relative link of a Markdown file that leads to nothing in the directory.
func deadLinks(t *testing.T, dir string) {
	t.Helper()
	links := 0
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".md") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`\]\(([^)#:]+)[)#]`).FindAllSubmatch(text, -1) {
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), string(m[1]))); err != nil {
				t.Errorf("%s links to %s, which is not in the archive", path, m[1])
			}
		}
		return err
	})
	if err != nil || links < 30 {
		t.Errorf("%d links: %v", links, err)
	}
}

// released is the directory that `make release` writes.
type released struct {
	dir   string
	names []string
}

// release runs `make release` in a tree, for this machine's platform.
func release(t *testing.T, tree string) released {
	t.Helper()
	pythonTools(t)
	runMake(t, tree, "release", "PLATFORMS=linux/"+runtime.GOARCH, "PYTHON_ENV="+absolute(t, repository, "bin", "python"))
	r := released{dir: filepath.Join(tree, "dist")}
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		r.names = append(r.names, e.Name())
	}
	return r
}

func (r released) read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// run runs a command in the directory and returns what it prints.
func (r released) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = r.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}
