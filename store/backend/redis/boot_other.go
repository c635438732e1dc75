//go:build !linux

package redis

import "time"

// sinceBoot is a clock without steps. Where it stands still while the machine is suspended, an owner that wakes may answer for the
// rest of its term.
func sinceBoot() time.Duration { return time.Since(processStart) }
