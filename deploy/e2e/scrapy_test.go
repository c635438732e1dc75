//go:build e2e

package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	newestScrapy = "2.19.0" // the version that these tests run
	scrapyWheel  = "waggle_scrapy-0.1.0-py3-none-any.whl"
)

// scrapyPackages are what a Python needs to run spiders on Waggle from the source tree.
func scrapyPackages(version string) []string {
	return []string{"scrapy==" + version, "aiohttp", "grpcio", "protobuf>=6.31.1,<8", "googleapis-common-protos"}
}

// scrapyPython is a Python with Scrapy and what the packages of this repository need.
func scrapyPython(t *testing.T) string {
	t.Helper()
	return scrapyPythonOf(t, "WAGGLE_E2E_SCRAPY", newestScrapy)
}

// scrapyPythonOf is one with a version of Scrapy.
func scrapyPythonOf(t *testing.T, variable, version string) string {
	t.Helper()
	return pythonWith(t, variable, "import scrapy, aiohttp, grpc, google.rpc", scrapyPackages(version)...)
}

// scrapyCommand is a command of a Python that finds the packages in the source tree, as a user's process after their installation.
func scrapyCommand(t *testing.T, python string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python, args...)
	paths := []string{absolute(t, repository, "collector", "python", "src"), absolute(t, repository, "collector", "scrapy", "src")}
	cmd.Env = append(os.Environ(), "PYTHONPATH="+strings.Join(paths, string(os.PathListSeparator)))
	return cmd
}

// TestScrapy_Shop crawls a shop with three processes of Scrapy, with each of the event loops that Scrapy runs on.
func TestScrapy_Shop(t *testing.T) {
	t.Parallel()
	for name, setting := range map[string]string{
		"asyncio": "TWISTED_REACTOR=twisted.internet.asyncioreactor.AsyncioSelectorReactor",
		"select":  "TWISTED_REACTOR=twisted.internet.selectreactor.SelectReactor",
		"none":    "TWISTED_REACTOR_ENABLED=False",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			python := scrapyPython(t)
			crawlShop(t, spider{name: "scrapy", hops: true, command: func() *exec.Cmd {
				return scrapyCommand(t, python, "-m", "scrapy", "runspider", "-s", setting, "../../collector/scrapy/tests/shop.py")
			}})
		})
	}
}

// TestScrapy_Odd runs spiders that use what Scrapy offers, each by itself and on Waggle. WAGGLE_E2E_SCRAPY_VERSIONS: with older
// versions, too.
func TestScrapy_Odd(t *testing.T) {
	t.Parallel()
	pythons := map[string]string{newestScrapy: scrapyPython(t)}
	for _, version := range strings.Fields(os.Getenv("WAGGLE_E2E_SCRAPY_VERSIONS")) {
		pythons[version] = scrapyPythonOf(t, "", version)
	}
	for version, python := range pythons {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			d := serve(t, "dispatcher", "memory", "waggle")
			out, err := scrapyCommand(t, python, "../../collector/scrapy/tests/odd.py", d.addr).CombinedOutput()
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			if t.Logf("%s", lines[len(lines)-1]); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestScrapy_Readme runs the commands of the package's README as printed, from the installation of the packages to the end of two
// spiders of the example.
func TestScrapy_Readme(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pythonTools(t)
	runMake(t, repository, "wheel", "DIST="+filepath.Join(dir, "dist"))
	example := filepath.Join("collector", "scrapy", "example")
	if err := os.CopyFS(filepath.Join(dir, example), os.DirFS(filepath.Join(repository, example))); err != nil {
		t.Fatal(err)
	}
	checkDocument(t, "../../collector/scrapy/README.md", nil, documentRun{dir: dir})
}
