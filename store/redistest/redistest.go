// Package redistest starts a private, real redis-server for tests, and stands between it and its clients where a
// test needs a fault.
//
// Start gives one test a server of its own, which the test may kill, restart, pause or put on a clock of its choosing.
// Shared gives all tests of a package one server and each test a key prefix. Proxy is a TCP proxy that cuts, swallows
// or delays what the server answers.
//
// Each server listens on a free loopback port and on a unix socket, keeps its files in a temporary directory, and ends
// with the test, or on Linux with the test's process, however that ends. A missing redis-server fails the test: nothing
// is skipped.
package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

const (
	// maxSocketPath is the longest unix socket path that every supported system takes.
	maxSocketPath = 100
	// portTries is how often a start is repeated when another process took the free port first.
	portTries = 5
	// logTail is how many lines of the server's log a failed test shows.
	logTail = 30
)

// errPortTaken says that another process took the port between its choice and its use.
var errPortTaken = errors.New("port taken")

// Server is a running redis-server. Its methods may be called from any goroutine of the test; a step that fails marks
// the test as failed (testing.TB.Errorf).
type Server struct {
	opts options
	dir  string
	env  []string
	fail func(format string, args ...any)

	clock *Clock // nil without WithClock

	mu      sync.Mutex // guards what follows, and makes Kill, Restart, Pause and Resume one step each
	port    int
	bus     int      // its port in a Cluster; 0 without WithCluster
	process *process // nil while killed
}

// Start runs a redis-server until the test ends. It keeps nothing on disk unless WithAOF says so. It fails the test
// when redis-server is missing or does not answer within 20 s.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s, err := start(t.Context(), opts)
	if err != nil {
		t.Fatalf("start a redis-server for the test: %v", err)
	}
	s.fail = t.Errorf
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("last lines of redis-server's log:\n%s", s.tail())
		}
		if err := s.close(); err != nil {
			t.Errorf("stop redis-server: %v", err)
		}
	})
	return s
}

// start makes the directory, the clock and the first process of a server.
func start(ctx context.Context, opts []Option) (*Server, error) {
	o := options{}
	for _, opt := range opts {
		opt(&o)
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, errors.New("redis-server is not installed: run `make setup`, or `apt-get install -y redis-server`")
	}
	dir, err := shortTempDir()
	if err != nil {
		return nil, err
	}
	s := &Server{opts: o, dir: dir, port: o.port, fail: func(string, ...any) {}}
	if err := s.startFirst(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// startFirst prepares the clock and starts the process, on another port when the first choice was taken meanwhile.
func (s *Server) startFirst(ctx context.Context) error {
	if s.opts.clock {
		clock, env, err := newClock(ctx, s.dir)
		if err != nil {
			return err
		}
		s.clock, s.env = clock, env
	}
	var err error
	for range portTries {
		if s.opts.port == 0 {
			if s.port, err = freePort(); err != nil {
				return err
			}
		}
		if s.opts.cluster {
			if s.bus, err = freePort(); err != nil {
				return err
			}
		}
		s.process, err = s.launch()
		if s.opts.port != 0 || !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

// launch writes the configuration, starts a process and waits until it answers PING.
func (s *Server) launch() (*process, error) {
	conf := filepath.Join(s.dir, "redis.conf")
	if err := os.WriteFile(conf, []byte(s.config()), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command("redis-server", conf) //nolint:noctx // it outlives the call; kill ends it
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), s.env...)
	cmd.SysProcAttr = dieWithParent()
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output

	p, err := run(cmd)
	if err != nil {
		return nil, err
	}
	if err := p.ready(s.Socket()); err != nil {
		err = errors.Join(err, p.kill())
		log := s.tail()
		if strings.Contains(log, "Address already in use") {
			return nil, fmt.Errorf("port %d: %w", s.port, errPortTaken)
		}
		return nil, fmt.Errorf("%w\n%s\n%s", err, output.String(), log)
	}
	return p, nil
}

// config is the text of redis.conf. What the test sets comes last, so that it wins.
func (s *Server) config() string {
	lines := []string{
		"bind 127.0.0.1",
		fmt.Sprintf("port %d", s.port),
		fmt.Sprintf("cluster-port %d", s.bus),
		"unixsocket " + s.Socket(),
		"dir " + s.dir,
		"logfile " + filepath.Join(s.dir, "redis.log"),
		"daemonize no",
		`save ""`,
		"appendonly no",
		"enable-debug-command local",
	}
	if s.opts.clock {
		// It waits for times of the wall clock. While that stands still they are always past, and it keeps a core busy.
		lines = append(lines, "jemalloc-bg-thread no")
	}
	for _, kv := range s.opts.config {
		lines = append(lines, kv[0]+" "+kv[1])
	}
	return strings.Join(lines, "\n") + "\n"
}

// URL is the server's address for a client, by TCP: redis://127.0.0.1:PORT/0.
func (s *Server) URL() string { return "redis://" + s.Addr() + "/0" }

// SocketURL is the server's address for a client, by unix socket: unix:///PATH?db=0.
func (s *Server) SocketURL() string { return "unix://" + s.Socket() + "?db=0" }

// Addr is the server's TCP address, 127.0.0.1:PORT. It stays the same over Restart.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr()
}

func (s *Server) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// BusPort is the port on which the nodes of its Cluster reach the server.
func (s *Server) BusPort() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bus
}

// Socket is the path of the server's unix socket. It stays the same over Restart.
func (s *Server) Socket() string { return filepath.Join(s.dir, "s") }

// Dir is the server's directory: redis.conf, redis.log and, with WithAOF, appendonlydir. It goes when the test ends.
func (s *Server) Dir() string { return s.dir }

// PID is the process id of the running server, 0 while it is killed. Restart changes it.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return 0
	}
	return s.process.cmd.Process.Pid
}

