// Package ms has instants and durations in whole milliseconds, as items keep them; 0 is no instant.
package ms

import (
	"math"
	"time"
)

// Micros is an instant as groups have it.
func Micros(now time.Time) uint64 { return uint64(max(now.UnixMicro(), 0)) }

// Of is the instant in milliseconds.
func Of(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// Time is the instant of those milliseconds.
func Time(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// Span is the duration in milliseconds.
func Span(d time.Duration) int64 { return d.Milliseconds() }

// Duration is that of those milliseconds.
func Duration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// Infinite is later than any instant: somebody has to lift a gate.
const Infinite = math.MaxInt64
