package web

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Rotation says when a DirSink begins a new file, and how long it keeps what it has. The zero value of a field: no limit.
type Rotation struct {
	// MaxBytes is the size from which the file of records gets no more of them, MaxAge its age from which it gets none. Then
	// pages-<collector id>.jsonl is renamed to pages-<collector id>.<time>.jsonl, which never changes again. A record that is longer
	// gets a file of its own.
	MaxBytes int64
	MaxAge   time.Duration
	// Keep is how long bodies stay after a page had them last, and files of records after their last record. 1 minute or more.
	Keep time.Duration
}

// minKeep leaves a fetch the time from its question for a body to its record.
const minKeep = time.Minute

// Validate checks the limits; its error names the field and the value.
func (r *Rotation) Validate() error {
	switch {
	case r.MaxBytes < 0:
		return fmt.Errorf("field MaxBytes: %d: want 0 or more", r.MaxBytes)
	case r.MaxAge < 0:
		return fmt.Errorf("field MaxAge: %v: want 0 or more", r.MaxAge)
	case r.Keep != 0 && r.Keep < minKeep:
		return fmt.Errorf("field Keep: %v: want %v or more", r.Keep, minKeep)
	}
	return nil
}

// period is how often to look whether something has become old; 0: never.
func (r *Rotation) period() time.Duration {
	period := time.Duration(0)
	for _, age := range []time.Duration{r.MaxAge, r.Keep} {
		if age > 0 && (period == 0 || age/10 < period) {
			period = min(max(age/10, 100*time.Millisecond), time.Minute)
		}
	}
	return period
}

// stampLayout has capitals, so that no collector id can end in it.
const stampLayout = "20060102T150405.000000Z"

// rotate ends the file of records and begins the next, unless it is empty. The caller holds mu.
func (s *DirSink) rotate() error {
	info, err := s.file.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	ended := strings.TrimSuffix(s.name, recordSuffix) + "." + time.Now().UTC().Format(stampLayout) + recordSuffix
	if err := os.Rename(s.name, ended); err != nil {
		return err
	}
	next, err := os.OpenFile(s.name, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644)
	if err != nil {
		return errors.Join(err, os.Rename(ended, s.name))
	}
	old := s.file
	s.file, s.size, s.begun = next, 0, time.Now()
	return errors.Join(old.Sync(), old.Close())
}

// age rotates and expires until the sink is closed.
func (s *DirSink) age(period time.Duration) {
	defer close(s.aged)
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-s.closed:
			return
		case <-ticker.C:
		}
		s.mu.Lock()
		if s.rotation.MaxAge > 0 && time.Since(s.begun) >= s.rotation.MaxAge {
			_ = s.rotate() // it goes on with the file that it has, and tries again
		}
		s.mu.Unlock()
		if s.rotation.Keep > 0 {
			s.expire(time.Now().Add(-s.rotation.Keep))
		}
	}
}

// expire removes the bodies, and the files of records that have ended, of which no page was since then. What cannot be removed is
// tried again.
func (s *DirSink) expire(before time.Time) {
	old := func(path string) {
		s.bodies.Lock() // else a page may have found it just now
		defer s.bodies.Unlock()
		if info, err := os.Stat(path); err == nil && info.ModTime().Before(before) {
			_ = os.Remove(path)
		}
	}
	stem := filepath.Base(strings.TrimSuffix(s.name, recordSuffix)) + "."
	entries, _ := os.ReadDir(s.dir)
	for _, entry := range entries {
		rest, ours := strings.CutPrefix(entry.Name(), stem)
		if _, err := time.Parse(stampLayout, strings.TrimSuffix(rest, recordSuffix)); ours && err == nil {
			old(filepath.Join(s.dir, entry.Name()))
		}
	}
	_ = filepath.WalkDir(filepath.Join(s.dir, "bodies"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			old(path)
		}
		return nil //nolint:nilerr // what cannot be read now is read the next time
	})
}

// Expiring is a Sink whose bodies end. The Handler asks it before it asks a server for changes only, since the answer that nothing
// changed would be of a body that is gone.
type Expiring interface {
	Sink

	// Has reports whether the Sink has the body of a digest, and still has it when the fetch ends.
	Has(digest string) bool
}

// Has implements [Expiring].
func (s *DirSink) Has(digest string) bool {
	if s.rotation.Keep == 0 {
		return true
	}
	file, err := bodyFile(digest)
	return err == nil && s.touch(filepath.Join(s.dir, filepath.FromSlash(file))) == nil
}

// touch makes a body as new as one that was just written.
func (s *DirSink) touch(path string) error {
	s.bodies.RLock()
	defer s.bodies.RUnlock()
	now := time.Now()
	return os.Chtimes(path, now, now)
}
