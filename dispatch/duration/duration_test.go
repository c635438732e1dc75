package duration_test

import (
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch/duration"
)

const day = 24 * time.Hour

func TestText_ReadsBack(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", 250 * time.Millisecond: "250ms", time.Second: "1s", 90 * time.Second: "1m30s", time.Hour: "1h", 90 * time.Minute: "1h30m",
		time.Hour + time.Second: "1h0m1s", 30 * day: "30d", 36 * time.Hour: "1d12h", day + time.Millisecond: "1d1ms", 20 * time.Minute: "20m",
	} {
		got := duration.Text(d)
		back, err := duration.Parse(got)
		if got != want || back != d || err != nil {
			t.Errorf("%s is %s, want %s, and reads back as %s: %v", d, got, want, back, err)
		}
	}
	for _, text := range []string{"", "d", "xd", "-1d", "1dx", "5", "1w", "99999d"} {
		if d, err := duration.Parse(text); err == nil {
			t.Errorf("%q reads as %s", text, d)
		}
	}
}
