package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// report is a file that gets a line for each entry of another one.
type report struct {
	file   *os.File // nil: there is none
	length int64
	rows   *csv.Writer
	lines  *json.Encoder
}

// openReport begins a report with these columns, or goes on with one from a length on.
// Where path is empty it keeps nothing.
func openReport(path string, from int64, columns ...string) (*report, error) {
	r := &report{}
	if path == "" {
		return r, nil
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("--report: %w", err)
	}
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() && info.Size() < from {
		return nil, errors.Join(usagef("--report %q is not the report of the import that --resume goes on with: that one had %d bytes", path, from), file.Close())
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
func (r *report) Write(p []byte) (int, error) {
	n, err := r.file.Write(p)
	r.length += int64(n)
	return n, err
}

// put adds a line: cells of a CSV, or an object.
func (r *report) put(cells []string, object any) (err error) {
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

// kept reports whether there is a report.
func (r *report) kept() bool { return r.file != nil }

// flush writes what is held back, and tells how long the file is.
func (r *report) flush() (int64, error) {
	if r.rows != nil {
		r.rows.Flush()
		if err := r.rows.Error(); err != nil {
			return 0, fmt.Errorf("--report: %w", err)
		}
	}
	return r.length, nil
}

// sync makes what was written outlast a crash of the machine, so that no state
// tells of more than there is. A report that is no file, as a pipe, has none.
func (r *report) sync() error {
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

func (r *report) close() error {
	if r.file == nil {
		return nil
	}
	_, err := r.flush()
	if err = errors.Join(err, r.file.Close()); err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	return nil
}
