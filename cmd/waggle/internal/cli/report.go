package cli

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	file   *os.File // nil: there is none
	length int64
	rows   *csv.Writer
	lines  *json.Encoder
}

// OpenReport begins a report with these columns, or goes on with one from a length on. If path is empty it keeps nothing.
func OpenReport(path string, from int64, columns ...string) (*Report, error) {
	r := &Report{length: from}
	if path == "" {
		return r, nil
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, reportFailed(err)
	}
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() && info.Size() < from {
		return nil, errors.Join(Usagef("--report %q is not the report of the import that --resume goes on with: that one had %d bytes", path, from), file.Close())
	}
	err = file.Truncate(from)
	if _, seekErr := file.Seek(from, io.SeekStart); err != nil || seekErr != nil {
		return nil, reportFailed(errors.Join(err, seekErr, file.Close()))
	}
	r.file = file
	if strings.HasSuffix(strings.ToLower(path), ".csv") {
		if r.rows = csv.NewWriter(r); from == 0 {
			err = r.rows.Write(columns)
		}
		return r, err
	}
	r.lines = json.NewEncoder(r)
	r.lines.SetEscapeHTML(false)
	return r, nil
}

func reportFailed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("--report: %w", err)
}

// Write counts what goes to the file.
func (r *Report) Write(p []byte) (int, error) {
	n, err := r.file.Write(p)
	r.length += int64(n)
	return n, err
}

// Put adds a line: cells of a CSV, or an object.
func (r *Report) Put(cells []string, object any) (err error) {
	switch {
	case r.rows != nil:
		err = r.rows.Write(cells)
	case r.lines != nil:
		err = r.lines.Encode(object)
	}
	return reportFailed(err)
}

// Sync makes what was written outlast a crash of the machine, and returns how long the file is. A report that is no file,
// such as a pipe, only gets what was held back.
func (r *Report) Sync() (length int64, err error) {
	if r.rows != nil {
		r.rows.Flush()
		err = r.rows.Error()
	}
	if r.file != nil && err == nil {
		if info, statErr := r.file.Stat(); statErr == nil && info.Mode().IsRegular() {
			err = r.file.Sync()
		}
	}
	return r.length, reportFailed(err)
}

// Close ends the report.
func (r *Report) Close() error {
	if r.file == nil {
		return nil
	}
	_, err := r.Sync()
	return errors.Join(err, reportFailed(r.file.Close()))
}
