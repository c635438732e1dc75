package collectorkit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// clientConfig is the line that a client program reads from stdin.
type clientConfig struct {
	Scenario    string            `json:"scenario"`
	Servers     []string          `json:"servers"`
	Transport   string            `json:"transport"`
	CollectorID string            `json:"collector_id"`
	Labels      map[string]string `json:"labels"`
	Pools       []string          `json:"pools"`
	Slots       int               `json:"slots"`
	WaitMS      int               `json:"wait_ms"`
	LeaseMS     int               `json:"lease_ms"`
	TokenFile   string            `json:"token_file"`
	TLSCA       string            `json:"tls_ca"`
	DrainMS     int               `json:"drain_ms"`
}

// event is a line that a client program writes to stdout.
type event struct {
	Event   string `json:"event"` // started, canceled, finished or error
	Task    string `json:"task"`
	Reason  string `json:"reason"`
	Message string `json:"message"`

	at time.Time
}

// client is a process of the client program, with its process group: a COMMAND may be a script that starts another.
type client struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	exited chan struct{}
	err    error // of Wait; read only after exited
	stderr *tail
}

// startClient starts the program, gives it its line and passes its events on.
func startClient(ctx context.Context, command []string, config clientConfig, log *tail, seen func(event)) (*client, error) {
	line, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	c := &client{cmd: exec.CommandContext(ctx, command[0], command[1:]...), exited: make(chan struct{}), stderr: log}
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.cmd.Cancel = func() error { return c.signal(syscall.SIGKILL) }
	c.cmd.WaitDelay = time.Second
	c.cmd.Stderr = c.stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	read, write := io.Pipe()
	c.cmd.Stdout = write
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", command[0], err)
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for lines := bufio.NewScanner(read); lines.Scan(); {
			e := event{at: time.Now()}
			if json.Unmarshal(lines.Bytes(), &e) == nil {
				seen(e)
			} else {
				fmt.Fprintf(c.stderr, "no event: %s\n", lines.Text())
			}
		}
		_, _ = io.Copy(io.Discard, read) // a line that is too long ends the scanner, and must not stop the program
	}()
	go func() {
		c.err = c.cmd.Wait()
		write.Close() //nolint:errcheck,gosec // it never fails
		close(c.exited)
		<-drained // its last events come before its end
		seen(event{Event: "exit", at: time.Now()})
	}()
	_, err = c.stdin.Write(append(line, '\n'))
	return c, err
}

// signal goes to all of the process group.
func (c *client) signal(sig syscall.Signal) error {
	err := syscall.Kill(-c.cmd.Process.Pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// kill ends the process group and waits for the process.
func (c *client) kill() {
	_ = c.signal(syscall.SIGKILL)
	<-c.exited
}

// tail keeps the last that was written.
type tail struct {
	mu   sync.Mutex // guards text
	text []byte
}

const tailBytes = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(len(t.text)-tailBytes, 0):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
