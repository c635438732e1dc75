package dispatcher

import (
	"context"
	"runtime"
	"time"
)

// collectEach is how often garbage is collected at least. Go waits for two minutes, and returns the memory of a peak of
// load to the system only after that.
const collectEach = 30 * time.Second

// collectGarbage collects garbage again and again, until ctx ends.
func collectGarbage(ctx context.Context) {
	tick := time.NewTicker(collectEach)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			runtime.GC()
		}
	}
}