// Clock is the server's clock. It panics unless the server was started with WithClock.
func (s *Server) Clock() *Clock {
	if s.clock == nil {
		panic("redistest: the server was started without WithClock")
	}
	return s.clock
}

// Kill ends the server by SIGKILL and waits until it is gone: what was not on disk is lost. Killing a killed server
// does nothing.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report("kill redis-server", s.kill())
}

func (s *Server) kill() error {
	if s.process == nil {
		return nil
	}
	err := s.process.kill()
	s.process = nil
	return err
}

// Restart starts the server again in the same directory and on the same port, and waits until it answers; a running one
// is killed first. With WithAOF it holds what its fsync policy kept, otherwise nothing.
func (s *Server) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.kill(); err != nil {
		s.report("kill redis-server", err)
		return
	}
	var err error
	s.process, err = s.launch()
	s.report("restart redis-server", err)
}

// Pause stops the server by SIGSTOP: connections stay open and nothing is answered until Resume.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume lets a paused server go on.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		s.report("signal redis-server", fmt.Errorf("%v to a killed server", sig))
		return
	}
	s.report("signal redis-server", s.process.cmd.Process.Signal(sig))
}

func (s *Server) report(what string, err error) {
	if err != nil {
		s.fail("%s: %v", what, err)
	}
}

// close kills the server and removes what it left.
func (s *Server) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.kill()
	if s.clock != nil {
		err = errors.Join(err, s.clock.close())
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// tail returns the last lines of the server's log, or why there are none.
func (s *Server) tail() string {
	log, err := os.ReadFile(filepath.Join(s.dir, "redis.log"))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return strings.Join(lines[max(0, len(lines)-logTail):], "\n")
}

// freePort asks the kernel for a port that nobody listens on.
func freePort() (int, error) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

// shortTempDir makes a directory whose path leaves room for a unix socket's name, which the kernel limits to 108 bytes
// with its end. (testing.TB.TempDir carries the test's name, and often passes that.)
func shortTempDir() (string, error) {
	parent := os.TempDir()
	if len(parent) > maxSocketPath-20 {
		parent = "/tmp"
	}
	return os.MkdirTemp(parent, "redis")
}
