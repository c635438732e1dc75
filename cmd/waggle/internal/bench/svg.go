package bench

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// WritePictures writes throughput.svg (throughput over batch) and latency.svg
// (latency over backlog) to dir; one without data is left out.
func (r *Result) WritePictures(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write pictures: %w", err)
	}
	for name, c := range map[string]*chart{"throughput.svg": r.throughputChart(), "latency.svg": r.latencyChart()} {
		if len(c.lines) == 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(c.svg()), 0o644); err != nil { //nolint:gosec // pictures are for everybody
			return fmt.Errorf("write pictures: %w", err)
		}
	}
	return nil
}

func (r *Result) throughputChart() *chart {
	c := &chart{title: "Fetched and reported tasks a second, over batch", x: "tasks a call", y: "tasks a second"}
	most := map[string]int{} // by line: the collectors of its first row, so that a line is of one number of collectors
	for i := range r.Throughput {
		t := &r.Throughput[i]
		name := t.Store + " " + t.Workload
		if n, ok := most[name]; ok && n != t.Collectors {
			continue
		}
		most[name] = t.Collectors
		c.add(name, float64(t.Batch), t.Work.Median)
	}
	for _, f := range r.Floor {
		c.add("floor", float64(f.Batch), f.Work.Median)
	}
	return c
}

func (r *Result) latencyChart() *chart {
	c := &chart{title: "Fetch of up to 100 tasks, in milliseconds, over backlog", x: "queued tasks", y: "ms"}
	for i := range r.Flat {
		f := &r.Flat[i]
		if f.Over == overBacklog {
			c.add(f.Store+" p50", float64(f.Backlog), f.Fetch.P50*1e3)
			c.add(f.Store+" p99", float64(f.Backlog), f.Fetch.P99*1e3)
		}
	}
	return c
}

// chart is a picture of lines, both axes logarithmic.
type chart struct {
	title, x, y string
	lines       []*line
}

type line struct {
	name   string
	points [][2]float64
}

func (c *chart) add(name string, x, y float64) {
	if x <= 0 || y <= 0 {
		return // neither has a logarithm
	}
	i := slices.IndexFunc(c.lines, func(l *line) bool { return l.name == name })
	if i < 0 {
		i = len(c.lines)
		c.lines = append(c.lines, &line{name: name})
	}
	c.lines[i].points = append(c.lines[i].points, [2]float64{x, y})
	slices.SortStableFunc(c.lines[i].points, func(a, b [2]float64) int { return cmp.Compare(a[0], b[0]) })
}

// The size of a picture, and of the frame that the lines are in.
const (
	chartWidth, chartHeight = 720.0, 400.0
	left, right             = 80.0, 560.0
	top, bottom             = 50.0, 340.0
)

func colors() []string {
	return []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"}
}

// decades are the powers of ten that enclose all values of an axis.
func (c *chart) decades(axis int) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, l := range c.lines {
		for _, p := range l.points {
			low, high = min(low, math.Floor(math.Log10(p[axis]))), max(high, math.Ceil(math.Log10(p[axis])))
		}
	}
	return low, max(high, low+1)
}

func (c *chart) svg() string {
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="12">`+"\n", chartWidth, chartHeight)
	fmt.Fprintf(&s, `<rect width="%g" height="%g" fill="#fff"/><text x="%g" y="28" font-size="15">%s</text>`+"\n", chartWidth, chartHeight, left, c.title)
	x0, x1 := c.decades(0)
	y0, y1 := c.decades(1)
	atX := func(v float64) float64 { return left + (math.Log10(v)-x0)/(x1-x0)*(right-left) }
	atY := func(v float64) float64 { return bottom - (math.Log10(v)-y0)/(y1-y0)*(bottom-top) }
	for d := x0; d <= x1; d++ {
		x := atX(math.Pow(10, d))
		fmt.Fprintf(&s, `<path d="M%.1f %gV%g" stroke="#ddd"/><text x="%.1f" y="%g" text-anchor="middle">%s</text>`+"\n", x, top, bottom, x, bottom+18, tick(d))
	}
	for d := y0; d <= y1; d++ {
		y := atY(math.Pow(10, d))
		fmt.Fprintf(&s, `<path d="M%g %.1fH%g" stroke="#ddd"/><text x="%g" y="%.1f" text-anchor="end">%s</text>`+"\n", left, y, right, left-8, y+4, tick(d))
	}
	fmt.Fprintf(&s, `<text x="%g" y="%g" text-anchor="middle">%s</text>`+"\n", (left+right)/2, bottom+42, c.x)
	fmt.Fprintf(&s, `<text transform="translate(22 %g) rotate(-90)" text-anchor="middle">%s</text>`+"\n", (top+bottom)/2, c.y)
	palette := colors()
	for i, l := range c.lines {
		slices.SortFunc(l.points, func(a, b [2]float64) int {
			if a[0] < b[0] {
				return -1
			}
			return 1
		})
		color := palette[i%len(palette)]
		var path []string
		for _, p := range l.points {
			path = append(path, fmt.Sprintf("%.1f,%.1f", atX(p[0]), atY(p[1])))
			fmt.Fprintf(&s, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", atX(p[0]), atY(p[1]), color)
		}
		y := top + 14 + 18*float64(i)
		fmt.Fprintf(&s, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(path, " "), color)
		fmt.Fprintf(&s, `<path d="M%g %gh18" stroke="%s" stroke-width="2"/><text x="%g" y="%g">%s</text>`+"\n", right+14, y-4, color, right+38, y, l.name)
	}
	s.WriteString("</svg>\n")
	return s.String()
}

// tick writes a power of ten.
func tick(d float64) string {
	if d < 0 {
		return fmt.Sprintf("%g", math.Pow(10, d))
	}
	return thousands(math.Pow(10, d))
}
