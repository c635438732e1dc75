package redis

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// processStart is an instant with a reading of the monotonic clock.
var processStart = time.Now()

const (
	// slewLimit is the largest difference that the clock makes up for without a step.
	slewLimit = time.Second
	// slewPart of the time that passes is how fast it does.
	slewPart = 10
)

// clock is that of the Redis that has shard 0, read with each renewal, and by a candidate with each look. Between two readings this machine's clock goes on, and
// small differences are made up for slowly: so time never goes back but by a step.
type clock struct {
	log *zap.Logger

	mu     sync.Mutex // guards what follows
	known  bool
	since  time.Duration // of the process, when offset was right
	offset time.Duration // from the start of the process to Redis' time in nanoseconds since 1970
	target time.Duration // what offset is to become
}

// now is the time.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return time.Now()
	}
	up := time.Since(processStart)
	return time.Unix(0, int64(up+c.at(up)))
}

// at is the offset at a time of the process.
func (c *clock) at(up time.Duration) time.Duration {
	most := (up - c.since) / slewPart
	return c.offset + max(-most, min(c.target-c.offset, most))
}

// read takes what Redis' clock said, in microseconds, some time between two instants. owns: leases and delays are counted by this clock, so
// a small difference is made up for slowly. A candidate has the right time at once: it may own the store at the next instant.
func (c *clock) read(sent, received time.Time, micros uint64, owns bool) {
	middle := sent.Sub(processStart) + received.Sub(sent)/2
	found := time.Duration(micros)*time.Microsecond - middle
	c.mu.Lock()
	defer c.mu.Unlock()
	up := time.Since(processStart)
	has := c.at(up)
	if exact := received.Sub(sent) / 2; c.known { // a slow answer says little: what it allows stays as it is
		found = max(found-exact, min(has, found+exact))
	}
	step := found - has
	switch {
	case !owns:
		c.offset = found
	case !c.known || step.Abs() > slewLimit:
		if c.known {
			c.log.Warn("the clock of Redis was stepped, or another server with another clock has taken over", zap.Duration("step", step))
		}
		c.offset = found
	default:
		c.offset = has
	}
	c.known, c.since, c.target = true, up, found
}
