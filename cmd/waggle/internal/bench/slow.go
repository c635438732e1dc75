package bench

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// slowMillis is from when on a command is slow.
const slowMillis = 5

// mostSlow bounds how many slow commands Redis remembers.
const mostSlow = 100_000

// Slow is what was slow in Redis, by what it was.
type Slow struct {
	// What is the name of a script or a command of Redis, or what Redis did of its own
	// accord, by LATENCY's name for it, such as expire-cycle.
	What string `json:"what"`
	// Script tells the scripts, which dispatchers call.
	Script bool `json:"script"`
	// Count of those that took 5 ms and more, and the longest, in seconds.
	Count   int     `json:"count"`
	Longest float64 `json:"longest_seconds"`
}

// slowArgs has a redis-server note what is slow.
func slowArgs() []string {
	return []string{
		"--slowlog-log-slower-than", fmt.Sprint(slowMillis * 1000), "--slowlog-max-len", fmt.Sprint(mostSlow),
		"--latency-monitor-threshold", fmt.Sprint(slowMillis),
	}
}

// forgetSlow has the nodes forget what was slow till now.
func (r *privateRedis) forgetSlow(ctx context.Context) error {
	return r.each(func(c *redis.Client) error {
		if err := c.SlowLogReset(ctx).Err(); err != nil {
			return fmt.Errorf("reset SLOWLOG: %w", err)
		}
		if err := c.Do(ctx, "LATENCY", "RESET").Err(); err != nil {
			return fmt.Errorf("reset LATENCY: %w", err)
		}
		return nil
	})
}

// slow is what the nodes noted as slow, the longest first.
func (r *privateRedis) slow(ctx context.Context) ([]Slow, error) {
	found := map[string]*Slow{}
	note := func(one Slow) {
		if s := found[one.What]; s != nil {
			one.Count, one.Longest = one.Count+s.Count, max(one.Longest, s.Longest)
		}
		found[one.What] = &one
	}
	err := r.each(func(c *redis.Client) error {
		entries, err := c.SlowLogGet(ctx, mostSlow).Result()
		if err != nil {
			return fmt.Errorf("read SLOWLOG: %w", err)
		}
		for _, entry := range entries {
			note(slowCommand(entry))
		}
		events, err := c.Do(ctx, "LATENCY", "LATEST").Slice()
		if err != nil {
			return fmt.Errorf("read LATENCY: %w", err)
		}
		for _, event := range events {
			if one, ok := slowEvent(event); ok {
				note(one)
			}
		}
		return nil
	})
	all := make([]Slow, 0, len(found))
	for _, one := range found {
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b Slow) int { return cmp.Compare(b.Longest, a.Longest) })
	return all, err
}

// waited is how many seconds the nodes had no processor to run on.
func (r *privateRedis) waited() (seconds float64) {
	if r == nil {
		return 0
	}
	for _, node := range r.nodes {
		seconds += waitedFor(node.pid())
	}
	return seconds
}

// slowCommand is a line of SLOWLOG: a script, by its name, or a command of Redis.
func slowCommand(entry redis.SlowLog) Slow {
	one := Slow{Count: 1, Longest: entry.Duration.Seconds()}
	if len(entry.Args) > 0 {
		one.What = strings.ToUpper(entry.Args[0])
	}
	if one.What == "FCALL" && len(entry.Args) > 1 {
		one.What, one.Script = entry.Args[1], true
	}
	return one
}

// slowEvent is a line of LATENCY, which tells when something was slow last, and the
// longest; false for commands, of which SLOWLOG knows more.
func slowEvent(line any) (Slow, bool) {
	fields, _ := line.([]any)
	if len(fields) < 4 {
		return Slow{}, false
	}
	what, _ := fields[0].(string)
	millis, _ := fields[3].(int64)
	return Slow{What: what, Count: 1, Longest: float64(millis) / 1e3}, what != "command" && what != "fast-command"
}

// slowness tells of a row's scripts how many were slow, and the longest.
func (f *FlatRow) slowness() string {
	count, longest := 0, 0.0
	for _, one := range f.Slow {
		if one.Script {
			count, longest = count+one.Count, max(longest, one.Longest)
		}
	}
	return fmt.Sprintf("%d of %d, %s", count, f.Scripts, millis(longest))
}
