//go:build !linux

package load

import (
	"os/exec"
	"time"
)

// tie does nothing: not every system can.
func tie(*exec.Cmd) {}

// cpu is not known.
func (*process) cpu() (time.Duration, error) { return 0, nil }
