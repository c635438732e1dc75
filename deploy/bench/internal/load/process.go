package load

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// startLimit is how long a process has until it is ready.
const startLimit = 20 * time.Second

// process is a child process. It is killed with ctx, and when this process dies.
type process struct {
	cmd   *exec.Cmd
	log   string        // the file that it writes to
	ended chan struct{} // closed once it has ended
}

func start(ctx context.Context, dir, program string, env []string, args ...string) (*process, error) {
	log, err := os.Create(filepath.Join(dir, filepath.Base(program)+".log"))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	p := &process{cmd: exec.CommandContext(ctx, program, args...), log: log.Name(), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = log, log, env
	tie(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", program, err), log.Close())
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // it is killed, or awaitReady reports that it ended
		_ = log.Close()  // the process wrote it, not this one
	}()
	return p, nil
}

// awaitReady calls ready until it succeeds.
func (p *process) awaitReady(ctx context.Context, ready func() error) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
			continue
		case <-p.ended:
		case <-ctx.Done():
		}
		log, _ := os.ReadFile(p.log) // without it the error says less
		return fmt.Errorf("%s is not ready: %w\n%s", p.cmd.Path, err, log)
	}
}

// kill ends the process and waits until it is gone.
func (p *process) kill() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill() // fails only for a process that is gone
	<-p.ended
}

// cpu is the processor time that the process has used.
func (p *process) cpu() (time.Duration, error) {
	if p == nil {
		return 0, nil
	}
	return processorTime(p.cmd.Process.Pid)
}
