package redisstore_test

import (
	"fmt"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/store/redisstore"
)

// TestStore_SourcesByID_OneTrip reads the sources of as many tasks as a fetch has in one
// round trip.
func TestStore_SourcesByID_OneTrip(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Server(t)
	s := open(t, redisstore.Config{URL: server.URL(), Prefix: prefix})
	ids := make([]string, engine.MaxFetchTasks)
	for i := range ids {
		ids[i] = fmt.Sprintf("s%d", i)
		if i%100 > 0 {
			continue // not there
		}
		if err := s.PutSource(t.Context(), &dispatch.Source{ID: ids[i], UID: ids[i], Spec: *dispatch.DefaultSpec(), Version: 1}, 0); err != nil {
			t.Fatal(err)
		}
	}
	var trips trips
	redisstore.AddHook(s, &trips)
	sources, err := s.SourcesByID(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	for i, source := range sources {
		if there := source != nil; there != (i%100 == 0) {
			t.Errorf("source %s: %+v", ids[i], source)
		}
	}
	if len(trips) != 1 {
		t.Errorf("%d sources took %d round trips, want 1", len(ids), len(trips))
	}
}
