package sourcefile

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/textfile"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// csvReader reads rows under a header that names their columns.
type csvReader struct {
	budget *budget
	rows   *csv.Reader
	header []string // the columns' own names
	line   int      // of the row given last
}

func newCSVReader(text *bufio.Reader) (*csvReader, error) {
	comma, err := separator(text)
	if err != nil {
		return nil, err
	}
	b := &budget{in: text}
	r := &csvReader{budget: b, rows: csv.NewReader(b)}
	r.rows.Comma, r.rows.ReuseRecord, r.rows.TrimLeadingSpace = comma, true, comma != '\t'
	header, err := r.rows.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the CSV is empty; its first line names the columns")
	}
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	seen := map[string]bool{}
	for _, name := range header {
		c, known := columnNamed(name)
		switch {
		case !known:
			return nil, fmt.Errorf("line 1: column %.80q is not known; there are %s", name, columnNames())
		case seen[c.name]:
			return nil, fmt.Errorf("line 1: column %q is there twice", c.name)
		}
		seen[c.name] = true
		r.header = append(r.header, c.name)
	}
	if !seen["url"] && !seen["id"] {
		return nil, errors.New("line 1: there is neither a column url nor id")
	}
	return r, nil
}

// separator is what stands between the names of the header.
func separator(text *bufio.Reader) (rune, error) {
	head, err := peek(text)
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(strings.TrimLeft(string(head), "\r\n"), "\n")
	for _, r := range ",;\t" {
		if strings.ContainsRune(line, r) {
			return r, nil
		}
	}
	return ',', nil
}

// Next implements [Reader].
func (r *csvReader) Next() (Entry, error) {
	r.budget.reset()
	record, err := r.rows.Read()
	var wrong *csv.ParseError
	switch {
	case errors.As(err, &wrong) && !errors.Is(err, textfile.ErrTooLong):
		r.line = wrong.StartLine
		if wrong.Line > wrong.StartLine { // a quote that is not closed has taken in all that follows
			return Entry{Line: r.line, Err: fmt.Errorf("%w; what follows, up to line %d, was read as part of it", wrong.Err, wrong.Line)}, nil
		}
		if errors.Is(wrong.Err, csv.ErrFieldCount) {
			spec, _ := fromRow(r.texts(record)) // what is wrong is that it has too few, or too many
			return Entry{Line: r.line, Spec: spec, Err: fmt.Errorf("has %d fields, the header %d", len(record), len(r.header))}, nil
		}
		return Entry{Line: r.line, Err: wrong.Err}, nil
	case errors.Is(err, textfile.ErrTooLong):
		return Entry{}, fmt.Errorf("after line %d: %w: is a quote not closed?", r.line, textfile.ErrTooLong)
	case err != nil:
		return Entry{}, textfile.Fatal(r.line+1, err)
	}
	r.line, _ = r.rows.FieldPos(0)
	for i, value := range record {
		if !utf8.ValidString(value) {
			return Entry{Line: r.line, Err: fmt.Errorf("column %s %w", r.header[i], textfile.ErrNotUTF8)}, nil
		}
	}
	spec, err := fromRow(r.texts(record))
	if err == nil && spec.GetId() == "" && len(spec.GetSeeds()) == 0 {
		err = errors.New("there is neither a url nor an id")
	}
	return Entry{Line: r.line, Spec: spec, Err: err}, nil
}

// texts are the fields of a row by the name of their column.
func (r *csvReader) texts(record []string) map[string]string {
	texts := make(map[string]string, len(r.header))
	for i, value := range record[:min(len(record), len(r.header))] {
		if utf8.ValidString(value) {
			texts[r.header[i]] = value
		}
	}
	return texts
}

// budget is a reader that gives no more than about MaxRecord bytes between two resets, so that a quote that is not closed
// cannot have a whole file kept in memory.
type budget struct {
	in   io.Reader
	used int
}

// Read implements [io.Reader].
func (b *budget) Read(p []byte) (int, error) {
	left := textfile.MaxRecord - b.used
	if left <= 0 {
		return 0, textfile.ErrTooLong
	}
	n, err := b.in.Read(p[:min(len(p), left)])
	b.used += n
	return n, err
}

// reset begins the next entry.
func (b *budget) reset() { b.used = 0 }

// csvWriter writes all columns.
type csvWriter struct{ rows *csv.Writer }

func newCSVWriter(out io.Writer) (*csvWriter, error) {
	w := &csvWriter{rows: csv.NewWriter(out)}
	var header []string
	for _, c := range columns() {
		header = append(header, c.name)
	}
	if err := w.rows.Write(header); err != nil {
		return nil, fmt.Errorf("write: %w", err)
	}
	return w, nil
}

// Write implements [Writer].
func (w *csvWriter) Write(spec *pb.SourceSpec) ([]string, error) {
	texts := row(spec)
	var cells []string
	for _, c := range columns() {
		cells = append(cells, texts[c.name])
	}
	if err := w.rows.Write(cells); err != nil {
		return nil, fmt.Errorf("write: %w", err)
	}
	back, _ := fromRow(texts) // what is wrong is not in it, and so lost
	return lost(spec, back), nil
}

// Close implements [Writer].
func (w *csvWriter) Close() error {
	w.rows.Flush()
	if err := w.rows.Error(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
