package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// However slow the patterns of a source are, a report with 1,000 links is settled, and only links over the limit are
// refused, by name.
func TestDispatcher_discover_slowPatterns(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		length, follows int
	}{"usual": {100, 1000}, "long": {2000, bounds.MaxPatternSteps / 2000 / 494}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
				w.Unhurried()
				w.Create("s", func(s *dispatch.SourceSpec) {
					s.Seeds = dispatchtest.Seeds("http://a.example/")
					s.Follow = &dispatch.Follow{Exclude: []string{`([a-z]?){123}[A-Z]`}}
				})
				items := make([]dispatch.DiscoveredItem, engine.MaxDiscovered)
				for i := range items {
					url := fmt.Sprintf("http://a.example/%d/", i)
					items[i].URL = url + strings.Repeat("a", test.length-len(url))
				}
				follows := 0
				for i, d := range w.Succeed(w.TakeOne(), items...).Discovered {
					switch {
					case d.Code == engine.DiscoverCreated:
						follows++
					case d.Code != engine.DiscoverInvalid || !strings.Contains(d.Message, fmt.Sprint(bounds.MaxPatternSteps)):
						t.Fatalf("link %d: %+v", i, d)
					}
				}
				if follows != test.follows {
					t.Errorf("%d links are followed, want %d", follows, test.follows)
				}
			})
		})
	}
}
