package cli_test

import (
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
)

func TestTimeVar(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2h": now.Add(2 * time.Hour), "1d": now.Add(24 * time.Hour), "2026-01-31T18:00:00Z": time.Date(2026, 1, 31, 18, 0, 0, 0, time.UTC),
		"2026-01-31 18:00:00+02:00": time.Date(2026, 1, 31, 16, 0, 0, 0, time.UTC),
	} {
		if got, err := cli.TimeAt(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q is %s, want %s: %v", text, got, want, err)
		}
	}
	paris := now.In(time.FixedZone("Paris", 3600))
	for text, want := range map[string]time.Time{
		"2026-01-31":       time.Date(2026, 1, 30, 23, 0, 0, 0, time.UTC),
		"2026-01-31 18:00": time.Date(2026, 1, 31, 17, 0, 0, 0, time.UTC), "2026-01-31T18:00:05": time.Date(2026, 1, 31, 17, 0, 5, 0, time.UTC),
	} {
		if got, err := cli.TimeAt(text, paris); err != nil || !got.Equal(want) {
			t.Errorf("%q in Paris is %s, want %s: %v", text, got, want, err)
		}
	}
	for _, text := range []string{"tomorrow", "-2h", "2026-01-32", "18:00"} {
		if got, err := cli.TimeAt(text, now); err == nil {
			t.Errorf("%q is %s, want an error", text, got)
		}
	}
}
