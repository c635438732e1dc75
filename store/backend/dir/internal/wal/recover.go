package wal

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk"
)

// Report is what Scan found in a log.
type Report struct {
	Segments    int      // files that were read
	Bytes       int64    // of these files
	StoreID     [16]byte // of their headers; zero without segments
	First, Last uint64   // sequences of the entries that were read; both 0 without any
	Torn        *Torn    // what Open would cut off the end; nil if nothing
}

// Torn is the end of a log that a power cut or a kill left half written. None of its entries was acknowledged as durable.
type Torn struct {
	File   string // path of the last segment
	Offset int64  // of the first byte that is not part of a valid batch
	Bytes  int64  // from there to the last byte that is not zero
}

// Scan reads a log without changing anything, checks all segments that have entries after a sequence, and calls each with
// these entries, in order; known is as in Options. The entry is only valid during the call. While another process writes the
// log, the batch that is being written can look torn or damaged.
func Scan(fs disk.FS, dir string, after, known uint64, each func(seq uint64, entry []byte) error) (Report, error) {
	s, err := scan(fs, dir, nil, after, known, each)
	return s.Report, err
}

// segment is one file of the log.
type segment struct {
	first uint64
	size  int64
}

// scanned is what a log holds, with what is needed to go on writing.
type scanned struct {
	Report
	segments []segment // all, also those before the first that was read
	next     uint64    // the sequence that comes after the last entry; 0 without segments
	offset   int64     // where the next batch goes in the last segment
	ended    int64     // bytes of the empty batch there, which shows that all before it was synced; 0 if there is none
	sum      uint32    // checksum of the header of the last segment
	synced   uint64    // what the last batch of the last segment says was on the disk
	tail     []byte    // the batches of the last segment that are not known to be on the disk
}

// scan reads all segments with entries after a sequence. A storeID that is not nil must be the one in their headers. The log
// must have the entries up to known.
//
// Only the last segment can have a torn tail, since a segment is synced before the next one gets its name.
func scan(fs disk.FS, dir string, storeID *[16]byte, after, known uint64, each func(uint64, []byte) error) (s scanned, err error) {
	names, err := fs.List(dir)
	if err != nil {
		return s, fmt.Errorf("list the log: %w", err)
	}
	firsts := segmentFirsts(names)
	start := 0 // the last segment that begins at or before the first entry that is wanted
	for i, first := range firsts {
		if first <= after+1 {
			start = i
		}
		s.segments = append(s.segments, segment{first: first})
	}
	if len(firsts) > 0 && firsts[start] > after+1 {
		return s, fmt.Errorf("%w: entries %d to %d are missing, the first segment is %s",
			ErrCorrupt, after+1, firsts[start]-1, filepath.Join(dir, segmentName(firsts[start])))
	}
	for i := range start {
		if s.segments[i].size, err = fileSize(fs, filepath.Join(dir, segmentName(firsts[i]))); err != nil {
			return s, fmt.Errorf("read the log: %w", err)
		}
	}
	var data []byte
	for i := start; i < len(firsts); i++ {
		path := filepath.Join(dir, segmentName(firsts[i]))
		if data, err = disk.ReadFile(fs, path, data); err != nil {
			return s, fmt.Errorf("read the log: %w", err)
		}
		s.segments[i].size = int64(len(data))
		s.Segments++
		s.Bytes += int64(len(data))
		if err := s.segment(path, data, firsts[i], storeID, after, each); err != nil {
			return s, err
		}
		storeID = &s.StoreID
		if i+1 < len(firsts) && s.next != firsts[i+1] {
			return s, damaged(path, s.offset, s.next, fmt.Sprintf("the next segment begins with entry %d", firsts[i+1]))
		}
	}
	last := dir
	if len(firsts) > 0 {
		last = filepath.Join(dir, segmentName(firsts[len(firsts)-1]))
		err = s.end(last, data)
	}
	if err == nil && known >= max(s.next, after+1) {
		err = damaged(last, s.offset, max(s.next, after+1), fmt.Sprintf("the entries up to %d were on the disk", known))
	}
	return s, err
}

// segment reads the header and the batches of one segment.
func (s *scanned) segment(path string, data []byte, first uint64, storeID *[16]byte, after uint64, each func(uint64, []byte) error) error {
	id, inHeader, sum, err := decodeHeader(data)
	switch {
	case err != nil:
		return fmt.Errorf("segment %s: %w", path, err)
	case inHeader != first:
		return fmt.Errorf("segment %s: %w: its header names entry %d as the first", path, ErrCorrupt, inHeader)
	case storeID != nil && id != *storeID:
		return fmt.Errorf("segment %s: it belongs to store %x, not to %x", path, id, *storeID)
	}
	s.StoreID, s.next, s.sum, s.offset, s.synced, s.ended = id, first, sum, segmentHeader, 0, 0
	for {
		p, ok := parseBatch(data[s.offset:], sum)
		if !ok {
			return nil
		}
		if p.first != s.next {
			return damaged(path, s.offset, s.next, fmt.Sprintf("a batch that begins with entry %d is in its place", p.first))
		}
		if p.count == 0 {
			s.synced, s.ended = p.synced, p.size
			return nil
		}
		for range p.count {
			entry, ok := p.entry()
			if !ok {
				return damaged(path, s.offset, s.next, "its length exceeds its batch")
			}
			if s.next > after {
				if s.First == 0 {
					s.First = s.next
				}
				s.Last = s.next
				if err := each(s.next, entry); err != nil {
					return err
				}
			}
			s.next++
		}
		if len(p.body) > 0 {
			return damaged(path, s.offset, s.next, "its batch is longer than its entries")
		}
		s.offset, s.synced = s.offset+p.size, p.synced
	}
}

// end finds out what is behind the last batch of the last segment, and which batches are not known to be on the disk.
func (s *scanned) end(path string, data []byte) error {
	at := s.offset + s.ended
	if n := len(bytes.TrimRight(data[at:], "\x00")); n > 0 {
		s.Torn = &Torn{File: path, Offset: at, Bytes: int64(n)}
		if syncedLater(data[at:], s.sum, s.next) {
			return damaged(path, s.offset, s.next, "a later batch shows that it was on the disk")
		}
	}
	at = segmentHeader
	for at < s.offset {
		p, _ := parseBatch(data[at:], s.sum)
		if p.first > s.synced {
			break
		}
		at += p.size
	}
	s.tail = data[at:s.offset]
	return nil
}

func damaged(path string, offset int64, seq uint64, why string) error {
	return fmt.Errorf("%w: %s: entry %d at offset %d is damaged or missing: %s",
		ErrCorrupt, path, seq, offset, why)
}

func fileSize(fs disk.FS, path string) (size int64, err error) {
	f, err := fs.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return f.Size()
}
