package main_test

import (
	"encoding/json"
	"strings"
	"testing"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
)

func TestQueue_Rules(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	wantOutput(t, command(t, env, "queue", "rule", "list"), "no rules: every queue has the defaults, 1s apart, 1 at a time\n")
	wantOutput(t, command(t, env, "queue", "rule", "set", "*.example.com", "--min-delay", "200ms", "--max-in-flight", "4", "--reason", "agreed"), `
PATTERN        SETTINGS                                                        BY   SET  REASON
*.example.com  200ms apart, 4 at a time, blocked at most 1d  ada  AGO  agreed
`)
	command(t, env, "queue", "rule", "set", "shop.test", "--deny", "--by", "eve", "--max-block", "1h")
	wantOutput(t, command(t, env, "queue", "rule", "list"), `
PATTERN        SETTINGS                                                             BY   SET  REASON
*.example.com  200ms apart, 4 at a time, blocked at most 1d       ada  AGO  agreed
shop.test      1s apart, 1 at a time, blocked at most 1h, DENIED  eve  AGO  -
`)
	wantOutput(t, command(t, env, "queue", "rule", "get", "SHOP.test"), `
PATTERN    SETTINGS                                             BY   SET  REASON
shop.test  1s apart, 1 at a time, blocked at most 1h, DENIED  eve  AGO  -
`)
	wantFailure(t, command(t, env, "queue", "rule", "get", "a.shop.test"), waggle.ExitFailed, "no rule has the pattern a.shop.test", "queue rule list", "queue get HOST")
	command(t, env, "source", "create", "a")
	got := command(t, env, "task", "submit", "--source", "a", "https://shop.test/")
	wantFailure(t, got, waggle.ExitFailed, "1 task not submitted")
	if !strings.Contains(got.out, "denie") {
		t.Errorf("does not say that the queue is denied:\n%s", got.out)
	}
	wantOutput(t, command(t, env, "queue", "rule", "delete", "shop.test", "--lift"),
		"deleted the rule shop.test: 1s apart, 1 at a time, blocked at most 1h, DENIED\n")
	wantFailure(t, command(t, env, "queue", "rule", "delete", "shop.test"), waggle.ExitFailed, "queue rule not found", "queue rule list")
	wantFailure(t, command(t, env, "queue", "rule", "set", "Bad Host", "--max-in-flight", "0"), waggle.ExitUsage, "rule.pattern", "rule.max_in_flight")
}

// unknownA is what is said of a queue that was never seen.
const unknownA = "nothing is known of a queue a.example: no task is in it, and no rule names it"

func TestQueue_Block(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	wantOutput(t, command(t, env, "queue", "list"), "no queues: nothing waits, and nothing is blocked or paused\n")
	wantNoted(t, command(t, env, "queue", "get", "a.example"), unknownA, `
Queue       a.example (slot 1331)
Tasks       0 waiting, 0 leased
Settings    1s apart, 1 at a time, blocked at most 1d (by default, no rule matches)
Next grant  now
`)
	command(t, env, "source", "create", "s")
	command(t, env, "task", "submit", "--source", "s", "https://a.example/1", "https://a.example/2", "https://b.test/")
	wantOutput(t, command(t, env, "queue", "list"), `
QUEUE      WAITING  LEASED  AT MOST  DELAY  NEXT  HELD BY  RULE
a.example        2       0        1     1s   AGO  -        default
b.test           1       0        1     1s   AGO  -        default
`)
	wantOutput(t, command(t, env, "queue", "block", "a.example", "--until", "2h", "--reason", "they asked"), `
Queue       a.example (slot 1331)
Tasks       2 waiting, 0 leased
Pools       default
Settings    1s apart, 1 at a time, blocked at most 1d (by default, no rule matches)
Next grant  in 2h
Held by     BLOCKED by ada, now, opens in 2h: they asked
`)
	wantOutput(t, command(t, env, "queue", "list", "--suffix", "example"), `
QUEUE      WAITING  LEASED  AT MOST  DELAY   NEXT  HELD BY  RULE
a.example        2       0        1     1s  in 2h  BLOCKED  default
`)
	got := command(t, env, "queue", "unblock", "a.example")
	if got.code != waggle.ExitOK || !strings.Contains(got.out, "Next grant  now\n") || strings.Contains(got.out, "Held by") {
		t.Errorf("exit code %d, still held:\n%s%s", got.code, got.out, got.err)
	}
	wantOutput(t, command(t, env, "queue", "unblock", "a.example"), "\na.example was not blocked; nothing changed\n")
}

