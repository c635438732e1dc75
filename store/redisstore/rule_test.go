package redisstore_test

import (
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// A change of a rule costs a script in each shard, however many rules there are: also where
// another rule has filed the settings, and none of them change.
func TestStore_PutRule_Cost(t *testing.T) {
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
	trips := newTrips()
	redisstore.AddHook(s, trips)
	if _, err := s.PutRule(t.Context(), "a.example", nil, version); err != nil {
		t.Fatal(err)
	}
	if want := s.Shards(); trips.sent != want {
		t.Errorf("%d commands, want %d: one in each shard", trips.sent, want)
	}
}
