package load

import (
	"math"
	"slices"
	"time"
)

// Spread is what repeats of a measurement gave.
type Spread struct {
	Median float64 `json:"median"`
	// Low and High are the least and the most.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// SpreadOf is the spread of a value over repeats; all 0 without any.
func SpreadOf[T any](repeats []T, value func(T) float64) Spread {
	if len(repeats) == 0 {
		return Spread{}
	}
	values := make([]float64, len(repeats))
	for i, r := range repeats {
		values[i] = value(r)
	}
	slices.Sort(values)
	n := len(values)
	return Spread{Median: (values[(n-1)/2] + values[n/2]) / 2, Low: values[0], High: values[n-1]}
}

// Quantile is the least duration that at least the part q of all does not exceed; 0 without any.
func Quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}
