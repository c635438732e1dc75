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
	ResultKept      = "KEPT"
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

// OpenReport begins a report with these columns, or goes on with one from a length on.
// Where path is empty it keeps nothing.
func OpenReport(path string, from int64, columns ...string) (*Report, error) {
	r := &Report{}
	if path == "" {
		return r, nil
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("--report: %w", err)
	}
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() && info.Size() < from {
		return nil, errors.Join(Usagef("--report %q is not the report of the import that --resume goes on with: that one had %d bytes", path, from), file.Close())
	}
	if err := errors.Join(file.Truncate(from), seekTo(file, from)); err != nil {
		return nil, fmt.Errorf("--report: %w", errors.Join(err, file.Close()))
	}
	r.file, r.length = file, from
	if !strings.HasSuffix(strings.ToLower(path), ".csv") {
		r.lines = json.NewEncoder(r)
		r.lines.SetEscapeHTML(false)
		return r, nil
	}
	r.rows = csv.NewWriter(r)
	if from == 0 {
		return r, r.rows.Write(columns)
	}
	return r, nil
}

func seekTo(file *os.File, offset int64) error {
	_, err := file.Seek(offset, io.SeekStart)
	return err
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
	if err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	return nil
}

// Kept reports whether there is a report.
func (r *Report) Kept() bool { return r.file != nil }

// Flush writes what is held back, and tells how long the file is.
func (r *Report) Flush() (int64, error) {
	if r.rows != nil {
		r.rows.Flush()
		if err := r.rows.Error(); err != nil {
			return 0, fmt.Errorf("--report: %w", err)
		}
	}
	return r.length, nil
}

// Sync makes what was written outlast a crash of the machine, so that no state
// tells of more than there is. A report that is no file, as a pipe, has none.
func (r *Report) Sync() error {
	if r.file == nil {
		return nil
	}
	info, err := r.file.Stat()
	if err == nil && info.Mode().IsRegular() {
		err = r.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	return nil
}

func (r *Report) Close() error {
	if r.file == nil {
		return nil
	}
	_, err := r.Flush()
	if err = errors.Join(err, r.file.Close()); err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	return nil
}