func TestQueue_Pause(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	wantOutput(t, command(t, env, "queue", "resume", "a.example"), "\na.example was not paused; nothing changed\n")
	wantNoted(t, command(t, env, "queue", "pause", "a.example", "--until", "2h", "--reason", "we move"), unknownA+"; the pause is kept for tasks that come", `
Queue       a.example (slot 1331)
Tasks       0 waiting, 0 leased
Settings    1s apart, 1 at a time, blocked at most 1d (by default, no rule matches)
Next grant  in 2h
Held by     PAUSED by ada, now, resumes in 2h: we move
`)
	wantOutput(t, command(t, env, "queue", "resume", "a.example"), `
Queue       a.example (slot 1331)
Tasks       0 waiting, 0 leased
Settings    1s apart, 1 at a time, blocked at most 1d (by default, no rule matches)
Next grant  now
`)
	wantNoted(t, command(t, env, "queue", "pause", "a.example"), unknownA+"; the pause is kept for tasks that come", `
Queue       a.example (slot 1331)
Tasks       0 waiting, 0 leased
Settings    1s apart, 1 at a time, blocked at most 1d (by default, no rule matches)
Next grant  held
Held by     PAUSED by ada, now
`)
	wantOutput(t, command(t, env, "queue", "list"), `
QUEUE      WAITING  LEASED  AT MOST  DELAY  NEXT  HELD BY  RULE
a.example        0       0        1     1s  held  PAUSED   default
`)
	command(t, env, "queue", "resume", "a.example")
	command(t, env, "queue", "rule", "set", "*", "--paused", "--reason", "stop")
	command(t, env, "source", "create", "s")
	command(t, env, "task", "submit", "--source", "s", "https://a.example/1")
	wantOutput(t, command(t, env, "queue", "resume", "a.example"), `
a.example was not paused; nothing changed
it is held by QUEUE_PAUSED by the rule *, by ada, now: stop
`)
	// The queue's own rule does not pause it, and is not said to.
	command(t, env, "queue", "rule", "set", "a.example", "--min-delay", "2s")
	wantOutput(t, command(t, env, "queue", "get", "a.example"), `
Queue       a.example (slot 1331)
Tasks       1 waiting, 0 leased
Pools       default
Settings    2s apart, 1 at a time, blocked at most 1d (by a.example); paused by the rule *
Next grant  held
Held by     QUEUE_PAUSED by the rule *, by ada, now: stop
`)
	wantOutput(t, command(t, env, "queue", "list"), `
QUEUE      WAITING  LEASED  AT MOST  DELAY  NEXT  HELD BY          RULE
a.example        1       0        1     2s  held  QUEUE_PAUSED(*)  a.example
`)
}

// TestOpened_JSON: programs hear whether there was something to open.
func TestOpened_JSON(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	for closing, opening := range map[string]string{"queue block": "queue unblock", "queue pause": "queue resume", "pool pause": "pool resume"} {
		command(t, env, append(strings.Fields(closing), "browser")...)
		for _, want := range []bool{true, false} {
			var reply struct {
				Changed     bool
				Queue, Pool struct{ Name string }
			}
			got := command(t, env, append(strings.Fields(opening), "browser", "--output", "json")...)
			if err := json.Unmarshal([]byte(got.out), &reply); err != nil || reply.Changed != want || reply.Queue.Name+reply.Pool.Name != "browser" {
				t.Errorf("%s: %v, changed %v, want %v:\n%s%s", opening, err, reply.Changed, want, got.out, got.err)
			}
		}
	}
}

// A queue of a paused pool is not granted from now.
func TestQueueList_pausedPool(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "source", "create", "s", "--seed", "https://a.example/")
	command(t, env, "pool", "pause", "default", "--reason", "upgrade")
	wantOutput(t, command(t, env, "queue", "list"), `
QUEUE      WAITING  LEASED  AT MOST  DELAY  NEXT  HELD BY      RULE
a.example        1       0        1     1s  held  POOL_PAUSED  default
`)
	if got := command(t, env, "source", "list"); !strings.Contains(got.out, "  POOL_PAUSED, NO_COLLECTOR\n") {
		t.Errorf("printed\n%s", got.out)
	}
	got := command(t, env, "queue", "get", "a.example")
	for _, part := range []string{"Pools       default (paused)\n", "Next grant  held\n", "Held by     POOL_PAUSED by ada, now: upgrade\n"} {
		if !strings.Contains(got.out, part) {
			t.Errorf("lacks %q:\n%s", part, got.out)
		}
	}
	command(t, env, "pool", "pause", "default", "--until", "2h")
	if got := command(t, env, "queue", "list"); !strings.Contains(got.out, "  in 2h  POOL_PAUSED  ") {
		t.Errorf("printed\n%s", got.out)
	}
}
