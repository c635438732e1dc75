package redis

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot is a clock that goes on while the machine is suspended, which that of package time does not on Linux.
func sinceBoot() time.Duration {
	var since unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &since) != nil {
		return time.Since(processStart)
	}
	return time.Duration(since.Nano())
}
