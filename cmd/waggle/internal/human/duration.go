package human

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Duration writes d so that it reads back as the same: 1h30m, 30d, 250ms.
func Duration(d time.Duration) string {
	if d == 0 {
		return "0s"
	}
	text := ""
	if days := d / day; days > 0 {
		text, d = fmt.Sprintf("%dd", days), d%day
		if d == 0 {
			return text
		}
	}
	rest := d.String()
	for _, zero := range []struct{ long, short string }{{"m0s", "m"}, {"h0m", "h"}} {
		if strings.HasSuffix(rest, zero.long) {
			rest = strings.TrimSuffix(rest, zero.long) + zero.short
		}
	}
	return text + rest
}

// ParseDuration reads what Duration writes: what [time.ParseDuration] takes, and whole
// days before it.
func ParseDuration(text string) (time.Duration, error) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		return parseClock(text, text)
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil {
		return 0, wrongDuration(text)
	}
	d := time.Duration(n) * day
	if rest == "" {
		return d, nil
	}
	more, err := parseClock(rest, text)
	return d + more, err
}

func parseClock(part, whole string) (time.Duration, error) {
	d, err := time.ParseDuration(part)
	if err != nil {
		return 0, wrongDuration(whole)
	}
	return d, nil
}

func wrongDuration(text string) error {
	return fmt.Errorf("%.80q is no duration; say 90s, 1h30m or 30d", text)
}
