//go:build e2e

// Package e2e_test runs real dispatchers and collectors against a real Redis, and kills them. README.md says what each
// test shows, and how to run one by itself.
package e2e_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/waggle-crawl/waggle/store/redistest"
)

// module is the path of this module, by which the go command finds its programs.
const module = "github.com/waggle-crawl/waggle"

var (
	// shared is the Redis of the tests that neither stop nor measure theirs.
	shared = redistest.NewShared()
	// programs is where the programs under test are.
	programs = &builds{}
)

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(programs.wrap(shared.Wrap(m)))
}

// builds is a directory with the programs under test, made before the first test and removed after the last one.
type builds struct {
	dir string
	redistest.Runner
}

func (b *builds) wrap(tests redistest.Runner) redistest.Runner {
	b.Runner = tests
	return b
}

// Run builds the programs and runs the tests.
func (b *builds) Run() int {
	code, err := b.run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	return code
}

func (b *builds) run() (code int, err error) {
	b.dir, err = os.MkdirTemp("", "waggle-e2e")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	for _, path := range []string{"/cmd/waggle", "/deploy/e2e/logcollector", "/deploy/e2e/attacker", "/deploy/e2e/plaincrawl"} {
		build := exec.Command("go", "build", "-trimpath", "-o", b.dir, module+path)
		build.Env = append(os.Environ(), "CGO_ENABLED=0") // as `make release` and the Dockerfile do
		if out, err := build.CombinedOutput(); err != nil {
			return 1, fmt.Errorf("go build %s: %w\n%s", path, err, out)
		}
	}
	return b.Runner.Run(), nil
}

// path is where a program is.
func (b *builds) path(name string) string { return filepath.Join(b.dir, name) }
