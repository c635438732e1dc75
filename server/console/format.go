package console

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// funcs are what the templates can say.
func (t *texts) funcs() template.FuncMap {
	return template.FuncMap{
		"t": t.say, "word": t.word, "count": t.count, "bytes": t.bytes, "when": t.when, "lasts": func(d *durationpb.Duration) string {
			if d == nil {
				return ""
			}
			return t.span(d.AsDuration())
		},
		"percent": func(part, of int64) int64 { return part * 100 / max(of, 1) },
		"page":    pageAddress,
		"lift":    liftAddress,
		"dict":    dict,
		"join":    strings.Join,
		"bars":    t.bars, "level": level, "statelevel": taskLevel, "collectorlevel": collectorLevel, "weburl": webURL,
	}
}

// dict makes a map of names and values, for templates that take more than one value.
func dict(pairs ...any) (map[string]any, error) {
	m := make(map[string]any, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("%v is no name", pairs[i])
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}

// pageAddress is the relative address of a page with parameters, names and values in turn. Those without a value are left out.
func pageAddress(name string, query ...string) (string, error) {
	if len(query)%2 != 0 {
		return "", fmt.Errorf("page %s: %d names and values", name, len(query))
	}
	var b strings.Builder
	b.WriteString(name)
	sep := byte('?')
	for i := 0; i < len(query); i += 2 {
		if query[i+1] == "" {
			continue
		}
		b.WriteByte(sep)
		b.WriteString(escapeQuery(query[i]) + "=" + escapeQuery(query[i+1]))
		sep = '&'
	}
	return b.String(), nil
}

// count is a number with its thousands apart. It is a text, which no script reads as a number that it has no room for.
func (t *texts) count(n any) string {
	text := fmt.Sprint(n)
	digits := strings.TrimPrefix(text, "-")
	var b strings.Builder
	b.WriteString(text[:len(text)-len(digits)])
	for i, digit := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(digit)
	}
	return b.String()
}

func (t *texts) bytes(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	units := []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	power := int(math.Log2(float64(n)) / 10)
	return fmt.Sprintf("%.1f %s", float64(n)/math.Pow(1024, float64(power)), units[power-1])
}

// span is a length of time in one or two units.
func (t *texts) span(d time.Duration) string {
	d = d.Abs()
	switch {
	case d < time.Second:
		return t.say("%d ms", d.Milliseconds())
	case d < time.Minute:
		return t.say("%d s", int(d.Seconds()))
	case d < time.Hour:
		return t.say("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return t.say("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	default:
		return t.say("%d days", int(d.Hours()/24))
	}
}

// when is an instant, relative; its title has the exact one, and the browser's reader can copy it.
func (t *texts) when(at *timestamppb.Timestamp) template.HTML {
	if at == nil {
		return ""
	}
	when, from := at.AsTime(), time.Until(at.AsTime())
	text := t.say("now")
	switch {
	case from >= time.Second:
		text = t.say("in %s", t.span(from))
	case from <= -time.Second:
		text = t.say("%s ago", t.span(from))
	}
	// Nothing of it is of the web: digits and words of the console.
	return template.HTML(`<time datetime="` + when.UTC().Format(time.RFC3339) + `" title="` + when.UTC().Format("2006-01-02 15:04:05 UTC") + `">` + //nolint:gosec // see above
		template.HTMLEscapeString(text) + `</time>`)
}
