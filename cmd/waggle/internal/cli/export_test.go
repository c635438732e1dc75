package cli

import "time"

// What tests reach in for.
var (
	VersionOf = versionOf
	HeapFloor = int64(heapFloor)
)

// TimeAt reads what --until takes.
func TimeAt(text string, now time.Time) (time.Time, error) {
	t, err := parseTime(text, now)
	return t.AsTime(), err
}
