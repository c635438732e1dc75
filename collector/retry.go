package collector

import (
	"math/rand/v2"
	"time"
)

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second
)

// retryDelay counts failures in a row and says how long to wait after each. The zero value is ready.
type retryDelay struct {
	failures int
}

// next is the wait after one more failure: doubling from 100 ms to 5 s, with jitter, and no less than the server asked.
func (b *retryDelay) next(err error) time.Duration { return b.nextWithin(maxBackoff, err) }

// nextWithin is next for a wait that doubles to less, unless the server asked for more.
func (b *retryDelay) nextWithin(most time.Duration, err error) time.Duration {
	delay := most
	if b.failures < 6 {
		delay = min(minBackoff<<b.failures, most)
	}
	b.failures++
	asked := askedDelay(err)
	return max(jitter(delay), asked+jitter(asked/10))
}

// repeated reports whether what failed last was a repetition itself.
func (b *retryDelay) repeated() bool { return b.failures > 1 }

func (b *retryDelay) reset() { b.failures = 0 }

// jitter is a time between half of d and d, so that collectors that failed together do not come back together.
func jitter(d time.Duration) time.Duration {
	if d <= 1 {
		return d
	}
	return d/2 + rand.N(d/2)
}
