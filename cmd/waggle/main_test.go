package main_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/dispatcher"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// beWaggle, in the environment of a process of this test's program, makes it the command: the demo starts collectors so.
const beWaggle = "BE_WAGGLE"

func TestMain(m *testing.M) {
	if os.Getenv(beWaggle) != "" {
		waggle.Main()
	}
	if err := os.Setenv(beWaggle, "1"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// waitLimit is how long a test waits for what must come.
const waitLimit = 30 * time.Second

// answer is what a command did.
type answer struct {
	code     int
	out, err string
}

// command runs a command to its end.
func command(t *testing.T, env map[string]string, args ...string) answer {
	t.Helper()
	return commandWith(t, env, "", args...)
}

// commandWith is command with something on standard input.
func commandWith(t *testing.T, env map[string]string, in string, args ...string) answer {
	t.Helper()
	var out, err bytes.Buffer
	code := waggle.Run(t.Context(), args, strings.NewReader(in), &out, &err, inMemory(env, args))
	return answer{code: code, out: out.String(), err: err.String()}
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

// background is a command that runs until it is stopped.
type background struct {
	t        *testing.T
	stop     context.CancelFunc
	ended    chan int
	out, err *stream
}

// start runs a command in the background; the test's end stops it.
func start(t *testing.T, env map[string]string, args ...string) *background {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	b := &background{t: t, stop: stop, ended: make(chan int, 1), out: newStream(), err: newStream()}
	go func() { b.ended <- waggle.Run(ctx, args, strings.NewReader(""), b.out, b.err, inMemory(env, args)) }()
	t.Cleanup(func() {
		stop()
		select {
		case <-b.ended:
		case <-time.After(waitLimit):
			t.Errorf("waggle %s does not end", strings.Join(args, " "))
		}
	})
	return b
}

// end stops the command and returns its exit code.
func (b *background) end() int {
	b.t.Helper()
	b.stop()
	return b.wait()
}

// wait waits for the command to end by itself.
func (b *background) wait() int {
	b.t.Helper()
	select {
	case code := <-b.ended:
		b.ended <- code
		return code
	case <-time.After(waitLimit):
		b.t.Fatalf("the command does not end; it wrote\n%s\n%s", b.out.text(), b.err.text())
		return -1
	}
}

// stream keeps what is written to it, and lets tests wait for lines.
type stream struct {
	mu      sync.Mutex // guards the rest
	written bytes.Buffer
	more    chan struct{} // closed at the next write
}

func newStream() *stream { return &stream{more: make(chan struct{})} }

// Write keeps p.
func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.more)
	s.more = make(chan struct{})
	return s.written.Write(p)
}

func (s *stream) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written.String()
}

// line waits for the first line that matches, and returns its submatches.
func (s *stream) line(t *testing.T, pattern string) []string {
	t.Helper()
	expression := regexp.MustCompile(pattern)
	limit := time.After(waitLimit)
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

// served is an environment with a dispatcher of the test's own to talk to.
func served(t *testing.T) (env map[string]string, d *background) {
	t.Helper()
	d = start(t, nil, "serve", "--listen", "127.0.0.1:0", "--http", "off", "--log-format", "json", "--drain-timeout", "5s")
	return map[string]string{"WAGGLE_SERVER": address(t, d), "USER": "ada"}, d
}

// address is where a dispatcher says that it listens.
func address(t *testing.T, d *background) string {
	t.Helper()
	var listening struct{ GRPC string }
	if err := json.Unmarshal([]byte(d.err.line(t, `.*"listening".*`)[0]), &listening); err != nil {
		t.Fatal(err)
	}
	return listening.GRPC
}

// connect makes a connection to the dispatcher, for what the command has no subcommand for.
func connect(t *testing.T, env map[string]string) *grpc.ClientConn {
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

// settle replaces what differs from run to run.
func settle(text string) string {
	for _, v := range varying {
		text = v.pattern.ReplaceAllString(text, v.stand)
	}
	return text
}

// wantOutput compares what a command wrote, but for what differs from run to run.
func wantOutput(t *testing.T, got answer, want string) {
	t.Helper()
	if got.code != waggle.ExitOK || got.err != "" {
		t.Errorf("exit code %d, on stderr: %s", got.code, got.err)
	}
	want = settle(strings.TrimPrefix(want, "\n"))
	if text := settle(got.out); text != want {
		t.Errorf("printed\n%s\nwant\n%s", text, want)
	}
}

// wantNoted wants an output as wantOutput does, and with it a note on stderr.
func wantNoted(t *testing.T, got answer, note, want string) {
	t.Helper()
	if got.err != "waggle: "+note+"\n" {
		t.Errorf("noted %q, want %q", got.err, note)
	}
	got.err = ""
	wantOutput(t, got, want)
}

// taken lets a collector take tasks of a pool.
func taken(t *testing.T, env map[string]string, pool string) {
	t.Helper()
	if _, err := pb.NewDispatchServiceClient(connect(t, env)).RenewLease(t.Context(), &pb.RenewLeaseRequest{
		Collector: &pb.CollectorInfo{Id: "of-" + pool, Session: "s", Pools: []string{pool}, Slots: 1},
	}); err != nil {
		t.Fatal(err)
	}
}

// wantFailure wants an exit code, and parts of what is on stderr.
func wantFailure(t *testing.T, got answer, code int, parts ...string) {
	t.Helper()
	if got.code != code {
		t.Errorf("exit code %d, want %d; on stderr: %s", got.code, code, got.err)
	}
	for _, part := range parts {
		if !strings.Contains(got.err, part) {
			t.Errorf("stderr lacks %q:\n%s", part, got.err)
		}
	}
}

// with is env and more of it.
func with(env map[string]string, name, value string) map[string]string {
	env = maps.Clone(env)
	if env == nil {
		env = map[string]string{}
	}
	env[name] = value
	return env
}
