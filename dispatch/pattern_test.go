package dispatch_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// nestedPattern compiles to 7 MB. It has 541 bytes.
var nestedPattern = "(" + strings.Repeat("(a?b?c?d?e?){1,10}", 29) + "x{1,9}){1,10}" + "$$$$"

// usualPatterns are those of a large news site, and more than most sources have.
func usualPatterns() []string {
	patterns := []string{
		`^https?://[^/]+/wiki/[^:?#]*$`, `/news/\d+/.*\.html`, `\.(jpe?g|png|gif|pdf|zip|mp4|webp)$`, `[?&](utm_[a-z]+|fbclid)=`,
		`/(19|20)\d\d/\d\d?/\d\d?/`, `(?i)login|logout|signin|cart|checkout`, `/(tag|author|feed|search|print)/`,
	}
	for i := range 40 {
		patterns = append(patterns, fmt.Sprintf(`/section-%d/`, i))
	}
	return patterns
}

// allocated is how much memory f asks for.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Patterns that take too much are refused by name and limit, before they are compiled.
func TestFollow_Compile_limits(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	for name, test := range map[string]struct {
		rule  dispatch.Follow
		field string
		says  []string
	}{
		"nested counts": {dispatch.Follow{Include: slices.Repeat([]string{nestedPattern}, 100)}, "follow.include[0]", []string{"instructions", fmt.Sprint(bounds.MaxPatternSize)}},
		"many":          {dispatch.Follow{Exclude: slices.Repeat([]string{`/xy{400}/`}, 30)}, "follow.exclude[8]", []string{"instructions", fmt.Sprint(bounds.MaxPatternSize)}},
		"slow":          {dispatch.Follow{Include: []string{`ok`}, Exclude: []string{`(a?){200}`}}, "follow.exclude[0]", []string{"steps", fmt.Sprint(bounds.MaxPatternCost)}},
		"slow together": {dispatch.Follow{Include: slices.Repeat([]string{`[a-z]{1,80}z`}, 5)}, "follow.include[3]", []string{"steps", fmt.Sprint(bounds.MaxPatternCost)}},
	} {
		spec := dispatch.SourceSpec{Follow: &test.rule}
		spec.FillDefaults()
		var err error
		if got := allocated(func() { err = spec.Validate() }); got > 8<<20 {
			t.Errorf("%s: to refuse it took %d bytes", name, got)
		}
		var field *dispatch.FieldError
		if !errors.As(err, &field) || field.Field != test.field {
			t.Errorf("%s: %v, want an error of %s", name, err, test.field)
			continue
		}
		for _, word := range test.says {
			if !strings.Contains(field.Limit, word) {
				t.Errorf("%s: %q does not name %q", name, field.Limit, word)
			}
		}
	}
	if p, err := (&dispatch.Follow{Include: usualPatterns()}).Compile(); err != nil || p.Cost > bounds.MaxPatternCost/2 {
		t.Errorf("usual patterns: %v, cost %d", err, p.Cost)
	}
}

// BenchmarkPatterns is the time of one report: 1,000 links of 100 bytes, and the slowest patterns that a source may have.
func BenchmarkPatterns(b *testing.B) {
	p, err := (&dispatch.Follow{Exclude: []string{`([a-z]?){123}[A-Z]`}}).Compile()
	if err != nil {
		b.Fatal(err)
	}
	url := "http://a.example/" + strings.Repeat("a", 83)
	began := time.Now()
	for range b.N {
		for range 1000 {
			p.Exclude[0].MatchString(url)
		}
	}
	steps := float64(1000 * len(url) * p.Cost * b.N)
	b.ReportMetric(float64(time.Since(began))/steps, "ns/step")
}
