package sourcefile

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/textfile"
)

// readCSV reads rows under a header that names their columns.
func readCSV(text []byte, add func(Entry) error) error {
	rows := csv.NewReader(bytes.NewReader(text))
	rows.Comma, rows.ReuseRecord, rows.TrimLeadingSpace = ',', true, true
	line, _, _ := strings.Cut(strings.TrimLeft(string(text[:min(len(text), textfile.LookAhead)]), "\r\n"), "\n")
	if i := strings.IndexAny(line, ",;\t"); i >= 0 && !strings.Contains(line, ",") {
		rows.Comma, rows.TrimLeadingSpace = rune(line[i]), line[i] != '\t'
	}
	header, err := csvHeader(rows)
	if err != nil {
		return err
	}
	for {
		record, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err := add(csvEntry(rows, header, record, err)); err != nil {
			return err
		}
	}
}

// csvHeader reads the names of the columns.
func csvHeader(rows *csv.Reader) (header []string, err error) {
	names, err := rows.Read()
	switch {
	case errors.Is(err, io.EOF):
		return nil, errors.New("the CSV is empty; its first line names the columns")
	case err != nil:
		return nil, fmt.Errorf("header: %w", err)
	}
	for _, name := range names {
		c, known := columnNamed(name)
		switch {
		case !known:
			return nil, fmt.Errorf("line 1: column %.80q is not known; there are %s", name, strings.Join(columnNames(), ", "))
		case slices.Contains(header, c.Name):
			return nil, fmt.Errorf("line 1: column %q is there twice", c.Name)
		}
		header = append(header, c.Name)
	}
	if !slices.Contains(header, "url") && !slices.Contains(header, "id") {
		return nil, errors.New("line 1: there is neither a column url nor id")
	}
	return header, nil
}

// csvEntry is the entry of a row, or what err says is wrong with it.
func csvEntry(rows *csv.Reader, header, record []string, err error) (e Entry) {
	texts := map[string]string{}
	for i, value := range record[:min(len(record), len(header))] {
		if utf8.ValidString(value) {
			texts[header[i]] = value
		} else if e.Err == nil {
			e.Err = fmt.Errorf("column %s %w", header[i], textfile.ErrNotUTF8)
		}
	}
	spec, specErr := fromRow(texts)
	var wrong *csv.ParseError
	switch {
	case errors.As(err, &wrong) && wrong.Line > wrong.StartLine: // a quote that is not closed has taken in all that follows
		return Entry{Line: wrong.StartLine, Err: fmt.Errorf("%w; what follows, up to line %d, was read as part of it", wrong.Err, wrong.Line)}
	case errors.As(err, &wrong) && errors.Is(err, csv.ErrFieldCount):
		return Entry{Line: wrong.StartLine, Spec: spec, Err: fmt.Errorf("has %d fields, the header %d", len(record), len(header))}
	case errors.As(err, &wrong):
		return Entry{Line: wrong.StartLine, Err: wrong.Err}
	}
	e.Line, _ = rows.FieldPos(0)
	e.Spec = spec
	if e.Err == nil {
		e.Err = specErr
	}
	if e.Err == nil && spec.GetId() == "" && len(spec.GetSeeds()) == 0 {
		e.Err = errors.New("there is neither a url nor an id")
	}
	return e
}
