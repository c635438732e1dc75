// Package clitest is the kit for tests of the command: it runs commands in the process of the test, dispatchers among them.
package clitest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/dispatcher"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/root"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// beWaggle, in the environment of a process of this test's program, makes it the command: the demo starts collectors so.
const beWaggle = "BE_WAGGLE"

// Main runs the tests of a package, and checks for leaks.
func Main(m *testing.M) {
	if os.Getenv(beWaggle) != "" && !slices.Contains(os.Args, "-test.fuzzworker") {
		root.Main()
	}
	if err := os.Setenv(beWaggle, "1"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// WaitLimit is how long a test waits for what must come.
const WaitLimit = 30 * time.Second

// Answer is what a command did.
type Answer struct {
	Code     int    // that it exits with
	Out, Err string // what it wrote
}

// Run runs a command with the given environment.
func Run(ctx context.Context, args []string, in io.Reader, out, err io.Writer, env map[string]string) int {
	return root.Run(ctx, args, in, out, err, cli.Console{
		Env: func(name string) (string, bool) {
			value, ok := env[name]
			return value, ok
		},
		ConfigDir: func() (string, error) {
			if dir := env["XDG_CONFIG_HOME"]; dir != "" {
				return dir, nil
			}
			return "", errors.New("XDG_CONFIG_HOME is not set")
		},
	})
}

// Command runs a command to its end.
func Command(t *testing.T, env map[string]string, args ...string) Answer {
	t.Helper()
	return CommandWith(t, env, "", args...)
}

// CommandWith is command with something on standard input.
func CommandWith(t *testing.T, env map[string]string, in string, args ...string) Answer {
	t.Helper()
	var out, err bytes.Buffer
	code := Run(t.Context(), args, strings.NewReader(in), &out, &err, inMemory(env, args))
	return Answer{Code: code, Out: out.String(), Err: err.String()}
}

// inMemory has the store of serve in memory, unless a test says where it is: by default it is in the working directory.
func inMemory(env map[string]string, args []string) map[string]string {
	if len(args) == 0 || args[0] != "serve" || env["WAGGLE_STORE"] != "" {
		return env
	}
	with := map[string]string{"WAGGLE_STORE": dispatcher.MemoryStore}
	maps.Copy(with, env)
	return with
}

// Background is a command that runs until it is stopped.
type Background struct {
	t        *testing.T
	stop     context.CancelFunc
	ended    chan int
	Out, Err *Stream // what it writes
}

// Start runs a command in the background; the test's end stops it.
func Start(t *testing.T, env map[string]string, args ...string) *Background {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	b := &Background{t: t, stop: stop, ended: make(chan int, 1), Out: NewStream(), Err: NewStream()}
	go func() { b.ended <- Run(ctx, args, strings.NewReader(""), b.Out, b.Err, inMemory(env, args)) }()
	t.Cleanup(func() {
		stop()
		select {
		case <-b.ended:
		case <-time.After(WaitLimit):
			t.Errorf("waggle %s does not end", strings.Join(args, " "))
		}
	})
	return b
}

// End stops the command and returns its exit code.
func (b *Background) End() int {
	b.t.Helper()
	b.stop()
	return b.Wait()
}

// Wait waits for the command to end by itself.
func (b *Background) Wait() int {
	b.t.Helper()
	select {
	case code := <-b.ended:
		b.ended <- code
		return code
	case <-time.After(WaitLimit):
		b.t.Fatalf("the command does not end; it wrote\n%s\n%s", b.Out.Text(), b.Err.Text())
		return -1
	}
}

// Stream keeps what is written to it, and lets tests wait for lines.
type Stream struct {
	mu      sync.Mutex // guards the rest
	written bytes.Buffer
	more    chan struct{} // closed at the next write
}

// NewStream makes an empty one.
func NewStream() *Stream { return &Stream{more: make(chan struct{})} }

// Write keeps p.
func (s *Stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.more)
	s.more = make(chan struct{})
	return s.written.Write(p)
}

// Text is what was written so far.
func (s *Stream) Text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written.String()
}

