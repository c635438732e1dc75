package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// saveEvery is how often an import keeps how far it came.
const saveEvery = time.Second

// importState is how far an import came: a beginning of the file is done, and
// what became of it is counted. It is written to a new file that replaces the
// old one, so that a kill at any moment leaves one of the two.
type importState struct {
	// Digest of the file and of what else decides what becomes of it.
	Digest string `json:"digest"`
	// Done entries, from the beginning.
	Done int `json:"done"`
	// Report is how long the report was then, in bytes.
	Report int64       `json:"report"`
	Total  importTotal `json:"total"`

	path  string // empty: it is not kept
	skip  int    // Done when it was read
	saved time.Time
}

// openState reads the state of an import that was interrupted, or begins one.
func openState(path, digest string) (*importState, error) {
	s := &importState{Digest: digest, path: path}
	if path == "" {
		return s, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--resume: %w", err)
	}
	kept := &importState{}
	if err := json.Unmarshal(text, kept); err != nil {
		return nil, fmt.Errorf("--resume %s is no state of an import: %w", path, err)
	}
	if kept.Digest != digest {
		return nil, fmt.Errorf("--resume %s is of another import: the file or the flags have changed\n"+
			"remove it to begin anew: what is there already answers UNCHANGED", path)
	}
	kept.path, kept.skip = path, kept.Done
	return kept, nil
}

// save keeps the state.
func (s *importState) save() (err error) {
	if s.path == "" {
		return nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("--resume: %w", err)
	}
	file, err := os.CreateTemp(filepath.Dir(s.path), filepath.Base(s.path)+".new-*")
	if err != nil {
		return fmt.Errorf("--resume: %w", err)
	}
	_, err = file.Write(append(text, '\n'))
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), s.path)
	}
	if err != nil {
		return fmt.Errorf("--resume: %w", errors.Join(err, os.Remove(file.Name())))
	}
	s.saved = time.Now()
	return nil
}

// remove forgets the state of an import that has come to its end.
func (s *importState) remove() error {
	if s.path == "" {
		return nil
	}
	if err := os.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("--resume: %w", err)
	}
	return nil
}

// save keeps how far the import came, once the report has what it says.
func (j *importJob) save() error {
	length, err := j.report.flush()
	if err != nil {
		return err
	}
	if j.state.path == "" {
		return nil
	}
	if err := j.report.sync(); err != nil {
		return err
	}
	j.state.Report = length
	return j.state.save()
}

func (j *importJob) saveSometimes() error {
	if time.Since(j.state.saved) < saveEvery {
		return nil
	}
	return j.save()
}

// importReport gets a line for each entry.
type importReport struct {
	file   *os.File // nil: there is none
	length int64
	rows   *csv.Writer
	lines  *json.Encoder
}

// openReport begins a report, or goes on with one from a length on.
func openReport(path string, from int64) (*importReport, error) {
	r := &importReport{}
	if path == "" {
		return r, nil
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("--report: %w", err)
	}
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() && info.Size() < from {
		return nil, errors.Join(usagef(nil, "--report %q is not the report of the import that --resume goes on with: that one had %d bytes", path, from), file.Close())
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
		return r, r.rows.Write([]string{"line", "id", "result", "error", "changed", "lost"})
	}
	return r, nil
}

func seekTo(file *os.File, offset int64) error {
	_, err := file.Seek(offset, io.SeekStart)
	return err
}

// Write counts what goes to the file.
func (r *importReport) Write(p []byte) (int, error) {
	n, err := r.file.Write(p)
	r.length += int64(n)
	return n, err
}

func (r *importReport) write(item *importItem) (err error) {
	switch {
	case r.rows != nil:
		err = r.rows.Write([]string{
			strconv.Itoa(item.line), item.id, item.result, item.err, strings.Join(item.changed, " "), strings.Join(item.lost, " "),
		})
	case r.lines != nil:
		err = r.lines.Encode(struct {
			Line    int      `json:"line"`
			ID      string   `json:"id"`
			Result  string   `json:"result"`
			Error   string   `json:"error,omitempty"`
			Changed []string `json:"changed,omitempty"`
			Lost    []string `json:"lost,omitempty"`
		}{item.line, item.id, item.result, item.err, item.changed, item.lost})
	}
	if err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	return nil
}

// flush writes what is held back, and tells how long the file is.
func (r *importReport) flush() (int64, error) {
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
func (r *importReport) sync() error {
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

func (r *importReport) close() error {
	if r.file == nil {
		return nil
	}
	_, err := r.flush()
	if err = errors.Join(err, r.file.Close()); err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	return nil
}

// countingReader tells how far a file is read, to another goroutine.
type countingReader struct {
	in   io.Reader
	read atomic.Int64
}

// Read implements [io.Reader].
func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	r.read.Add(int64(n))
	return n, err
}
