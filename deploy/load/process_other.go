//go:build !linux

package load

import (
	"os/exec"
	"time"
)

// tie does nothing: not every system can.
func tie(*exec.Cmd) {}

// processorTime is not known.
func processorTime(int) (time.Duration, error) { return 0, nil }
