package bench

import (
	"os/exec"
	"syscall"
)

// tie lets the command end with this process, even when that is killed, and
// keeps signals of the terminal from it: the controller ends it in order.
func tie(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
