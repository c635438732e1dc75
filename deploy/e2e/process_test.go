//go:build e2e

package e2e_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// logTail is how much of a process's output a failed test shows, in bytes.
const logTail = 8 << 10

// process is a program that a test started. It is killed, by its id, when the test ends; and by the kernel when the
// test's own process dies.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	out  *output
	done chan struct{} // closed once it has ended
	err  error         // how it ended; read only after done
}

// launch starts a program with the environment's WAGGLE_ variables left out.
func launch(t *testing.T, name, program string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(program, args...)
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "WAGGLE_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	return launchCommand(t, name, cmd)
}

// launchCommand starts a program that may have an environment, a user and a root of its own.
func launchCommand(t *testing.T, name string, cmd *exec.Cmd) *process {
	t.Helper()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	p := &process{t: t, name: name, cmd: cmd, out: newOutput(), done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.out, p.out
	started := make(chan error)
	go func() {
		// The kernel ends a child with the thread that made it, so the thread stays until the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	t.Cleanup(func() {
		p.kill()
		if text, _ := p.out.text(); secret.MatchString(text) {
			t.Errorf("%s wrote a secret to its log", name)
		}
		if t.Failed() {
			t.Logf("the last that %s wrote:\n%s", name, p.out.tail(logTail))
		}
	})
	return p
}

// secret is what no log may have: a token, a JWT or a private key.
var secret = regexp.MustCompile(`wgl_[0-9A-Za-z_-]{8}|eyJ[0-9A-Za-z_-]+\.[0-9A-Za-z_-]+\.[0-9A-Za-z_-]+|PRIVATE KEY`)

// kill ends the process by SIGKILL and waits until it is gone. A process that is gone already stays so.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// signal sends a signal, if the process is there.
func (p *process) signal(sig syscall.Signal) {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("%v to %s: %v", sig, p.name, err)
	}
}

// stop ends the process by SIGTERM, and fails the test unless it ends by itself with code 0 within the limit. It returns
// how long that took.
func (p *process) stop(limit time.Duration) time.Duration {
	p.t.Helper()
	began := time.Now()
	p.signal(syscall.SIGTERM)
	if code := p.exit(limit); code != 0 {
		p.t.Errorf("%s ended with code %d after SIGTERM", p.name, code)
	}
	return time.Since(began)
}

// exit waits until the process has ended by itself, and returns its code.
func (p *process) exit(limit time.Duration) int {
	p.t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-timer.C:
		p.t.Fatalf("%s has not ended within %v", p.name, limit)
		return -1
	}
}

// line waits until the process has written a line that holds text, and returns it.
func (p *process) line(text string, limit time.Duration) string {
	p.t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		all, more := p.out.text()
		for line := range strings.Lines(all) {
			if strings.Contains(line, text) && strings.HasSuffix(line, "\n") {
				return strings.TrimSuffix(line, "\n")
			}
		}
		select {
		case <-more:
		case <-p.done:
			if now, _ := p.out.text(); now == all {
				p.t.Fatalf("%s ended (%v) and never wrote %q", p.name, p.err, text)
			}
		case <-timer.C:
			p.t.Fatalf("%s has not written %q within %v", p.name, text, limit)
		}
	}
}

// output keeps what a process writes.
type output struct {
	mu   sync.Mutex // guards what follows
	all  bytes.Buffer
	more chan struct{} // closed when there is more
}

func newOutput() *output { return &output{more: make(chan struct{})} }

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.more)
	o.more = make(chan struct{})
	return o.all.Write(p)
}

// text is what was written so far, and a channel that is closed when there is more.
func (o *output) text() (all string, more <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String(), o.more
}

func (o *output) tail(size int) string {
	all, _ := o.text()
	return all[max(0, len(all)-size):]
}

// until waits for a condition, looking each 10 ms.
func until(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-timer.C:
			t.Fatalf("not within %v: %s", limit, what)
		case <-tick.C:
		}
	}
}
