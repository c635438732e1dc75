package cli

import "time"

// HeapFloor is what tests reach in for.
const HeapFloor = int64(heapFloor)

// TimeAt reads what --until takes.
func TimeAt(text string, now time.Time) (time.Time, error) {
	t, err := parseTime(text, now)
	return t.AsTime(), err
}
