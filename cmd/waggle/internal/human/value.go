// Package human writes values for people: counts, spans of time, tables, and lines of a terminal that change.
package human

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waggle-crawl/waggle/dispatch/canonical"
	"github.com/waggle-crawl/waggle/dispatch/duration"
)

// None stands where there is nothing to show.
const None = "-"

// Count writes n with its thousands apart: 12,345.
func Count[N ~int | ~int32 | ~int64 | ~uint64](n N) string {
	text := strconv.FormatInt(int64(n), 10)
	for at := len(text) - 3; at > 0 && text[at-1] != '-'; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// Plural writes n things: "1 task", "2 tasks".
func Plural[N ~int | ~int32 | ~int64 | ~uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return Count(n) + " " + thing + "s"
}

// PluralVerb writes what n things do: "1 task was", "2 tasks were".
func PluralVerb(n int, thing, one, many string) string {
	if n == 1 {
		many = one
	}
	return Plural(n, thing) + " " + many
}

// Bytes writes a size for people: 1.5 MiB.
func Bytes[N ~int | ~int64](n N) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	size, unit := float64(n)/1024, 0
	for size >= 1024 && unit < 3 {
		size /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %s", size, [...]string{"KiB", "MiB", "GiB", "TiB"}[unit])
}

// Word is the last part of an enum's name: TASK_STATE_READY is READY.
func Word(value fmt.Stringer, prefix string) string {
	text := value.String()
	if text == prefix+"UNSPECIFIED" {
		return None
	}
	return strings.TrimPrefix(text, prefix)
}

// Plain makes text of others safe to print: no control characters, no bytes that are not text, no credentials in URLs.
func Plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(canonical.Redacted(text), string(utf8.RuneError)))
}

// Brief is plain text that is cut to width, visibly.
func Brief(text string, width int) string {
	text = Plain(text)
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

// Middle is plain text that is cut to width in the middle, visibly: what begins or ends alike stays different.
func Middle(text string, width int) string {
	runes := []rune(Plain(text))
	if len(runes) <= width {
		return string(runes)
	}
	return string(runes[:width/2]) + "…" + string(runes[len(runes)-(width-1)/2:])
}

// Pairs writes key=value of each, sorted.
func Pairs(m map[string]string) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		list = append(list, key+"="+m[key])
	}
	return strings.Join(list, " ")
}

// Named writes n things by the first of them: "1 source (a)", "3 sources (a and 2 more)".
func Named(n int, thing, first string) string {
	text := Plural(n, thing) + " (" + Plain(first)
	if n > 1 {
		text += " and " + Count(n-1) + " more"
	}
	return text + ")"
}

// Phrases are the parts of a line.
type Phrases []string

// AddIf adds a part by a format if it is to be shown.
func (p *Phrases) AddIf(shown bool, format string, args ...any) {
	if shown {
		*p = append(*p, fmt.Sprintf(format, args...))
	}
}

// Text is the line.
func (p Phrases) Text() string { return strings.Join(p, ", ") }

const day = 24 * time.Hour

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
		return duration.Text(d.Round(time.Second))
	case d < 10*time.Hour:
		return duration.Text(d.Round(time.Minute))
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
	return duration.Text(d.AsDuration())
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

// Timestamp is t in a message; the zero time is none.
func Timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
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
