// Package duration writes lengths of time as people do, with days, and reads them.
package duration

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// Text writes d so that it reads back as the same: 1h30m, 30d, 250ms.
func Text(d time.Duration) string {
	days := ""
	if d >= day {
		days, d = fmt.Sprintf("%dd", d/day), d%day
	}
	if days != "" && d == 0 {
		return days
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return days + text
}

// Parse reads what [Text] writes: what [time.ParseDuration] takes, and whole days before it, at most 65,535.
func Parse(text string) (d time.Duration, err error) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		days, rest = "0", text
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err == nil && (rest != "" || !found) {
		d, err = time.ParseDuration(rest)
	}
	if err != nil {
		return 0, fmt.Errorf("%.80q is no duration; say 90s, 1h30m or 30d", text)
	}
	return time.Duration(n)*day + d, nil
}
