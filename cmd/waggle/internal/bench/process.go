package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// startLimit is how long a process has to become ready.
const startLimit = 20 * time.Second

// process is a child that the controller started.
type process struct {
	name   string
	cmd    *exec.Cmd
	stderr tail
}

// kill ends the child and waits until it is gone. None of the children keeps
// anything that outlives the bench.
func (p *process) kill() {
	if p == nil || p.cmd.Process == nil {
		return
	}
	// Both fail only for a process that has gone, which is what is wanted.
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// startRedis starts a redis-server in dir that listens on a unix socket only,
// and keeps nothing on disk.
func startRedis(ctx context.Context, dir string) (p *process, url string, err error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, "", errors.New("redis-server is not installed (apt-get install redis-server); --store memory needs none")
	}
	socket := filepath.Join(dir, "redis.sock")
	p = &process{name: "redis-server"}
	p.cmd = exec.CommandContext(ctx, path, "--port", "0", "--unixsocket", socket, "--dir", dir,
		"--save", "", "--appendonly", "no", "--slowlog-log-slower-than", "5000", "--slowlog-max-len", "100000")
	p.cmd.Stderr, p.cmd.Stdout = &p.stderr, &p.stderr
	tie(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("start redis-server: %w", err)
	}
	url = "unix://" + socket + "?db=0"
	client, err := newRedis(url)
	if err != nil {
		p.kill()
		return nil, "", err
	}
	defer client.Close() //nolint:errcheck // nothing was asked of it but a ping
	for deadline := time.Now().Add(startLimit); ; {
		if err = client.Ping(ctx).Err(); err == nil {
			return p, url, nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			p.kill()
			return nil, "", fmt.Errorf("redis-server does not answer: %w\n%s", err, p.stderr.String())
		}
		wait(ctx, 10*time.Millisecond)
	}
}

func newRedis(url string) (*redis.Client, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("redis URL: %w", err)
	}
	o.MaxRetries = -1
	o.ReadTimeout, o.WriteTimeout = time.Minute, time.Minute
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(o), nil
}

// dispatcher is a `waggle serve` with its addresses.
type dispatcher struct {
	process
	grpc, http string
}

// startDispatcher starts a dispatcher on free ports of loopback.
func startDispatcher(ctx context.Context, program, store string) (*dispatcher, error) {
	d := &dispatcher{process: process{name: "dispatcher"}}
	d.cmd = exec.CommandContext(ctx, program, "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--store", store, "--log-level", "info", "--log-format", "json", "--max-fetches-per-collector", "1000")
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "WAGGLE_") {
			d.cmd.Env = append(d.cmd.Env, variable)
		}
	}
	logs, err := d.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("start a dispatcher: %w", err)
	}
	tie(d.cmd)
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a dispatcher: %w", err)
	}
	listening := make(chan struct{})
	ended := make(chan struct{})
	go d.readLog(logs, listening, ended)
	timeout := time.NewTimer(startLimit)
	defer timeout.Stop()
	select {
	case <-listening:
		return d, nil
	case <-ended:
	case <-timeout.C:
	case <-ctx.Done():
	}
	d.kill()
	return nil, fmt.Errorf("the dispatcher does not serve:\n%s", d.stderr.String())
}

// readLog finds the addresses in the log, and keeps the end of it.
func (d *dispatcher) readLog(logs io.Reader, listening, ended chan<- struct{}) {
	defer close(ended)
	found := false
	for lines := bufio.NewScanner(logs); lines.Scan(); {
		var line struct{ Msg, GRPC, HTTP string }
		if !found && json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "listening" {
			d.grpc, d.http, found = line.GRPC, line.HTTP, true
			close(listening)
		}
		fmt.Fprintf(&d.stderr, "%s\n", lines.Bytes())
	}
	// A line too long for the scanner: what follows is read, so that the dispatcher is not held up.
	_, _ = io.Copy(&d.stderr, logs)
}

// generator is a load generator in a process of its own.
type generator struct {
	process
	in  *json.Encoder
	out *json.Decoder
}

func startGenerator(ctx context.Context, program string, args []string) (*generator, error) {
	g := &generator{process: process{name: "load"}}
	g.cmd = exec.CommandContext(ctx, program, args...)
	g.cmd.Stderr = &g.stderr
	tie(g.cmd)
	stdin, err := g.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the load generator: %w", err)
	}
	stdout, err := g.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the load generator: %w", err)
	}
	if err := g.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the load generator: %w", err)
	}
	g.in, g.out = json.NewEncoder(stdin), json.NewDecoder(stdout)
	return g, nil
}

// do has the load generator do a job.
func (g *generator) do(j *job) (*outcome, error) {
	if err := g.in.Encode(j); err != nil {
		return nil, fmt.Errorf("load generator: %w\n%s", err, g.stderr.String())
	}
	var o outcome
	if err := g.out.Decode(&o); err != nil {
		return nil, fmt.Errorf("load generator: %w\n%s", err, g.stderr.String())
	}
	if o.Err != "" {
		return nil, fmt.Errorf("%s: %s", j.Op, o.Err)
	}
	return &o, nil
}

// maxTail is how many bytes of a child's output are kept.
const maxTail = 8 << 10

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex // guards text
	text []byte
}

// Write keeps p.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = bytes.Clone(t.text[max(0, len(t.text)-maxTail):])
	return len(p), nil
}

// String is what was kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
