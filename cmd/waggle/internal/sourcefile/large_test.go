package sourcefile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/sourcefile"
)

// The time of an import grows with the file, and no faster, whatever is broken in it.
func TestRead_brokenInManyPlaces(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]string{"comments without an end": "<!--&", "sections without an end": "<![CDATA[&", "comments": "a<!---->"} {
		file := "<opml><body>" + strings.Repeat(part, 1<<20/len(part))
		begin := time.Now()
		g := read(strings.NewReader(file), "-", sourcefile.OPML)
		if took := time.Since(begin); took > 30*time.Second {
			t.Errorf("%s: a file of 1 MiB took %v", name, took)
		}
		if g.err == nil || !strings.Contains(g.err.Error(), "line 1") {
			t.Errorf("%s: %v", name, g.err)
		}
	}
}

// References that XML does not know are counted, up to the limit on entries.
func TestRead_unknownReferences(t *testing.T) {
	t.Parallel()
	file := "<opml>\n" + strings.Repeat("&", 1_000_001)
	if g := read(strings.NewReader(file), "-", sourcefile.OPML); g.err == nil || !strings.Contains(g.err.Error(), "line 2: the file has more than 1000000 references") {
		t.Errorf("%v", g.err)
	}
}
