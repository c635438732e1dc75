package human

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const day = 24 * time.Hour

// Duration writes d so that it reads back as the same: 1h30m, 30d, 250ms.
func Duration(d time.Duration) string {
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

// ParseDuration reads what Duration writes: what [time.ParseDuration] takes, and whole days before it.
func ParseDuration(text string) (d time.Duration, err error) {
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

// Span writes about how long d is, in one unit or two: 350ms, 4.2s, 12m, 3h20m, 5d.
func Span(d time.Duration) string {
	switch hours := d.Round(time.Hour); {
	case d < 0:
		return "-" + Span(-d)
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 9950*time.Millisecond:
		return strings.TrimSuffix(strconv.FormatFloat(d.Seconds(), 'f', 1, 64), ".0") + "s"
	case d < 10*time.Minute:
		return Duration(d.Round(time.Second))
	case d < 10*time.Hour:
		return Duration(d.Round(time.Minute))
	case hours < 2*day:
		return fmt.Sprintf("%dh", hours/time.Hour)
	default:
		return fmt.Sprintf("%dd", d.Round(day)/day)
	}
}

// DurationOr writes a duration of a message, or what stands for its absence.
func DurationOr(d *durationpb.Duration, absent string) string {
	if d == nil {
		return absent
	}
	return Duration(d.AsDuration())
}

// Since writes when t was or will be, as seen from now: 12s ago, in 4m.
func Since(now time.Time, t *timestamppb.Timestamp) string {
	if t == nil {
		return None
	}
	d := t.AsTime().Sub(now)
	switch {
	case d.Abs() < time.Second:
		return "now"
	case d < 0:
		return Span(-d) + " ago"
	default:
		return "in " + Span(d)
	}
}

// Instant writes t for people who compare it with a log.
func Instant(t *timestamppb.Timestamp) string {
	if t == nil {
		return None
	}
	return t.AsTime().UTC().Format("2006-01-02 15:04:05Z")
}

// SinceAt writes an instant with how far off it is.
func SinceAt(now time.Time, t *timestamppb.Timestamp) string {
	if t == nil {
		return None
	}
	return fmt.Sprintf("%s (%s)", Since(now, t), Instant(t))
}
