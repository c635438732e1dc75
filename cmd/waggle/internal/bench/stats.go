package bench

import (
	"math"
	"slices"
	"time"
)

// Sample is what repeats of one measurement gave.
type Sample struct {
	Median float64 `json:"median"`
	// Low and High are the smallest and the largest repeat.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// sampleOf sums values up; all 0 when there are none.
func sampleOf(values []float64) Sample {
	if len(values) == 0 {
		return Sample{}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Sample{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Low: sorted[0], High: sorted[n-1]}
}

// Latency is a distribution of times, in seconds.
type Latency struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50_seconds"`
	P99   float64 `json:"p99_seconds"`
	P999  float64 `json:"p999_seconds"`
	Max   float64 `json:"max_seconds"`
}

// latencyOf sums samples in nanoseconds up.
func latencyOf(samples []int64) Latency {
	if len(samples) == 0 {
		return Latency{}
	}
	sorted := slices.Sorted(slices.Values(samples))
	// The nearest rank: the least sample that at least q of all do not exceed.
	at := func(q float64) float64 {
		i := max(0, int(math.Ceil(q*float64(len(sorted))))-1)
		return time.Duration(sorted[i]).Seconds()
	}
	return Latency{Count: len(sorted), P50: at(0.50), P99: at(0.99), P999: at(0.999), Max: at(1)}
}
