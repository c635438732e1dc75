package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// readyTimeout is how long a server may take to answer PING, an AOF to load included.
const readyTimeout = 20 * time.Second

// process is one run of redis-server.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once the process is gone and reaped
	err  error         // how it ended; read only after done
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

// ping asks the server once whether it is up and has loaded its data.
func ping(socket string) (err error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	reply, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if reply != "+PONG\r\n" {
		return fmt.Errorf("PING answered %q", reply)
	}
	return nil
}
