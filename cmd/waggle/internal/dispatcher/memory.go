package dispatcher

import (
	"context"
	"runtime"
	"runtime/debug"
	"time"
)

// collectEach is how often garbage is collected at least. Go waits for two minutes, and returns the memory of a peak of
// load to the system only after that. Buffers in pools take two collections.
const collectEach = 10 * time.Second

// collectGarbage collects garbage when that was not done for a while, until ctx ends.
func collectGarbage(ctx context.Context) {
	tick := time.NewTicker(collectEach / 10)
	defer tick.Stop()
	var last debug.GCStats
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if debug.ReadGCStats(&last); time.Since(last.LastGC) >= collectEach {
				runtime.GC()
			}
		}
	}
}
