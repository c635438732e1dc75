package collect

import (
	"time"

	"github.com/waggle-crawl/waggle/collector"
)

// What tests reach in for.
var (
	NewTally      = newTally
	TallyCounting = (*tally).counting
	MaxTallied    = maxTallied
)

// ViewOf is what the live view shows of a tally that has counted for so long.
func ViewOf(t *tally, took time.Duration, stats collector.Stats, state string) []string {
	counts := t.snapshot()
	return viewLines(&view{
		id: "paris-1", pools: []string{"default", "eu"}, servers: []string{"a:7070"}, up: took, now: sample{stats: stats, totals: counts},
		pace: paceOf(totals{}, counts, took), failing: t.failing(viewHosts), state: state,
	})
}
