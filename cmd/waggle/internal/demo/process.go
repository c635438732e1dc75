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
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
)

// process is a collector of the demo: `waggle collect` in a process of its own.
type process struct {
	id     string
	server string // the dispatcher's address
	out    string // directory for its pages

	cmd    *exec.Cmd
	stdin  io.Closer
	output bytes.Buffer  // what it wrote; read after ended
	ended  chan struct{} // closed when the process is gone
	err    error         // how it ended; read after ended
}

// start starts the collector. It ends when its standard input does, so it does not outlive the demo, however that ends.
func (k *process) start(program string, slots int) error {
	k.ended = make(chan struct{})
	k.cmd = exec.Command(program, "collect", "--id", k.id, "--server", k.server, "--slots", strconv.Itoa(slots), //nolint:noctx // it is ended by its standard input, or killed
		"--user-agent", k.id+" (waggle demo)", "--out", k.out, "--allow-private", "--status", "0", "--log-level", "warn", "--stop-timeout", "5s", "--until-eof")
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, cli.EnvPrefix) {
			k.cmd.Env = append(k.cmd.Env, variable)
		}
	}
	k.cmd.Stdout, k.cmd.Stderr = &k.output, &k.output
	// A collector stops when asked to; an interrupt at the terminal is for the demo alone.
	ownGroup(k.cmd)
	var err error
	if k.stdin, err = k.cmd.StdinPipe(); err == nil {
		err = k.cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", k.id, err)
	}
	go func() {
		k.err = k.cmd.Wait()
		close(k.ended)
	}()
	return nil
}

// kill ends the process as kill -9 does, and waits until it is gone.
func (k *process) kill() error {
	if err := k.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", k.id, err)
	}
	<-k.ended
	return nil
}

// stop asks the process to end, and kills it when it takes too long.
func (k *process) stop(limit time.Duration) error {
	// An error means that the process has gone already, which Wait reports.
	_ = k.stdin.Close()
	select {
	case <-k.ended:
	case <-time.After(limit):
		return errors.Join(fmt.Errorf("collector %s did not stop within %s", k.id, human.Duration(limit)), k.kill())
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
