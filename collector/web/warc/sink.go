package warc

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/collector/web"
)

// maxOverhead is how much longer than its body a payload may be whose coding made nothing smaller, in bytes.
const maxOverhead = 64 << 10

// Sink is a web.Sink of WARC files. It may be used by any number of goroutines.
type Sink struct {
	cfg     Config
	digests *digests
	zips    sync.Pool // of *gzip.Writer

	mu     sync.Mutex // guards what follows: one group is appended at a time
	out    *output    // nil: the next Put makes one
	number int        // of the next file
	begun  time.Time  // out
	closed bool

	stop chan struct{} // closed by Close
	aged chan struct{} // closed when nothing looks after old files any more
}

var _ web.Sink = (*Sink)(nil)

// New opens a sink, and finishes the files that a dead process of the same collector id has left: each is read once from
// end to end. Set Config.Exchanges of the web.Handler that fills it. Close it when the collector has stopped.
func New(cfg Config) (*Sink, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("warc config: %w", err)
	}
	cfg = cfg.withDefaults()
	s := &Sink{cfg: cfg, digests: &digests{dir: filepath.Join(cfg.Dir, "digests")}}
	if err := os.MkdirAll(s.digests.dir, 0o755); err != nil {
		return nil, fmt.Errorf("open warc sink: %w", err)
	}
	if err := recoverAll(&cfg, s.digests); err != nil {
		return nil, fmt.Errorf("open warc sink: %w", err)
	}
	s.stop, s.aged = make(chan struct{}), make(chan struct{})
	if period := cfg.period(); period > 0 {
		go s.age(period)
	} else {
		close(s.aged)
	}
	return s, nil
}

// Close finishes the file that is written. Put fails with os.ErrClosed from then on.
func (s *Sink) Close() error {
	s.mu.Lock()
	if !s.closed {
		close(s.stop)
	}
	s.closed = true
	s.mu.Unlock()
	<-s.aged
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.finish()
}

// finish gives the current file its name.
func (s *Sink) finish() error {
	if s.out == nil {
		return nil
	}
	out := s.out
	s.out = nil
	if err := out.finish(); err != nil {
		return fmt.Errorf("finish %s: %w", out.name, err)
	}
	return nil
}

// Put appends the records of a page in one write. It fails when content has no exchanges.
func (s *Sink) Put(ctx context.Context, page web.Page, content web.Content) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if err := s.put(page, content.Exchanges); err != nil {
		return fmt.Errorf("store page %s: %w", page.URL, err)
	}
	return nil
}

func (s *Sink) put(page web.Page, exchanges []web.Exchange) error {
	if len(exchanges) == 0 {
		return errors.New("it has no exchanges: the handler's Config.Exchanges must be set")
	}
	known, err := s.known(page.Digest)
	if err != nil {
		return err
	}
	zip, ok := s.zips.Get().(*gzip.Writer)
	if !ok {
		zip = gzip.NewWriter(nil)
	}
	defer s.zips.Put(zip)
	group, err := newGroup(zip, page, exchanges, known)
	if err == nil {
		err = s.append(group)
	}
	if err == nil && group.entry.whole {
		err = s.digests.add(locationOf(&group.entry))
	}
	return err
}

// append gives a group its place.
func (s *Sink) append(g *group) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return os.ErrClosed
	}
	if s.out != nil && s.out.groups > 0 && s.out.size+int64(g.data.Len()) > s.cfg.MaxFileBytes {
		if err := s.finish(); err != nil {
			return err
		}
	}
	if s.out == nil {
		out, err := create(&s.cfg, time.Now(), s.number)
		if err != nil {
			return err
		}
		s.out, s.begun = out, time.Now()
		s.number = (s.number + 1) % 100_000
	}
	g.entry.File = s.out.name + archiveSuffix
	g.entry.Offset += s.out.size
	line, err := g.entry.line()
	if err != nil {
		return err
	}
	if err := s.out.append(g.data.Bytes(), line); err != nil {
		if s.out.broken { // the next sink repairs it
			err = errors.Join(err, s.out.leave())
			s.out = nil
		}
		return err
	}
	s.out.groups++
	return nil
}

// Body reads a payload back and undoes its content coding.
func (s *Sink) Body(ctx context.Context, digest string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	known, err := s.known(digest)
	if err != nil {
		return nil, err
	}
	err = fs.ErrNotExist
	for i := range known {
		body, readErr := s.read(&known[i])
		if readErr == nil {
			return body, nil
		}
		if !errors.Is(readErr, fs.ErrNotExist) {
			err = readErr
		}
	}
	return nil, fmt.Errorf("read body %s: %w", digest, err)
}

// read reads the body of a place, and checks that it is the one.
func (s *Sink) read(l *location) ([]byte, error) {
	file, err := s.openArchive(l.File)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	payload, codings, err := readPayload(io.NewSectionReader(file, l.Offset, l.Length))
	if err != nil {
		return nil, err
	}
	body, err := web.DecodeBody(codings, payload, l.Bytes+l.Length+maxOverhead)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != l.Digest {
		return nil, fmt.Errorf("record at %d of %s has another body", l.Offset, l.File)
	}
	return body, nil
}

// openArchive opens an archive, finished or not; it may be finished between the first look and the second.
func (s *Sink) openArchive(name string) (file *os.File, err error) {
	path := filepath.Join(s.cfg.Dir, name)
	for _, candidate := range []string{path, path + openSuffix, path} {
		if file, err = os.Open(candidate); err == nil || !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
	}
	return nil, err
}
