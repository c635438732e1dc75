package human_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
)

const day = 24 * time.Hour

func TestSpan(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0ms", 350 * time.Millisecond: "350ms", 2 * time.Second: "2s", 4240 * time.Millisecond: "4.2s",
		9990 * time.Millisecond: "10s", 59600 * time.Millisecond: "1m", 90 * time.Second: "1m30s", 14*time.Minute + 50*time.Second: "15m",
		7199 * time.Second: "2h", 3*time.Hour + 20*time.Minute: "3h20m", 26 * time.Hour: "26h", 5*day + 7*time.Hour: "5d", -3 * time.Second: "-3s",
	} {
		if got := human.Span(d); got != want {
			t.Errorf("span of %s: %s, want %s", d, got, want)
		}
	}
}

func TestCountAndBytes(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", -999: "-999"} {
		if got := human.Count(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 5 << 20: "5.0 MiB", 3 << 40: "3.0 TiB"} {
		if got := human.Bytes(n); got != want {
			t.Errorf("%d bytes are %s, want %s", n, got, want)
		}
	}
}

func TestSince(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		0: "now", -500 * time.Millisecond: "now", 4 * time.Minute: "in 4m", -12 * time.Second: "12s ago", -49 * time.Hour: "2d ago",
	} {
		if got := human.Since(now, timestamppb.New(now.Add(d))); got != want {
			t.Errorf("%s off is %q, want %q", d, got, want)
		}
	}
	if got := human.Since(now, nil); got != "-" {
		t.Errorf("no time is %q", got)
	}
}

// TestPlain wants nothing of others' text to steer the terminal.
func TestPlain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"naïve ✓": "naïve ✓", "\x1b[31mred\r\n": "\uFFFD[31mred\uFFFD\uFFFD", "a\xffb": "a\uFFFDb", "x\u202ey": "x\uFFFDy", "\u009b2J": "\uFFFD2J",
	} {
		if got := human.Plain(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	if got := human.Brief("ääääää", 4); got != "äää…" {
		t.Errorf("cut to 4: %q", got)
	}
}