// Line waits for the first line that matches, and returns its submatches.
func (s *Stream) Line(t *testing.T, pattern string) []string {
	t.Helper()
	expression := regexp.MustCompile(pattern)
	limit := time.After(WaitLimit)
	for {
		s.mu.Lock()
		text, more := s.written.String(), s.more
		s.mu.Unlock()
		for scanner := bufio.NewScanner(strings.NewReader(text)); scanner.Scan(); {
			if found := expression.FindStringSubmatch(scanner.Text()); found != nil {
				return found
			}
		}
		select {
		case <-more:
		case <-limit:
			t.Fatalf("no line matches %q in\n%s", pattern, text)
		}
	}
}

// Served is an environment with a dispatcher of the test's own to talk to.
func Served(t *testing.T) (env map[string]string, d *Background) {
	t.Helper()
	d = Start(t, nil, "serve", "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json", "--drain-timeout", "5s")
	return map[string]string{"WAGGLE_SERVER": Address(t, d), "USER": "ada"}, d
}

// Address is where a dispatcher says that it listens.
func Address(t *testing.T, d *Background) string {
	t.Helper()
	var listening struct{ GRPC string }
	if err := json.Unmarshal([]byte(d.Err.Line(t, `.*"listening".*`)[0]), &listening); err != nil {
		t.Fatal(err)
	}
	return listening.GRPC
}

// Connect makes a connection to the dispatcher, for what the command has no subcommand for.
func Connect(t *testing.T, env map[string]string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(env["WAGGLE_SERVER"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// varying is what differs from run to run, and what stands for it in a test.
var varying = []struct {
	pattern *regexp.Regexp
	stand   string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`\\?"(\d+)-[0-9a-f]{8}\\?"`), `"$1-TAG"`},
	{regexp.MustCompile(`"\d{4}-\d\d-\d\dT[0-9:.]+Z"`), `"TIME"`},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ`), "TIME"},
	{regexp.MustCompile(`\b\d{16}\b`), "FENCE"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`\b(now|\d+(\.\d+)?m?s ago)\b`), "AGO"},
	{regexp.MustCompile(`  +`), "  "}, // columns are as wide as what varies
}

// Settle replaces what differs from run to run.
func Settle(text string) string {
	for _, v := range varying {
		text = v.pattern.ReplaceAllString(text, v.stand)
	}
	return text
}

// WantOutput compares what a command wrote, but for what differs from run to run.
func WantOutput(t *testing.T, got Answer, want string) {
	t.Helper()
	if got.Code != cli.ExitOK || got.Err != "" {
		t.Errorf("exit code %d, on stderr: %s", got.Code, got.Err)
	}
	want = Settle(strings.TrimPrefix(want, "\n"))
	if text := Settle(got.Out); text != want {
		t.Errorf("printed\n%s\nwant\n%s", text, want)
	}
}

// WantNoted wants an output as WantOutput does, and with it a note on stderr.
func WantNoted(t *testing.T, got Answer, note, want string) {
	t.Helper()
	if got.Err != "waggle: "+note+"\n" {
		t.Errorf("noted %q, want %q", got.Err, note)
	}
	got.Err = ""
	WantOutput(t, got, want)
}

// Taken lets a collector take tasks of a pool.
func Taken(t *testing.T, env map[string]string, pool string) {
	t.Helper()
	if _, err := pb.NewDispatchServiceClient(Connect(t, env)).RenewLease(t.Context(), &pb.RenewLeaseRequest{
		Collector: &pb.CollectorInfo{Id: "of-" + pool, Session: "s", Pools: []string{pool}, Slots: 1},
	}); err != nil {
		t.Fatal(err)
	}
}

// WantFailure wants an exit code, and parts of what is on stderr.
func WantFailure(t *testing.T, got Answer, code int, parts ...string) {
	t.Helper()
	if got.Code != code {
		t.Errorf("exit code %d, want %d; on stderr: %s", got.Code, code, got.Err)
	}
	for _, part := range parts {
		if !strings.Contains(got.Err, part) {
			t.Errorf("stderr lacks %q:\n%s", part, got.Err)
		}
	}
}

// With is env and more of it.
func With(env map[string]string, name, value string) map[string]string {
	env = maps.Clone(env)
	if env == nil {
		env = map[string]string{}
	}
	env[name] = value
	return env
}

// MustRun runs a command that has to succeed.
func MustRun(t *testing.T, args ...string) Answer {
	t.Helper()
	got := Command(t, nil, args...)
	if got.Code != cli.ExitOK {
		t.Fatalf("waggle %s: exit code %d, %s", strings.Join(args, " "), got.Code, got.Err)
	}
	return got
}
