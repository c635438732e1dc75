package redisstore_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/redisstore"
)

// TestSubmit_MemoryOfAPage holds that a page whose first task is large, and whose others
// are small, takes not as much memory as one of a hundred large ones. It is not parallel,
// since it looks at all that is allocated meanwhile.
func TestSubmit_MemoryOfAPage(t *testing.T) {
	items, page := make([]dispatch.Submission, bounds.MaxSubmissions), make([]int, bounds.MaxSubmissions)
	for i := range items {
		items[i] = dispatch.Submission{ID: dispatch.TaskID(fmt.Sprintf("1-%026d", i)), URL: "http://a.test/"}
		page[i] = i
	}
	items[0].Payload = make([]byte, 256<<10)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	texts := redisstore.ItemTexts(items, page)
	runtime.ReadMemStats(&after)
	if got, most := after.TotalAlloc-before.TotalAlloc, uint64(8<<20); got > most {
		t.Errorf("%d texts of a page took %d bytes, want at most %d", len(texts), got, most)
	}
}
