// Package process runs the servers that benchmarks measure as child processes.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// startLimit is how long a process has until it is ready.
const startLimit = 20 * time.Second

// Process is a child process. It ends with the context of its command, and is killed when this process dies.
type Process struct {
	// Log is the file that it writes to.
	Log string

	cmd   *exec.Cmd
	ended chan struct{} // closed once it has ended
}

// Start starts a command made by exec.CommandContext. Its log is a file in dir.
func Start(dir string, cmd *exec.Cmd) (*Process, error) {
	name := filepath.Base(cmd.Path)
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{Log: log.Name(), cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = log, log
	tie(cmd)
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), log.Close())
	}
	go func() {
		defer close(p.ended)
		_ = cmd.Wait()  // it is stopped, or AwaitReady reports that it ended
		_ = log.Close() // the process wrote it, not this one
	}()
	return p, nil
}

// AwaitReady calls ready until it succeeds.
func (p *Process) AwaitReady(ctx context.Context, ready func() error) error {
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
		log, _ := os.ReadFile(p.Log) // without it the error says less
		return fmt.Errorf("%s is not ready: %w\n%s", p.cmd.Path, err, log)
	}
}

// Stop ends the process, as the command's Cancel does, and waits until it is gone. There may be no process.
func (p *Process) Stop() {
	if p == nil {
		return
	}
	_ = p.cmd.Cancel() // fails only for a process that is gone
	<-p.ended
}

// CPU is the processor time that the process has used, 0 without a process.
func (p *Process) CPU() (time.Duration, error) {
	if p == nil {
		return 0, nil
	}
	return processorTime(p.cmd.Process.Pid)
}

// Resident is the memory that the process has, in bytes.
func (p *Process) Resident() (bytes int, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of %s: %w", p.cmd.Path, err)
	}
	_, after, _ := strings.Cut(string(status), "\nVmRSS:")
	if _, err := fmt.Sscanf(after, "%d kB", &bytes); err != nil {
		return 0, fmt.Errorf("read the memory of %s: %w", p.cmd.Path, err)
	}
	return bytes << 10, nil
}
