package sourceimport

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// saveEvery is how often an import keeps how far it came.
const saveEvery = time.Second

// state is how far an import came: a beginning of the file is done, and what became of it is counted. It is written to a new
// file that replaces the old one, so that a kill at any moment leaves one of the two.
type state struct {
	// Digest of the file and of what else decides what becomes of it.
	Digest string `json:"digest"`
	// Done entries, from the beginning.
	Done int `json:"done"`
	// Report is how long the report was then, in bytes.
	Report int64  `json:"report"`
	Total  totals `json:"total"`
	// CreatedInScope are those sources created of which --prune could be about.
	CreatedInScope int `json:"created_in_scope,omitempty"`

	path  string // empty: it is not kept
	skip  int    // Done when it was read
	saved time.Time
}

// openState reads the state of an import that was interrupted, or begins one.
func openState(path, digest string) (*state, error) {
	s := &state{Digest: digest, path: path}
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
	kept := &state{}
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
func (s *state) save() (err error) {
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
func (s *state) remove() error {
	if s.path == "" {
		return nil
	}
	if err := os.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("--resume: %w", err)
	}
	return nil
}
