package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// Widths of what may be long in a table; `get` and --output json show all of it.
const (
	urlWidth     = 72
	messageWidth = 60
)

// table collects rows and writes them with their columns aligned.
type table struct {
	head  []string
	right []bool
	rows  [][]string
}

// newTable makes a table. A column whose name begins with ">" is aligned right.
func newTable(columns ...string) *table {
	t := &table{}
	for _, column := range columns {
		name, right := strings.CutPrefix(column, ">")
		t.head = append(t.head, name)
		t.right = append(t.right, right)
	}
	return t
}

// row adds a row; cells become plain text.
func (t *table) row(cells ...string) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = or(plain(cell), none)
	}
	t.rows = append(t.rows, row)
}

// write writes the table; without rows it writes a line instead, unless that is empty.
func (t *table) write(out io.Writer, instead string) {
	if len(t.rows) == 0 {
		if instead != "" {
			fmt.Fprintln(out, instead)
		}
		return
	}
	rows := append([][]string{t.head}, t.rows...)
	for column, right := range t.right {
		if right {
			alignRight(rows, column)
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	w.Flush()
}

func alignRight(rows [][]string, column int) {
	width := 0
	for _, row := range rows {
		width = max(width, utf8.RuneCountInString(row[column]))
	}
	for _, row := range rows {
		row[column] = strings.Repeat(" ", width-utf8.RuneCountInString(row[column])) + row[column]
	}
}

// sheet writes one thing: a line per property.
type sheet struct {
	lines [][2]string
}

// line adds a property; an empty value is left out.
func (s *sheet) line(name, value string) {
	if value != "" {
		s.lines = append(s.lines, [2]string{name, plain(value)})
	}
}

// linef adds a property by a format.
func (s *sheet) linef(name, format string, args ...any) { s.line(name, fmt.Sprintf(format, args...)) }

// lineIf adds a property by a format if it has to be told.
func (s *sheet) lineIf(told bool, name, format string, args ...any) {
	if told {
		s.linef(name, format, args...)
	}
}

// write writes the sheet.
func (s *sheet) write(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, line := range s.lines {
		fmt.Fprintf(w, "%s\t%s\n", line[0], line[1])
	}
	w.Flush()
}
