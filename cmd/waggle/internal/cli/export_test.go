package cli

import "time"

// What tests reach in for.
var (
	VersionOf    = versionOf
	OperatorName = operatorName
	HeapFloor    = int64(heapFloor)
)

// TimeAt reads what --until takes.
func TimeAt(text string, now time.Time) (time.Time, error) {
	t, _, err := ParseTime(text, now)
	return t.AsTime(), err
}
