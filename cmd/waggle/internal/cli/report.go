package cli

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// The results of entries of a file, beside those of the dispatcher.
const (
	ResultCreated   = "CREATED"
	ResultUpdated   = "UPDATED"
	ResultUnchanged = "UNCHANGED"
	ResultDeleted   = "DELETED"
	ResultOver      = "OVER" // a hold that has ended by itself
	ResultDuplicate = "DUPLICATE"
	ResultRefused   = "REFUSED"
	ResultInvalid   = "INVALID"
)

// ShownRefusals is how many refused entries are shown one by one.
const ShownRefusals = 20

// Report is a file that gets a line for each entry of another one.
type Report struct {
	file  *os.File    // nil: there is none
	rows  *csv.Writer // else objects are written
	lines *json.Encoder
}

// OpenReport begins a report with these columns. If path is empty it keeps nothing.
func OpenReport(path string, columns ...string) (*Report, error) {
	r := &Report{}
	if path == "" {
		return r, nil
	}
	var err error
	if r.file, err = os.Create(path); err != nil {
		return nil, fmt.Errorf("--report: %w", err)
	}
	if strings.HasSuffix(strings.ToLower(path), ".csv") {
		r.rows = csv.NewWriter(r.file)
		return r, r.rows.Write(columns)
	}
	r.lines = json.NewEncoder(r.file)
	r.lines.SetEscapeHTML(false)
	return r, nil
}

// Put adds a line: cells of a CSV, or an object.
func (r *Report) Put(cells []string, object any) (err error) {
	switch {
	case r.rows != nil:
		err = r.rows.Write(cells)
	case r.lines != nil:
		err = r.lines.Encode(object)
	}
	if err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	return nil
}

// Close ends the report.
func (r *Report) Close() (err error) {
	if r.rows != nil {
		r.rows.Flush()
		err = r.rows.Error()
	}
	if r.file != nil {
		err = errors.Join(err, r.file.Close())
	}
	if err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	return nil
}
