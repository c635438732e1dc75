package human

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// Widths of what may be long in a table; `get` and --output json show all of it.
const (
	URLWidth     = 72
	MessageWidth = 60
)

// Table collects rows and writes them with their columns aligned.
type Table struct {
	head  []string
	right []bool
	Rows  [][]string
}

// NewTable makes a table. A column whose name begins with ">" is aligned right.
func NewTable(columns ...string) *Table {
	t := &Table{}
	for _, column := range columns {
		name, right := strings.CutPrefix(column, ">")
		t.head = append(t.head, name)
		t.right = append(t.right, right)
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

// Write writes the table; without rows it writes a line instead, unless that is empty.
func (t *Table) Write(out io.Writer, instead string) {
	if len(t.Rows) == 0 {
		if instead != "" {
			fmt.Fprintln(out, instead)
		}
		return
	}
	rows := append([][]string{t.head}, t.Rows...)
	for column, right := range t.right {
		width := 0
		for _, row := range rows {
			width = max(width, utf8.RuneCountInString(row[column]))
		}
		for _, row := range rows {
			if right {
				row[column] = strings.Repeat(" ", width-utf8.RuneCountInString(row[column])) + row[column]
			}
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	w.Flush()
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

// LineIf adds a property by a format if it has to be told.
func (s *Sheet) LineIf(told bool, name, format string, args ...any) {
	if told {
		s.Linef(name, format, args...)
	}
}

// Write writes the sheet.
func (s *Sheet) Write(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, line := range s.lines {
		fmt.Fprintf(w, "%s\t%s\n", line[0], line[1])
	}
	w.Flush()
}
