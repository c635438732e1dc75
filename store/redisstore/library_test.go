package redisstore_test

import (
	"testing"

	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestOpen_OldLibraries opens a store where other builds left their function libraries: those of builds that no dispatcher
// uses any more go, and nothing else.
func TestOpen_OldLibraries(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	const old, used, foreign = "waggle_0123456789ab", "waggle_ba9876543210", "waggle_reports"
	for _, name := range []string{old, used, foreign} {
		code := "#!lua name=" + name + "\nredis.register_function('f_" + name + "', function() return 1 end)"
		if err := client.FunctionLoad(t.Context(), code).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Set(t.Context(), key.Prefix("waggle").Library(used), "", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds its own
		s := open(t, redisstore.Config{URL: server.URL()})
		if _, err := s.Now(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for name, there := range map[string]bool{old: false, used: true, foreign: true} {
		if err := client.FCall(t.Context(), "f_"+name, nil).Err(); (err == nil) != there {
			t.Errorf("library %s is there: %v, want %v", name, err, there)
		}
	}
}
