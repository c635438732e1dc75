package machine

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// until is the end of a gate: infinite if somebody has to lift it.
func until(t time.Time) int64 {
	if !t.Before(dispatch.Forever) {
		return ms.Infinite
	}
	return ms.Of(t)
}

// clone copies what a caller must not share with the store.
func clone[T any](v *T) *T {
	if v == nil {
		return nil
	}
	return new(*v)
}
