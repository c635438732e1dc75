package redisstore_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestStore_EndSession_Bounded holds P10: however many leases an older session
// holds, one call reads about as many records as it returns.
func TestStore_EndSession_Bounded(t *testing.T) {
	t.Parallel()
	const held, limit, most = 1000, 50, 300
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	openRule(t, s)
	gate := sourceGate("a")
	submit(t, s, gate, submissions(&gate, "a.example", held)...)
	for range held / 100 {
		if grants := claim(t, s, want(100)); len(grants) != 100 {
			t.Fatalf("Claim granted %d tasks, not 100", len(grants))
		}
	}
	before := recordsRead(t, client)
	tasks, err := s.EndSession(t.Context(), 0, "collector", "another", limit)
	if err != nil || len(tasks) != limit {
		t.Fatalf("EndSession returned %d tasks and error %v, want %d", len(tasks), err, limit)
	}
	if n := recordsRead(t, client) - before; n > most {
		t.Errorf("EndSession of %d leases read %d records to return %d, want at most %d", held, n, limit, most)
	}
}

// TestStore_EndSession_ManyGrants ends a session that holds more grants than one step
// looks at, of which some hold next to nothing any more: one call finds all leases, and
// notes nothing more of the grants that were not there.
func TestStore_EndSession_ManyGrants(t *testing.T) {
	t.Parallel()
	const singles, grants, each = 300, 20, 30
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	openRule(t, s)
	gate := sourceGate("a")
	submit(t, s, gate, submissions(&gate, "a.example", singles+grants*each)...)
	held := map[dispatch.TaskID]bool{}
	for range singles {
		held[claimOne(t, s).Task.ID] = true
	}
	for range grants {
		granted := claim(t, s, want(each))
		for i := range granted[1:] {
			settle(t, s, done(&granted[1+i]))
		}
		held[granted[0].Task.ID] = true
	}
	key := key.Prefix("waggle").Shard(0).Held("collector")
	if err := client.HSet(t.Context(), key, "lost", 2, "lost/", packNote("session", "1-a 1-b"), "/gone", packNote("session", "1-c")).Err(); err != nil {
		t.Fatal(err)
	}
	tasks, err := s.EndSession(t.Context(), 0, "collector", "another", 1000)
	if err != nil {
		t.Fatalf("EndSession: %v", err)
	}
	for _, task := range tasks {
		delete(held, task.ID)
	}
	if len(held) > 0 || len(tasks) < singles+grants {
		t.Errorf("EndSession found %d tasks, and missed %d", len(tasks), len(held))
	}
	if n, err := client.HLen(t.Context(), key).Result(); n != singles+2*grants || err != nil {
		t.Errorf("%d fields are noted, %v, want %d", n, err, singles+2*grants)
	}
}

// TestStore_EndSession_Overtaken holds that the end of the sessions before one that is
// replaced on the way, by a session that has begun and holds tasks when it arrives, does
// nothing to that one.
func TestStore_EndSession_Overtaken(t *testing.T) {
	t.Parallel()
	const collector = "collector"
	server := redistest.Start(t)
	config := redisstore.Config{URL: server.URL(), Shards: 2}
	s, late := open(t, config), open(t, config)
	openRule(t, s)
	shard := 1 - dispatch.ShardOf(dispatch.SlotOf(collector), 2)
	gate := sourceGate("a")
	for i := range 20 {
		submit(t, s, gate, submissions(&gate, fmt.Sprintf("host-%d.example", i), 1)...)
	}
	begin := func(session string) dispatch.Poll {
		poll := dispatch.Poll{Collector: collector, Session: session, ClientToken: session, Call: session}
		if _, err := s.BeginPolls(t.Context(), []dispatch.Poll{poll}); err != nil {
			t.Fatalf("BeginPolls: %v", err)
		}
		return poll
	}
	claim := func(poll dispatch.Poll) int {
		reply, err := s.Claim(t.Context(), shard, pool, 0, []dispatch.Want{{Poll: poll, Max: 1}})
		if err != nil {
			t.Errorf("Claim: %v", err)
			return 0
		}
		return len(reply.Grants[0])
	}
	begin("s1")
	begin("s2")
	redisstore.AddHook(late, overtake(func() {
		poll := begin("s3")
		for shard := range 2 {
			if _, err := s.EndSession(t.Context(), shard, collector, "s3", 10); err != nil {
				t.Errorf("EndSession of the newest session: %v", err)
			}
		}
		if n := claim(poll); n != 1 {
			t.Errorf("the newest session is granted %d tasks, want 1", n)
		}
	}))
	if held, err := late.EndSession(t.Context(), shard, collector, "s2", 10); err != nil || len(held) != 0 {
		t.Errorf("%d tasks to end of the newest session, %v", len(held), err)
	}
	if n := claim(dispatch.Poll{Collector: collector, Session: "s3", ClientToken: "another", Call: "another"}); n != 1 {
		t.Errorf("then the newest session is granted %d tasks, want 1", n)
	}
}

// overtake is a hook that does something right before each script is sent.
type overtake func()

func (overtake) DialHook(next redis.DialHook) redis.DialHook { return next }

func (o overtake) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "fcall" {
			o()
		}
		return next(ctx, cmd)
	}
}

func (overtake) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// recordsRead is how often Redis was asked for a string.
func recordsRead(t *testing.T, client redis.Cmdable) int {
	t.Helper()
	text, err := client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatalf("INFO commandstats: %v", err)
	}
	found := regexp.MustCompile(`cmdstat_get:calls=(\d+)`).FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// packNote makes the note of a grant (lua/grant.lua).
func packNote(session, ids string) string {
	return string([]byte{byte(len(session))}) + session + strings.Repeat("\x00", 2+8+1) + string([]byte{byte(len(ids))}) + ids + "\x00\x00"
}
