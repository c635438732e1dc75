package load

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tie lets the kernel kill the command when this process dies, and keeps the signals of the terminal from it.
func tie(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// ticksPerSecond is the unit of /proc/PID/stat (USER_HZ), the same on every Linux.
const ticksPerSecond = 100

// processorTime is what a process has used: utime and stime of /proc/PID/stat.
func processorTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	// The second field, the program's name in parentheses, may hold blanks.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("read processor time: %q has too few fields", stat)
	}
	user, err := strconv.Atoi(fields[11])
	system, failed := strconv.Atoi(fields[12])
	return time.Duration(user+system) * time.Second / ticksPerSecond, errors.Join(err, failed)
}
