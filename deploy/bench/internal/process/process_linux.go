package process

import (
	"fmt"
	"os/exec"
	"syscall"
	"time"
	"unsafe"
)

// tie lets the kernel kill the command when this process dies, and keeps the signals of the terminal from it.
func tie(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
}

// processorTime is what a process has used: utime and stime of /proc/PID/stat, but in nanoseconds instead of ticks. It reads
// the process's clock, as clock_getcpuclockid(3) names it.
func processorTime(pid int) (time.Duration, error) {
	const sched = 2 // CPUCLOCK_SCHED
	var spec syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, uintptr(^pid<<3|sched), uintptr(unsafe.Pointer(&spec)), 0)
	if errno != 0 {
		return 0, fmt.Errorf("read processor time of process %d: %w", pid, errno)
	}
	return time.Duration(spec.Nano()), nil
}
