package redistest

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// Runner runs the tests of a package: *testing.M, or what wraps it.
type Runner interface {
	// Run runs the tests and returns the process's exit code.
	Run() int
}

// Shared is one redis-server for all tests of a package, started by the first test that asks for it. Tests keep apart
// by a key prefix each, so they may run in parallel; a test that kills, pauses or fills its server, or sets its clock,
// needs one of its own by Start.
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Wrap(m)) }
type Shared struct {
	opts []Option

	mu      sync.Mutex // guards what follows
	running bool       // between the begin and the end of the wrapped Run
	server  *Server
	err     error // why the server could not be started; every test gets it
	tests   int   // how many prefixes were given
}

// NewShared names the options of a package's server. It starts nothing yet.
func NewShared(opts ...Option) *Shared { return &Shared{opts: opts} }

// Wrap returns a Runner that runs m and stops the server after the last test. Without it in TestMain, Server fails.
func (s *Shared) Wrap(m Runner) Runner { return &sharedRun{shared: s, tests: m} }

// Server returns the package's server, and a key prefix that no other call gets: the test's name with a number, free of
// braces and separators. Keys of other tests may stand beside it, so a test counts and scans by its prefix only.
func (s *Shared) Server(t testing.TB) (server *Server, prefix string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		t.Fatal("redistest: the shared server runs only under TestMain: goleak.VerifyTestMain(shared.Wrap(m))")
	}
	if s.server == nil && s.err == nil {
		s.server, s.err = start(t.Context(), s.opts)
	}
	if s.err != nil {
		t.Fatalf("start the package's redis-server: %v", s.err)
	}
	s.tests++
	return s.server, fmt.Sprintf("%s-%d", prefixName(t.Name()), s.tests)
}

// begin allows Server, end stops what it started.
func (s *Shared) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = true
}

func (s *Shared) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = false
	if s.server == nil {
		return nil
	}
	err := s.server.close()
	s.server = nil
	return err
}

// sharedRun is what Wrap returns.
type sharedRun struct {
	shared *Shared
	tests  Runner
}

// Run implements Runner. A server that cannot be stopped fails the run.
func (r *sharedRun) Run() int {
	r.shared.begin()
	code := r.tests.Run()
	if err := r.shared.end(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the package's redis-server:", err)
		code = max(code, 1)
	}
	return code
}

// prefixName keeps the letters and digits of a test's name: prefixes become part of keys, whose braces and colons mean
// something.
func prefixName(test string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return r
		}
		return '_'
	}, test)
}
