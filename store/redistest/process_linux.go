package redistest

import "syscall"

// dieWithParent makes the kernel kill the child when the test's process dies, also by SIGKILL or a timeout's panic,
// after which no cleanup runs.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
