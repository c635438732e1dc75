package warc_test

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/collector/web/warc"
)

// A file ends by its age; what was kept long enough is removed, and its payload is stored anew, not referred to.
func TestSink_Keep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		sink := openSink(t, warc.Config{Dir: dir, CollectorID: "a", MaxFileAge: time.Hour, Keep: 24 * time.Hour})
		store := func() {
			t.Helper()
			page, content := pageOf("http://a.example/p", "hello")
			page.FetchTime, content.Exchanges[0].Time = time.Now(), time.Now()
			put(t, sink, page, content)
		}
		store()
		time.Sleep(2 * time.Hour)
		finished := ls(t, dir, ".warc.gz")
		if len(finished) != 1 || !sink.Has(sha([]byte("hello"))) {
			t.Fatalf("finished after two hours: %v", finished)
		}
		store()                                                                 // refers to the first
		if err := os.Chtimes(finished[0], time.Now(), time.Now()); err != nil { // files have the time of the machine: set that of here
			t.Fatal(err)
		}
		time.Sleep(25 * time.Hour)
		if sink.Has(sha([]byte("hello"))) {
			t.Error("the body is there after a day")
		}
		if _, err := os.Stat(finished[0]); err == nil {
			t.Error("the file is there after a day")
		}
		store()
		shut(t, sink)
	})
	types := map[string]int{}
	for entry, err := range warc.ReadIndex(dir) {
		if err != nil {
			t.Fatal(err)
		}
		types[entry.Type]++
	}
	if types["response"] != 1 || types["revisit"] > 1 {
		t.Errorf("entries that are left: %v", types)
	}
}
