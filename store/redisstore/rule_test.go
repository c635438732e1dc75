package redisstore_test

import (
	"slices"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// A change of a rule costs a script in each shard, however many rules there are: also where
// another rule has filed the settings, and none of them change.
func TestStore_PutRule_trips(t *testing.T) {
	t.Parallel()
	s := open(t, redisstore.Config{URL: redistest.Start(t).URL(), Shards: 4})
	var version int64
	for _, pattern := range []string{"a.example", "b.example"} {
		rule := dispatch.QueueRule{Pattern: pattern, Queue: "both", Settings: dispatch.DefaultQueueSettings()}
		var err error
		if version, err = s.PutRule(t.Context(), rule.Pattern, &rule, version); err != nil {
			t.Fatal(err)
		}
	}
	var trips trips
	redisstore.AddHook(s, &trips)
	if _, err := s.PutRule(t.Context(), "a.example", nil, version); err != nil {
		t.Fatal(err)
	}
	if want := []int{1, 3}; !slices.Equal(trips, want) {
		t.Errorf("round trips of %v commands, want %v: shard 0, and the others", trips, want)
	}
}
