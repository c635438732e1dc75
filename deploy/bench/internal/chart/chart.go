// Package chart draws lines with two logarithmic axes as SVG.
package chart

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Chart is a picture.
type Chart struct {
	// Title stands above, X and Y name the axes.
	Title, X, Y string

	lines []*line
}

type line struct {
	name   string
	points [][2]float64 // in the order of x
}

// Add adds a point to the line with a name. Points without a logarithm are left out.
func (c *Chart) Add(name string, x, y float64) {
	if x <= 0 || y <= 0 {
		return
	}
	i := slices.IndexFunc(c.lines, func(l *line) bool { return l.name == name })
	if i < 0 {
		i = len(c.lines)
		c.lines = append(c.lines, &line{name: name})
	}
	c.lines[i].points = append(c.lines[i].points, [2]float64{x, y})
}

// The size of a picture, and of the frame that the lines are in.
const (
	width, height = 720.0, 400.0
	left, right   = 80.0, 560.0
	top, bottom   = 50.0, 340.0
)

// Write writes the picture to a file; without points it writes none.
func (c *Chart) Write(path string) error {
	if len(c.lines) == 0 {
		return nil
	}
	return os.WriteFile(path, []byte(c.svg()), 0o644) //nolint:gosec // pictures are for everybody
}

func (c *Chart) svg() string {
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&s, `<rect width="%g" height="%g" fill="#fff"/><text x="%g" y="28" font-size="15">%s</text>`+"\n", width, height, left, c.Title)
	x0, x1 := c.decades(0)
	y0, y1 := c.decades(1)
	atX := func(decade float64) float64 { return left + (decade-x0)/(x1-x0)*(right-left) }
	atY := func(decade float64) float64 { return bottom - (decade-y0)/(y1-y0)*(bottom-top) }
	for d := x0; d <= x1; d++ {
		fmt.Fprintf(&s, `<path d="M%.1f %gV%g" stroke="#ddd"/><text x="%.1f" y="%g" text-anchor="middle">%s</text>`+"\n", atX(d), top, bottom, atX(d), bottom+18, power(d))
	}
	for d := y0; d <= y1; d++ {
		fmt.Fprintf(&s, `<path d="M%g %.1fH%g" stroke="#ddd"/><text x="%g" y="%.1f" text-anchor="end">%s</text>`+"\n", left, atY(d), right, left-8, atY(d)+4, power(d))
	}
	fmt.Fprintf(&s, `<text x="%g" y="%g" text-anchor="middle">%s</text>`+"\n", (left+right)/2, bottom+42, c.X)
	fmt.Fprintf(&s, `<text transform="translate(22 %g) rotate(-90)" text-anchor="middle">%s</text>`+"\n", (top+bottom)/2, c.Y)
	colors := [...]string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"}
	for i, l := range c.lines {
		color := colors[i%len(colors)]
		var path []string
		for _, p := range l.points {
			at := fmt.Sprintf("%.1f,%.1f", atX(math.Log10(p[0])), atY(math.Log10(p[1])))
			path = append(path, at)
		}
		y := top + 14 + 18*float64(i)
		fmt.Fprintf(&s, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(path, " "), color)
		fmt.Fprintf(&s, `<path d="M%g %gh18" stroke="%s" stroke-width="2"/><text x="%g" y="%g">%s</text>`+"\n", right+14, y-4, color, right+38, y, l.name)
	}
	return s.String() + "</svg>\n"
}

// decades are the powers of ten that enclose all values of an axis.
func (c *Chart) decades(axis int) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, l := range c.lines {
		for _, p := range l.points {
			low, high = min(low, math.Floor(math.Log10(p[axis]))), max(high, math.Ceil(math.Log10(p[axis])))
		}
	}
	return low, max(high, low+1)
}

// power writes a power of ten.
func power(decade float64) string {
	text := strconv.FormatFloat(math.Pow(10, decade), 'f', -1, 64)
	for i := len(text) - 3; i > 0 && decade > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
