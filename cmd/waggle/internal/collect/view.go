package collect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
)

const (
	// paceWindow is how many samples back the view looks for its paces: ten seconds.
	paceWindow = 10

	// connectTime is how long a dispatcher may take for its first answer before people are told that none comes.
	connectTime = 3 * time.Second

	// viewHosts and viewCounts bound what a line of the view lists.
	viewHosts  = 5
	viewCounts = 8
)

// view is what the live view shows.
type view struct {
	id             string
	pools, servers []string
	up             time.Duration
	now            sample
	pace           pace
	failing        []hostFailures
	state          string
}

// viewLines writes the view.
func viewLines(v *view) []string {
	stats, totals := &v.now.stats, &v.now.totals
	lag := "-"
	if totals.begun > 0 {
		lag = human.Span(v.pace.lag)
	}
	lines := []string{
		strings.Repeat("─", 72),
		fmt.Sprintf("%-10s%s of %s, up %s", v.id, strings.Join(v.pools, ", "), strings.Join(v.servers, ", "), human.Span(v.up)),
		fmt.Sprintf("pages     %-12s %-13s slots  %d of %d busy   lag  %s",
			human.Count(stats.Succeeded), fmt.Sprintf("%.1f/s", v.pace.pages), stats.Running, stats.Slots, lag),
		fmt.Sprintf("bytes     %-12s %-13s failed %s   lost %s   released %s",
			human.Bytes(totals.bytes), human.Bytes(int64(v.pace.bytes))+"/s", human.Count(stats.Failed), human.Count(stats.Lost), human.Count(stats.Released)),
	}
	if len(totals.answers) > 0 {
		lines = append(lines, "answers   "+largestFirst(totals.answers))
	}
	if len(totals.reasons) > 0 {
		lines = append(lines, "failures  "+largestFirst(totals.reasons))
	}
	if len(v.failing) > 0 {
		var hosts []string
		for _, h := range v.failing {
			hosts = append(hosts, fmt.Sprintf("%s %s (%s)", human.Brief(h.host, 40), human.Count(h.count), h.last))
		}
		lines = append(lines, "failing   "+strings.Join(hosts, "   "))
	}
	if v.state != "" {
		lines = append(lines, v.state)
	}
	return lines
}

// largestFirst lists counts, the largest first.
func largestFirst[K cmp.Ordered](counts map[K]int64) string {
	keys := slices.SortedFunc(maps.Keys(counts), func(a, b K) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	var parts []string
	for i, key := range keys {
		if i == viewCounts {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, fmt.Sprintf("%v: %s", key, human.Count(counts[key])))
	}
	return strings.Join(parts, "   ")
}
