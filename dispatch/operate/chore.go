package operate

import (
	"context"
	"time"

	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// Chores are what a dispatcher does beside its sweeps for operators: it finishes what calls that were interrupted have left.
func (o *Operator) Chores() []engine.Chore {
	finished, forgotten := "", "" // the last source of the page that was looked at
	var pass *sourcePass
	return []engine.Chore{
		{Name: "finish changes of sources", Every: 10 * time.Second, Do: func(ctx context.Context) (more bool, err error) {
			finished, more, err = o.finishSources(ctx, finished)
			return more, err
		}},
		{Name: "look at the sources", Every: 10 * time.Second, Do: func(ctx context.Context) (more bool, err error) {
			pass, err = o.lookOn(ctx, pass)
			return pass != nil, err
		}},
		{Name: "place queues by the queue rules", Every: time.Minute, Do: func(ctx context.Context) (bool, error) {
			return false, o.syncRules(ctx)
		}},
		{Name: "forget holds that are over", Every: 10 * time.Minute, Do: func(ctx context.Context) (more bool, err error) {
			forgotten, err = o.forgetHeld(ctx, forgotten)
			return forgotten != "" && err == nil, err
		}},
	}
}
