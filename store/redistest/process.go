package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// process is one run of redis-server.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once the process is gone and reaped
	err  error         // how it ended; read only after done
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
	for _, kv := range s.opts.config {
		lines = append(lines, kv[0]+" "+kv[1])
	}
	return strings.Join(lines, "\n") + "\n"
}

// run starts cmd from a thread of its own, which stays until the process is gone: the kernel ends a child with the
// thread that made it (see dieWithParent), not with the process.
func run(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// ready returns once the process answers PING, and with an error when it ends first or the time is up.
func (p *process) ready(socket string) error {
	limit := time.NewTimer(readyTimeout)
	defer limit.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ping(socket)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("redis-server ended: %w", p.err)
		case <-limit.C:
			return fmt.Errorf("redis-server does not answer within %v: %w", readyTimeout, err)
		case <-tick.C:
		}
	}
}

// kill ends the process by its id and waits for it. A process that is gone already is no error.
func (p *process) kill() error {
	err := p.cmd.Process.Signal(syscall.SIGKILL)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-p.done
	return err
}
