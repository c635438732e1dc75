// Package human writes values for people: counts, spans of time, tables, and lines of a terminal that change.
package human

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
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

// Plain makes text of others safe to print: no control characters, no bytes that are not text.
func Plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(text, string(utf8.RuneError)))
}

// Brief is plain text that is cut to width, visibly.
func Brief(text string, width int) string {
	text = Plain(text)
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
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

// AddIf adds a part by a format if it has to be told.
func (p *Phrases) AddIf(told bool, format string, args ...any) {
	if told {
		*p = append(*p, fmt.Sprintf(format, args...))
	}
}

// Text is the line.
func (p Phrases) Text() string { return strings.Join(p, ", ") }
