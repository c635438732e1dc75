package cli

import (
	"runtime"
)

// heapFloor is how much a dispatcher or a collector allocates, at least, from one
// collection of garbage to the next.
const heapFloor = 32 << 20

// WithHeapFloor runs f with memory held that is never touched, and so costs
// none: Go's collector, which runs when the heap has doubled, takes it for a
// part of the heap. A dispatcher on Redis holds few MiB and makes garbage at up
// to 200 MB a second; without the floor a fifth of its processor time goes into
// collections. A web collector is much the same. What it costs is up to heapFloor
// of memory. Where GOGC or GOMEMLIMIT are set, the operator has decided otherwise.
func WithHeapFloor(env func(string) (string, bool), f func() error) error {
	if _, set := env("GOGC"); set {
		return f()
	}
	if _, set := env("GOMEMLIMIT"); set {
		return f()
	}
	floor := make([]byte, heapFloor)
	defer runtime.KeepAlive(floor)
	return f()
}
