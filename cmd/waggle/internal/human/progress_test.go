package human_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
)

// TestProgress wants what is done, the rate and the time left in one line that changes, below what is written meanwhile.
func TestProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var shows terminal
		p := human.ProgressOf(&shows, func(n int64) string { return human.Plural(n, "task") })
		want := func(lines ...string) {
			t.Helper()
			if got := strings.Join(shows.lines, "\n"); got != strings.Join(lines, "\n") {
				t.Errorf("shows\n%s\nwant\n%s", got, strings.Join(lines, "\n"))
			}
		}
		p.At("", 0, 0, 10_000)
		time.Sleep(2 * time.Second) // virtual
		p.At("", 1000, 1000, 10_000)
		want("1,000 tasks, 500 tasks/s, 10%, 18s left")
		p.At("", 2000, 2000, 10_000) // too soon
		if _, err := p.Write([]byte("line 7 is wrong\n")); err != nil {
			t.Fatal(err)
		}
		want("line 7 is wrong", "1,000 tasks, 500 tasks/s, 10%, 18s left")
		p.At("comparing", 10, 0, 0)
		time.Sleep(time.Second)
		p.At("comparing", 30, 0, 0)
		want("line 7 is wrong", "comparing, 30 tasks, 30 tasks/s")
		p.Show()
		want("line 7 is wrong")
	})
	var pipe strings.Builder
	p := human.NewProgress(&pipe, human.Bytes[int64])
	p.At("", 1, 1, 2)
	if p.Show(); pipe.String() != "" {
		t.Errorf("a pipe gets %q", pipe.String())
	}
}
