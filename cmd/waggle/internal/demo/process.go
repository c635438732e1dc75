package demo

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/dispatch/duration"
)

// process is a collector of the demo: `waggle collect` in a process of its own.
type process struct {
	id  string
	cmd *exec.Cmd
	// stdin is the write end of its standard input: it stops when that closes, and so does not outlive the demo.
	stdin  io.Closer
	output bytes.Buffer  // what it wrote; read after ended
	ended  chan struct{} // closed when the process is gone
	err    error         // how it ended; read after ended
}

// startProcess starts a collector of the dispatcher at that address. It keeps its pages in dir.
func startProcess(program, id, server, dir string) (*process, error) {
	k := &process{id: id, ended: make(chan struct{})}
	k.cmd = exec.Command(program, "collect", "--id", id, "--server", server, "--slots", strconv.Itoa(slots), //nolint:noctx // it is ended by its standard input, or killed
		"--user-agent", id+" (waggle demo)", "--out", dir, "--allow-private", "--status", "0", "--log-level", "warn", "--stop-timeout", "5s", "--until-eof")
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, cli.EnvPrefix) {
			k.cmd.Env = append(k.cmd.Env, variable)
		}
	}
	k.cmd.Stdout, k.cmd.Stderr = &k.output, &k.output
	var err error
	if k.stdin, err = k.cmd.StdinPipe(); err == nil {
		err = k.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", id, err)
	}
	go func() {
		k.err = k.cmd.Wait()
		close(k.ended)
	}()
	return k, nil
}

// kill ends the process as kill -9 does, and waits until it is gone.
func (k *process) kill() error {
	if err := k.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", k.id, err)
	}
	<-k.ended
	return nil
}

// stop asks the process to end, and kills it if it takes too long.
func (k *process) stop() error {
	_ = k.stdin.Close() // it fails if the process has ended, which k.err explains
	select {
	case <-k.ended:
	case <-time.After(stopLimit):
		return errors.Join(fmt.Errorf("collector %s did not stop within %s", k.id, duration.Text(stopLimit)), k.kill())
	}
	if k.err != nil {
		return fmt.Errorf("collector %s: %w\n%s", k.id, k.err, k.output.String())
	}
	return nil
}

// gone reports whether the process has ended.
func (k *process) gone() bool {
	select {
	case <-k.ended:
		return true
	default:
		return false
	}
}
