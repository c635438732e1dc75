package engine

import "time"

const (
	// worthGathering is for how many fetches a claim was made whose like the next one
	// waits for: a claim costs the store as much as about so many, besides them.
	worthGathering = 4
	// longestGathering bounds that wait.
	longestGathering = time.Millisecond
	// worthBeside is for how many fetches a claim goes beside one under way, so that the
	// store need not wait for the dispatcher between the two. For fewer, what claims cost
	// by themselves outweighs that.
	worthBeside = 20
)

// crowd is the fetches that a claim was made for. Where many collectors ask for a task
// each, again and again, those that a claim has just served come back one after the
// other: the next claim is made once as many wait as the last one was made for, or as
// long after it as it took. So a store is asked for many at a time by those who keep it
// busy; a single fetch never waits for others.
type crowd struct {
	fetches int
	until   time.Time // when the next claim is made with fewer
}

func crowdOf(fetches int, began time.Time) crowd {
	now := time.Now()
	return crowd{fetches, now.Add(min(now.Sub(began), longestGathering))}
}

// gathers is until when a claim for so many fetches waits for more; zero: it does not.
func (c *crowd) gathers(waiting int) time.Time {
	if c.fetches < worthGathering || waiting >= c.fetches {
		return time.Time{}
	}
	return c.until
}
