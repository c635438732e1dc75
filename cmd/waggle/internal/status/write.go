package status

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
)

// The screen that the findings fit: what is wrong is to be seen at once. A pipe and JSON have all of it.
const (
	screenWidth  = 80
	screenHeight = 24
	watchHeight  = 21 // of it, beside what --watch writes

	kindWidth = 14
)

// report is what programs get.
type report struct {
	OK          bool      `json:"ok"`
	Findings    []finding `json:"findings"`
	Sources     int64     `json:"sources"`       // that were looked at
	SourcesOK   int64     `json:"sources_ok"`    // of them
	AllLookedAt bool      `json:"all_looked_at"` // at all sources that there are
}

// ok reports whether nothing is wrong; that nothing is due is no fault.
func (l *look) ok() bool {
	return !slices.ContainsFunc(l.findings, func(f finding) bool { return f.Kind != kindIdle })
}

func (l *look) report() report {
	return report{
		OK: l.ok(), Findings: append([]finding{}, l.findings...), Sources: l.found.GetSources(), SourcesOK: l.found.GetSourcesOk(),
		AllLookedAt: l.found.GetAllLookedAt(),
	}
}

// write writes a line or two for each finding: the kind, what and why, and the next command behind that or below.
func (l *look) write() {
	out := l.client.Out
	width := max(screenWidth, out.Width)
	brief, left := human.Brief, screenHeight-1
	switch {
	case out.Width == 0:
		brief, left = func(text string, _ int) string { return human.Plain(text) }, math.MaxInt
	case l.client.Watching:
		left = watchHeight - 1
	}
	fmt.Fprintln(out, brief(l.headline(), width))
	room := width - kindWidth
	over := func(f finding) int { return utf8.RuneCountInString(f.Text) + 2 + utf8.RuneCountInString(f.Next) - room }
	shown := l.findings
	if len(shown) > left {
		shown = shown[:left-1]
	}
	lines, long := len(shown), []int{} // of shown
	for i, f := range shown {
		if over(f) > 0 {
			lines++
			long = append(long, i)
		}
	}
	if len(shown) < len(l.findings) {
		lines++
	}
	// What loses least is shortened.
	slices.SortStableFunc(long, func(a, b int) int { return cmp.Compare(over(shown[a]), over(shown[b])) })
	short := make([]bool, len(shown))
	for _, i := range long[:min(len(long), max(lines-left, 0))] {
		short[i] = true
	}
	for i, f := range shown {
		kind := out.Paint(f.Kind) + strings.Repeat(" ", max(kindWidth-len(f.Kind), 1))
		text := human.Plain(f.Text)
		switch next := human.Plain(f.Next); {
		case over(f) <= 0:
			fmt.Fprintf(out, "%s%s%s%s\n", kind, text, strings.Repeat(" ", room-utf8.RuneCountInString(text)-utf8.RuneCountInString(next)), next)
		case short[i]:
			fmt.Fprintf(out, "%s%s  %s\n", kind, brief(text, max(room-2-utf8.RuneCountInString(next), 1)), next)
		default:
			fmt.Fprintf(out, "%s%s\n%*s%s\n", kind, brief(text, room), kindWidth, "", next)
		}
	}
	if more := len(l.findings) - len(shown); more > 0 {
		fmt.Fprintf(out, "and %d more; --output json has all\n", more)
	}
}

// headline is how it stands in a line.
func (l *look) headline() string {
	if l.stats == nil {
		return "nothing can be looked at"
	}
	of := " of "
	if !l.found.GetAllLookedAt() {
		of = " of the first " // there was no time for the others
	}
	text := fmt.Sprintf("%s%s%s OK; %s, %s", human.Count(l.found.GetSourcesOk()), of, human.Plural(l.found.GetSources(), "source"),
		human.Plural(l.stats.GetCollectors(), "collector"), human.Plural(l.stats.GetLeases(), "lease"))
	if !l.ok() {
		return human.Plural(len(l.findings), "finding") + "; " + text
	}
	if next := l.found.GetNextDueTime(); next != nil && len(l.findings) == 0 {
		text += "; next due " + human.Since(l.now, next)
	}
	return "all is well: " + text
}
