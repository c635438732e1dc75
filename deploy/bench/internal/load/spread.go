package load

import "slices"

// Spread is what repeats of a measurement gave.
type Spread struct {
	// Median lies between the least and the most.
	Median, Low, High float64
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
