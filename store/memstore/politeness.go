package memstore

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// The arithmetic of dispatch/scheduling.md.

// rankOf orders tasks within a lane: priority first, then recurring tasks before
// those they led to. Lower goes first; 0 to 19.
func rankOf(priority int, recurring bool) int {
	rank := (bounds.MaxPriority - priority) * 2
	if !recurring {
		rank++
	}
	return rank
}

// lanePriority is the priority with which a lane competes in its queue and
// pool: the source's, shifted by how far the task at the lane's head is from
// [dispatch.DefaultPriority], within 0 to [bounds.MaxPriority]. So changing a source's priority
// moves its lanes and touches no task.
func lanePriority(source, head int) int {
	return min(max(source+head-dispatch.DefaultPriority, 0), bounds.MaxPriority)
}

// nextGrantAfterReport is the earliest next grant of a queue after a report:
// min_delay from the start of the request (from now when its duration is
// unknown, 0), and delay_factor times its duration from now, never before prev
// (P6).
func nextGrantAfterReport(now, prev time.Time, s dispatch.QueueSettings, fetch time.Duration) time.Time {
	next := latest(prev, now.Add(s.MinDelay-fetch))
	if fetch > 0 && s.DelayFactor > 0 {
		delay := time.Duration(s.DelayFactor * float64(fetch)).Truncate(time.Millisecond)
		next = latest(next, now.Add(min(delay, longestAdaptiveDelay(s))))
	}
	return next
}

// firstBlock is the first automatic block of a queue after a failure of its host that
// named no Retry-After; each further one doubles.
const firstBlock = 10 * time.Second

// blockAfter is the automatic block of a queue after its host failed. The first
// failure outside a block begins one, twice as long as the last one, or as long
// as the host asked for; failures inside a block only let it last as long as
// the host asks for.
func blockAfter(now, until time.Time, step int, s dispatch.QueueSettings, retryAfter time.Duration) (time.Time, int) {
	if until.After(now) {
		return latest(until, now.Add(min(retryAfter, s.MaxBlock))), step
	}
	step++
	length := retryAfter
	if length <= 0 {
		// 30 doublings of 10 s are 340 years; max_block is at most days.
		length = firstBlock << min(step-1, 30)
	}
	return now.Add(min(length, s.MaxBlock)), step
}

// longestDelay is the longest that next_grant can lie ahead by these settings.
// Further ahead, the store's clock was stepped back.
func longestDelay(s dispatch.QueueSettings) time.Duration {
	if s.DelayFactor > 0 {
		return max(s.MinDelay, longestAdaptiveDelay(s))
	}
	return s.MinDelay
}

func longestAdaptiveDelay(s dispatch.QueueSettings) time.Duration {
	if s.MaxDelay > 0 {
		return s.MaxDelay
	}
	return bounds.MaxMinDelay
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

const (
	// turnsPerOldest: every eighth pick of a queue in a pool, and of a lane in
	// a queue, goes to the longest wait whatever its priority.
	turnsPerOldest = 8
	// turnsPerLine: wants of many tasks, be it one or several together, are spread
	// over the queues that have no delay, but in turns of at least this part of
	// what they ask for: what a turn costs is then shared by several tasks.
	turnsPerLine = 10
)
