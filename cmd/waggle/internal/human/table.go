package human

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Table collects rows and writes them with their columns aligned. In a pipe every cell is whole. On a terminal a table is
// made to fit:
//
//  1. The columns with a rank are dropped: those with nothing in them but their usual value, and then the lowest rank, until
//     the rest fits with its long cells at their least width.
//  2. The room that is left goes to the long cells, the same width for each; what is longer ends with "…".
//
// Columns without a rank are never dropped, and without a least width never shortened. All of it is in a pipe, in `get` and
// in --output json.
type Table struct {
	columns []column
	Rows    [][]string
}

// column is a column and what may become of it on a narrow terminal.
type column struct {
	name  string
	right bool
	rank  int // 0: it is never dropped; else the lowest goes first
	least int // 0: its cells are never shortened
	usual string
	width int // of its longest cell
}

// NewTable makes a table. A column is written [>]NAME[/RANK][~LEAST][=USUAL]: > aligns it right, RANK is when it is dropped,
// LEAST how short its cells may become, USUAL a value that need not be shown.
func NewTable(columns ...string) *Table {
	t := &Table{}
	for _, text := range columns {
		text, usual, _ := strings.Cut(text, "=")
		text, least, _ := strings.Cut(text, "~")
		text, rank, _ := strings.Cut(text, "/")
		name, right := strings.CutPrefix(text, ">")
		c := column{name: name, right: right, usual: usual}
		c.rank, _ = strconv.Atoi(rank)   // none: 0
		c.least, _ = strconv.Atoi(least) // none: 0
		t.columns = append(t.columns, c)
	}
	return t
}

// Row adds a row, as plain text.
func (t *Table) Row(cells ...string) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = cmp.Or(Plain(cell), None)
	}
	t.Rows = append(t.Rows, row)
}

// gap stands between two columns.
const gap = "  "

// Write writes the table; without rows it writes a line instead, unless that is empty.
func (t *Table) Write(out io.Writer, instead string) {
	if len(t.Rows) == 0 {
		if instead != "" {
			fmt.Fprintln(out, instead)
		}
		return
	}
	head := make([]string, len(t.columns))
	for i := range t.columns {
		head[i] = t.columns[i].name
	}
	rows := append([][]string{head}, t.Rows...)
	for i := range t.columns {
		c := &t.columns[i]
		for _, row := range rows {
			c.width = max(c.width, utf8.RuneCountInString(row[i]))
		}
	}
	to, _ := out.(Output)
	shown, longest := t.fit(to.Width)
	for at, row := range rows {
		var cells []string
		for _, i := range shown {
			width := t.columns[i].shown(longest)
			cell := Brief(row[i], width)
			if !t.columns[i].right {
				width = -width
			}
			padded := fmt.Sprintf("%*s", width, cell)
			if at > 0 {
				padded = strings.Replace(padded, cell, to.Paint(cell), 1)
			}
			cells = append(cells, padded)
		}
		fmt.Fprintln(out, strings.TrimRight(strings.Join(cells, gap), " "))
	}
}

// shown is how wide the column is where long cells have this width.
func (c *column) shown(longest int) int {
	if c.least == 0 {
		return c.width
	}
	return min(c.width, max(c.least, longest, utf8.RuneCountInString(c.name)))
}

// fit chooses the columns that a terminal has room for, and how long their long cells may be. A width of 0 has room for all.
func (t *Table) fit(width int) (shown []int, longest int) {
	most := 0
	for i, c := range t.columns {
		if c.rank == 0 || width == 0 || slices.ContainsFunc(t.Rows, func(row []string) bool { return row[i] != None && row[i] != c.usual }) {
			shown, most = append(shown, i), max(most, c.width)
		}
	}
	if width == 0 {
		return shown, most
	}
	takes := func(longest int) int {
		sum := len(gap) * (len(shown) - 1)
		for _, i := range shown {
			sum += t.columns[i].shown(longest)
		}
		return sum
	}
	for takes(0) > width {
		drop := -1
		for at, i := range shown {
			if rank := t.columns[i].rank; rank != 0 && (drop < 0 || rank < t.columns[shown[drop]].rank) {
				drop = at
			}
		}
		if drop < 0 {
			break
		}
		shown = slices.Delete(shown, drop, drop+1)
	}
	for longest < most && takes(longest+1) <= width {
		longest++
	}
	return shown, longest
}

// Sheet writes one thing: a line per property.
type Sheet struct {
	lines [][2]string
}

// Line adds a property; an empty value is left out.
func (s *Sheet) Line(name, value string) {
	if value != "" {
		s.lines = append(s.lines, [2]string{name, Plain(value)})
	}
}

// Linef adds a property by a format.
func (s *Sheet) Linef(name, format string, args ...any) { s.Line(name, fmt.Sprintf(format, args...)) }

// LineIf adds a property by a format if it is to be shown.
func (s *Sheet) LineIf(shown bool, name, format string, args ...any) {
	if shown {
		s.Linef(name, format, args...)
	}
}

// Write writes the sheet.
func (s *Sheet) Write(out io.Writer) {
	to, _ := out.(Output)
	width := 0
	for _, line := range s.lines {
		width = max(width, len(line[0]))
	}
	for _, line := range s.lines {
		fmt.Fprintf(out, "%-*s%s%s\n", width, line[0], gap, to.Paint(line[1]))
	}
}
