//go:build unix

package demo

import (
	"os/exec"
	"syscall"
)

// ownGroup keeps signals of the terminal from reaching the command.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
