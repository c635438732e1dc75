package dispatch_test

import (
	"slices"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

var epoch = time.UnixMilli(1_800_000_000_000).UTC()

func TestSettingsNames(t *testing.T) {
	t.Parallel()
	for queue, want := range map[string][]string{
		"a.b.c:81":        {"a.b.c:81", "a.b.c", "*.b.c", "*.c", "*"},
		"b.c":             {"b.c", "*.c", "*"},
		"localhost":       {"localhost", "*"},
		"[2001:db8::1]:8": {"[2001:db8::1]:8", "2001:db8::1", "*"},
	} {
		if got := dispatch.SettingsNames(queue); !slices.Equal(got, want) {
			t.Errorf("SettingsNames(%q) = %q, want %q", queue, got, want)
		}
	}
}
