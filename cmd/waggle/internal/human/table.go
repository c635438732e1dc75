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
// made to fit, and no column is lost:
//
//  1. If it is too wide with long cells at their least width, some columns go below their row, each as NAME and value: all those
//     with nothing in them but their usual value, which is not written there, then the lowest rank. The first one stays.
//  2. The room that is left goes to the long cells, the same width for each. What is longer is shortened: ids in the middle,
//     texts at their end.
//
// Columns without a least width are never shortened.
type Table struct {
	columns []column
	Rows    [][]string
}

// column is a column and what may become of it on a narrow terminal.
type column struct {
	name  string
	right bool
	rank  int  // the lowest goes below first; of equal ones, the one on the right
	least int  // 0: its cells are never shortened
	isID  bool // its cells are shortened in the middle
	usual string
	width int // of its longest cell
}

// unranked is the rank of columns without one.
const unranked = 100

// NewTable makes a table. A column is written [>]NAME[/RANK][~LEAST or ^LEAST][=USUAL]: > aligns it right, RANK is when it goes below
// its row, LEAST how short its cells may become (^: they are ids), USUAL a value that need not be shown.
func NewTable(columns ...string) *Table {
	t := &Table{}
	for _, text := range columns {
		text, usual, _ := strings.Cut(text, "=")
		text, least, isID := strings.Cut(text, "^")
		if !isID {
			text, least, _ = strings.Cut(text, "~")
		}
		text, rank, _ := strings.Cut(text, "/")
		name, right := strings.CutPrefix(text, ">")
		c := column{name: name, right: right, isID: isID, usual: usual}
		c.rank, _ = strconv.Atoi(rank)   // none: 0
		c.least, _ = strconv.Atoi(least) // none: 0
		c.rank = cmp.Or(c.rank, unranked)
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
	shown, below, longest := t.fit(to.Width)
	for at, row := range rows {
		var cells []string
		for _, i := range shown {
			width, shorten := t.columns[i].shown(longest), Brief
			if t.columns[i].isID {
				shorten = Middle
			}
			cell := shorten(row[i], width)
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
		if at > 0 {
			t.writeBelow(to, row, below)
		}
	}
}

// writeBelow writes the cells of a row that have a line, or several, below it.
func (t *Table) writeBelow(out Output, row []string, columns []int) {
	line := ""
	for _, i := range columns {
		if row[i] == None || row[i] == t.columns[i].usual {
			continue
		}
		cell := gap + Brief(t.columns[i].name+" "+row[i], max(out.Width-len(gap), 1))
		if line != "" && utf8.RuneCountInString(line+cell) > out.Width {
			fmt.Fprintln(out, line)
			line = ""
		}
		line += cell
	}
	if line != "" {
		fmt.Fprintln(out, line)
	}
}

// shown is how wide the column is where long cells have this width.
func (c *column) shown(longest int) int {
	if c.least == 0 {
		return c.width
	}
	return min(c.width, max(c.least, longest, utf8.RuneCountInString(c.name)))
}

// fit chooses the columns that a terminal has room for, those that go below, and how long the long cells may be. A width of 0 has
// room for all.
func (t *Table) fit(width int) (shown, below []int, longest int) {
	most := 0
	for i, c := range t.columns {
		shown, most = append(shown, i), max(most, c.width)
	}
	if width == 0 {
		return shown, nil, most
	}
	takes := func(longest int) int {
		sum := len(gap) * (len(shown) - 1)
		for _, i := range shown {
			sum += t.columns[i].shown(longest)
		}
		return sum
	}
	order := slices.Clone(shown[1:]) // in which they go below
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(t.worth(a)-t.worth(b), b-a) })
	for ; len(order) > 0 && (takes(0) > width || len(below) > 0 && t.worth(order[0]) == 0); order = order[1:] {
		shown = slices.DeleteFunc(shown, func(i int) bool { return i == order[0] })
		below = append(below, order[0])
	}
	slices.Sort(below)
	for longest < most && takes(longest+1) <= width {
		longest++
	}
	return shown, below, longest
}

// worth is the rank of a column; 0: nothing stands in it.
func (t *Table) worth(i int) int {
	if c := t.columns[i]; slices.ContainsFunc(t.Rows, func(row []string) bool { return row[i] != None && row[i] != c.usual }) {
		return c.rank
	}
	return 0
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
