package warc

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Suffixes of archives.
const (
	archiveSuffix = ".warc.gz"
	openSuffix    = ".open"
	cutSuffix     = ".cut"
)

// fileName is how archives are called: collector id, time to the millisecond, number.
var fileName = regexp.MustCompile(`^waggle-(.+)-\d{17}-\d{5}$`)

// errTaken says that another process has the file.
var errTaken = errors.New("file is in use by another process")

// output is an archive that is written, with its index. Its bytes change only by append.
type output struct {
	dir, name string // name without suffix
	archive   *os.File
	index     *os.File
	size      int64 // of the archive
	indexSize int64
	groups    int
	broken    bool // it may end in a part of a group
}

// create makes the next file of a collector, and begins it.
func create(cfg *Config, now time.Time, number int) (*output, error) {
	stamp := strings.Replace(now.UTC().Format("20060102150405.000"), ".", "", 1)
	for ; ; number++ {
		o := &output{dir: cfg.Dir, name: fmt.Sprintf("waggle-%s-%s-%05d", cfg.CollectorID, stamp, number)}
		err := o.open(os.O_CREATE | os.O_EXCL | os.O_RDWR)
		if errors.Is(err, fs.ErrExist) || errors.Is(err, errTaken) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var begin bytes.Buffer
		if err := infoRecord(cfg, o.name+archiveSuffix, now).writeTo(&begin, gzip.NewWriter(nil)); err != nil {
			return nil, errors.Join(err, o.leave())
		}
		if err := o.append(begin.Bytes(), nil); err != nil {
			return nil, errors.Join(err, o.leave())
		}
		return o, nil
	}
}

func (o *output) openPath() string    { return filepath.Join(o.dir, o.name+archiveSuffix+openSuffix) }
func (o *output) archivePath() string { return filepath.Join(o.dir, o.name+archiveSuffix) }
func (o *output) indexPath() string   { return filepath.Join(o.dir, o.name+indexSuffix) }

// open opens and locks the archive, and opens its index.
func (o *output) open(flags int) (err error) {
	if _, err := os.Stat(o.archivePath()); err == nil {
		return fmt.Errorf("%s: %w", o.archivePath(), fs.ErrExist)
	}
	if o.archive, err = os.OpenFile(o.openPath(), flags, 0o644); err != nil {
		return err
	}
	if err := o.lock(); err != nil {
		return errors.Join(err, o.archive.Close())
	}
	if o.index, err = os.OpenFile(o.indexPath(), os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return errors.Join(err, o.archive.Close())
	}
	return nil
}

// lock takes the archive for this process, if it still has its name then.
func (o *output) lock() error {
	locked, err := lockFile(o.archive)
	if err == nil && !locked {
		err = errTaken
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o.openPath(), err)
	}
	mine, err := o.archive.Stat()
	if err != nil {
		return err
	}
	named, err := os.Stat(o.openPath())
	if err != nil || !os.SameFile(mine, named) {
		return fmt.Errorf("%s: %w", o.openPath(), errTaken)
	}
	return nil
}

// append adds bytes to the archive and a line to the index, both or none; the output is broken if neither could be done.
func (o *output) append(data, line []byte) error {
	_, err := o.archive.WriteAt(data, o.size)
	if err == nil {
		_, err = o.index.WriteAt(line, o.indexSize)
	}
	if err != nil {
		undo := errors.Join(o.archive.Truncate(o.size), o.index.Truncate(o.indexSize))
		o.broken = undo != nil
		return errors.Join(err, undo)
	}
	o.size += int64(len(data))
	o.indexSize += int64(len(line))
	return nil
}

// finish syncs the files and gives the archive its name; without a group in it, both go away.
func (o *output) finish() error {
	if o.groups == 0 {
		return errors.Join(os.Remove(o.openPath()), os.Remove(o.indexPath()), o.leave())
	}
	if err := errors.Join(o.archive.Sync(), o.index.Sync()); err != nil {
		return errors.Join(err, o.leave())
	}
	return errors.Join(os.Rename(o.openPath(), o.archivePath()), o.leave())
}

// leave closes the files as they are.
func (o *output) leave() error { return errors.Join(o.archive.Close(), o.index.Close()) }
