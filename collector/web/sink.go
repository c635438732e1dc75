package web

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Page is what a Sink records of one fetch. A consumer of several collectors' records keeps one Page per
// (TaskID, Cycle): the one with the highest Fence.
type Page struct {
	// URL is the task's URL; FinalURL the one that answered, which may be another spelling of URL, or where a redirect leads
	// to.
	URL      string `json:"url"`
	FinalURL string `json:"final_url"`

	// Status is the HTTP status: 2xx, 304 when the server said that nothing changed, or that of a redirect, which is kept
	// with an empty body: its target is another task.
	Status int `json:"status"`

	// ContentType is the answer's Content-Type header; empty when the answer was a 304.
	ContentType string `json:"content_type,omitempty"`

	// FetchTime is when the first request was sent, by the collector's clock; FetchMillis how long the fetch took.
	FetchTime   time.Time `json:"fetch_time"`
	FetchMillis int64     `json:"fetch_ms"`

	// Digest is the SHA-256 of the body in hexadecimal, after decompression; Bytes is its length.
	Digest string `json:"digest"`
	Bytes  int64  `json:"bytes"`

	// Changed is false when the body is the one seen on the previous crawl.
	Changed bool `json:"changed"`

	// Links is how many links were reported as discovered.
	Links int `json:"links"`

	// Canonical is the URL that an HTML page says is its own. NoIndex says that the page asks not to be indexed, by its
	// markup or an X-Robots-Tag: whoever builds an index of the pages leaves it out.
	Canonical string `json:"canonical,omitempty"`
	NoIndex   bool   `json:"no_index,omitempty"`

	// Title, Author and Published are what an HTML page says of itself, at most 1,000 bytes each; empty when it says none, and when it was
	// not read again since the server said that nothing changed.
	Title     string    `json:"title,omitempty"`
	Author    string    `json:"author,omitempty"`
	Published time.Time `json:"published,omitzero"`

	// Depth is how many links lead to the task from a seed, which has 0; Kind what the task says that it is, as feed or sitemap; empty
	// for a page.
	Depth int    `json:"depth"`
	Kind  string `json:"kind,omitempty"`

	// RedirectedFrom is the URL where the redirects began that led to the task; empty: none did.
	RedirectedFrom string `json:"redirected_from,omitempty"`

	// SourceID, TaskID, Cycle, Run, Attempt and Fence say which hand-out of which task this was.
	SourceID string `json:"source_id"`
	TaskID   string `json:"task_id"`
	Cycle    int64  `json:"cycle"`
	Run      int64  `json:"run"`
	Attempt  int    `json:"attempt"`
	Fence    int64  `json:"fence"`

	// File is where the body is, relative to the sink; set by the Sink.
	File string `json:"file"`
}

// Sink keeps what was fetched. It is called by several handlers at once.
type Sink interface {
	// Put stores the record of a page and its content, and is safe to repeat: a task may be handed out again after Put
	// and before its report. When Put returns nil, both are stored.
	Put(ctx context.Context, page Page, content Content) error

	// Body reads back the body with the given digest. It returns an error that wraps fs.ErrNotExist when the Sink does
	// not have it or cannot read back.
	Body(ctx context.Context, digest string) ([]byte, error)
}

// DirSink is a Sink in a directory: a line of JSON per page in pages-<collector id>.jsonl, bodies by their digest
// under bodies/. Collectors with different ids, in one process or several, may share the directory.
type DirSink struct {
	dir, name string // name: of the file of records
	rotation  Rotation

	mu    sync.Mutex // guards what follows: one write at a time
	file  *os.File
	size  int64
	begun time.Time // when the file got its first record, or was opened

	bodies sync.RWMutex  // locked while an old file is removed
	closed chan struct{} // by Close
	ending sync.Once
	aged   chan struct{} // closed when nothing looks after old files any more
}

// recordSuffix is what files of records end in.
const recordSuffix = ".jsonl"

