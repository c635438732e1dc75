package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/tail"
)

// startLimit is how long a process has to become ready.
const startLimit = 20 * time.Second

// process is a child that the controller started.
type process struct {
	name   string
	cmd    *exec.Cmd
	stderr tail.Writer
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

// dispatcher is a `waggle serve` with its addresses.
type dispatcher struct {
	process
	grpc, http string
}

// startDispatcher starts a dispatcher on free ports of loopback, with so many processors,
// 0 = all, and with variables of its own in its environment.
func startDispatcher(ctx context.Context, program, store string, processors int, variables []string) (*dispatcher, error) {
	d := &dispatcher{process: process{name: "dispatcher"}}
	d.cmd = exec.CommandContext(ctx, program, "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--store", store, "--log-level", "info", "--log-format", "json", "--max-fetches-per-collector", "1000")
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "WAGGLE_") {
			d.cmd.Env = append(d.cmd.Env, variable)
		}
	}
	d.cmd.Env = append(d.cmd.Env, variables...)
	if processors > 0 {
		d.cmd.Env = append(d.cmd.Env, "GOMAXPROCS="+strconv.Itoa(processors))
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
	// It holds little and makes much garbage: what it spends on collecting that
	// would be taken from those it measures.
	g.cmd.Env = append(os.Environ(), "GOGC=400")
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
