package dispatch_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/waggle-crawl/waggle/dispatch"
)

// The ids of these identities are frozen: a release that changes one would
// forget every task it has ever seen.
func TestNewTaskID_frozen(t *testing.T) {
	t.Parallel()
	for id, want := range map[dispatch.Identity]dispatch.TaskID{
		{Scope: "a", Queue: "example.com", Key: "https://example.com/"}:    "1782-3ck6yp3rfdrcc2zqsvz67lfzue",
		{Scope: "scope:x", Queue: "b.example:8080", Key: "weather-berlin"}: "2709-ffwh5cvpiyrk6vmg4yagtwdkda",
	} {
		if got := dispatch.NewTaskID(id); got != want {
			t.Errorf("NewTaskID(%+v) = %q, want %q", id, got, want)
		}
	}
}

func TestNewTaskID_partsDoNotRunTogether(t *testing.T) {
	t.Parallel()
	a := dispatch.NewTaskID(dispatch.Identity{Scope: "ab", Queue: "q", Key: "c"})
	b := dispatch.NewTaskID(dispatch.Identity{Scope: "a", Queue: "q", Key: "bc"})
	if a == b {
		t.Errorf("different identities have one id, %q", a)
	}
}

func TestParseTaskID_readsWhatNewTaskIDMakes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		identity := dispatch.Identity{
			Scope: rapid.String().Draw(rt, "scope"), Queue: rapid.String().Draw(rt, "queue"), Key: rapid.String().Draw(rt, "key"),
		}
		id := dispatch.NewTaskID(identity)
		parsed, err := dispatch.ParseTaskID(string(id))
		if err != nil || parsed != id {
			rt.Fatalf("ParseTaskID(%q) = %q, %v", id, parsed, err)
		}
		if id.Slot() != dispatch.SlotOf(identity.Queue) {
			rt.Fatalf("slot of %q is %d, want %d", id, id.Slot(), dispatch.SlotOf(identity.Queue))
		}
	})
}

func TestParseTaskID_refuses(t *testing.T) {
	t.Parallel()
	good := strings.Repeat("a", 26)
	for _, bad := range []string{
		"", "-", good, "1-", "4096-" + good, "-1-" + good, "01-" + good, "1-" + good + "a", "1-" + good[1:],
		"1-" + strings.ToUpper(good), "1-" + good[:25] + "1", "x-" + good, "1_" + good,
	} {
		_, err := dispatch.ParseTaskID(bad)
		if field := (*dispatch.FieldError)(nil); !errors.As(err, &field) || field.Field != "task_id" || field.Value != bad || !strings.Contains(field.Limit, "26") {
			t.Errorf("ParseTaskID(%q): %v, want a FieldError", bad, err)
		}
	}
}

func TestShardOf_givesEachShardOneRange(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 3, 64, dispatch.Slots} {
		last := 0
		seen := map[int]int{}
		for slot := range dispatch.Slots {
			shard := dispatch.ShardOf(slot, shards)
			if shard < last || shard >= shards {
				t.Fatalf("of %d shards, slot %d has shard %d after %d", shards, slot, shard, last)
			}
			last = shard
			seen[shard]++
		}
		if len(seen) != shards {
			t.Errorf("%d of %d shards own a slot", len(seen), shards)
		}
	}
}

func TestParseLeaseToken(t *testing.T) {
	t.Parallel()
	token := dispatch.LeaseToken{Collector: "c-1", ClientToken: "f3a", Fence: 1761868800123456}
	parsed, err := dispatch.ParseLeaseToken(token.String())
	if err != nil || parsed != token {
		t.Errorf("ParseLeaseToken(%q) = %+v, %v", token, parsed, err)
	}
	for _, bad := range []string{"", "/", "a/b", "a/b/", "a/b/x", "a/b/0", "a/b/01", "a/b/-1", "/b/1", "a//1", "a/b/1/2", "a/b/1 "} {
		if _, err := dispatch.ParseLeaseToken(bad); !errors.Is(err, dispatch.ErrInvalid) {
			t.Errorf("ParseLeaseToken(%q): %v, want ErrInvalid", bad, err)
		}
	}
}