// NewDirSink opens the sink in dir, which it makes when missing. collectorID names the collector's file; records are
// appended to what the file has. The id may hold a-z, 0-9, dot, underscore and hyphen. Close it when the collector has
// stopped. Of bodies that several collectors share in a directory the shortest Keep counts.
func NewDirSink(dir, collectorID string, rotation Rotation) (*DirSink, error) {
	if err := rotation.Validate(); err != nil {
		return nil, fmt.Errorf("open sink %s: %w", dir, err)
	}
	if collectorID == "" || strings.Trim(collectorID, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" {
		return nil, fmt.Errorf("open sink %s: collector id %q: want 1 or more of a-z, 0-9, '.', '_', '-'", dir, collectorID)
	}
	if err := os.MkdirAll(filepath.Join(dir, "bodies"), 0o755); err != nil {
		return nil, fmt.Errorf("open sink: %w", err)
	}
	name := filepath.Join(dir, "pages-"+collectorID+recordSuffix)
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open sink: %w", err)
	}
	if err := endLastLine(file); err != nil {
		return nil, errors.Join(fmt.Errorf("open sink: %w", err), file.Close())
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open sink: %w", err), file.Close())
	}
	s := &DirSink{
		dir: dir, name: name, rotation: rotation, file: file, size: info.Size(), begun: time.Now(),
		closed: make(chan struct{}), aged: make(chan struct{}),
	}
	if period := rotation.period(); period > 0 {
		go s.age(period)
	} else {
		close(s.aged)
	}
	return s, nil
}

// endLastLine ends a line that a crash of the machine may have cut, so that it spoils no other.
func endLastLine(file *os.File) error {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := file.ReadAt(last, info.Size()-1); err != nil {
		return err
	}
	if last[0] == '\n' {
		return nil
	}
	_, err = file.Write([]byte{'\n'})
	return err
}

// Close closes the collector's file.
func (s *DirSink) Close() error {
	s.ending.Do(func() { close(s.closed) })
	<-s.aged
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file.Close()
}

// Put stores the body in a file of its own, then appends the record in one write, so that a record never names a body
// that is not there.
func (s *DirSink) Put(ctx context.Context, page Page, content Content) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	file, err := bodyFile(page.Digest)
	if err != nil {
		return fmt.Errorf("store page %s: %w", page.URL, err)
	}
	page.File = file
	if content.Body != nil {
		if err := s.writeBody(page.File, content.Body); err != nil {
			return fmt.Errorf("store body of %s: %w", page.URL, err)
		}
	} else {
		_ = s.touch(filepath.Join(s.dir, filepath.FromSlash(file))) // it is kept as long as the record
	}
	line, err := json.Marshal(page)
	if err != nil {
		return fmt.Errorf("encode page %s: %w", page.URL, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rotation.MaxBytes > 0 && s.size > 0 && s.size+int64(len(line)) >= s.rotation.MaxBytes {
		if err := s.rotate(); err != nil {
			return fmt.Errorf("store page %s: begin a new file: %w", page.URL, err)
		}
	}
	if s.size == 0 {
		s.begun = time.Now()
	}
	n, err := s.file.Write(append(line, '\n'))
	if s.size += int64(n); err != nil {
		return fmt.Errorf("store page %s: %w", page.URL, err)
	}
	return nil
}

// Body reads a stored body.
func (s *DirSink) Body(ctx context.Context, digest string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	file, err := bodyFile(digest)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(s.dir, filepath.FromSlash(file)))
}

// writeBody stores a body unless it is there. The file appears whole or not at all.
func (s *DirSink) writeBody(file string, body []byte) error {
	target := filepath.Join(s.dir, filepath.FromSlash(file))
	if info, err := os.Stat(target); err == nil && info.Size() == int64(len(body)) && s.touch(target) == nil {
		return nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(target), ".body-*")
	if err != nil {
		return err
	}
	_, err = temp.Write(body)
	if err = errors.Join(err, temp.Chmod(0o644), temp.Close()); err == nil {
		err = os.Rename(temp.Name(), target)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return nil
}

// bodyFile is the path of a body below the sink's directory.
func bodyFile(digest string) (string, error) {
	if decoded, err := hex.DecodeString(digest); err != nil || len(decoded) != sha256.Size {
		return "", fmt.Errorf("digest %q: want %d hexadecimal digits: %w", digest, 2*sha256.Size, fs.ErrNotExist)
	}
	return "bodies/" + digest[:2] + "/" + digest, nil
}

// discard is the Sink of a Handler that was given none.
type discard struct{}

// Put keeps nothing.
func (discard) Put(context.Context, Page, Content) error { return nil }

// Body has nothing.
func (discard) Body(context.Context, string) ([]byte, error) { return nil, fs.ErrNotExist }
