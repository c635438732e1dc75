package dir

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/bits"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk"
	"github.com/waggle-crawl/waggle/store/codec"
)

// A run is a file of tasks that are over, sorted by their keys, which never changes. Memory has its index: for each block the first key,
// and for each entry a mark of two bytes. So a task that nobody has seen costs no read, but for one in about a thousand, and any other
// one a read of one block.
//
// A database was considered (Pebble). It keeps its own log and manifest, so its state and a snapshot do not become valid in one step, but
// by copies of both; and a full disk ends the process.
const (
	runMagic  = "WAGGRUN\n"
	runPrefix = "run-"
	runFooter = 64
	// blockBytes is about how large the content of a block is, indexBytes that of a part of the index.
	blockBytes = 4 << 10
	indexBytes = 256 << 10
)

// run is one that is open.
type run struct {
	named  runName
	path   string
	file   disk.File
	blocks []block // and one behind the last
	marks  []uint16
	// since and until are the first and the last instant at which a task is forgotten, in ms since 1970; 0: there is none.
	since, until int64
	// look is when it is next looked through for tasks whose time has come.
	look int64

	// users read it; retired: it is closed when there are none. The mutex of [runs] guards both.
	users   int
	retired bool
}

// block is where a block begins, with the first eight bytes of its first key, and the number of its first entry.
type block struct {
	first  uint64
	offset int64
	entry  int
}

// runName is what a snapshot has of a run: its number, its size, and the checksum of its footer.
type runName struct {
	number uint64
	bytes  int64
	sum    uint32
}

func (n *runName) fields(c *codec.Codec) {
	codec.Uint(c, 1, &n.number)
	codec.Int(c, 2, &n.bytes)
	codec.Uint(c, 3, &n.sum)
}

func runFile(number uint64) string {
	return fmt.Sprintf("%s%020d%s", runPrefix, number, snapshotSuffix)
}

// runNumber reads what runFile wrote.
func runNumber(name string) (uint64, bool) {
	n, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(name, runPrefix), snapshotSuffix), 10, 64)
	return n, err == nil && name == runFile(n)
}

// keyStart and keyMark are the parts of a key that an index has.
func keyStart(key [16]byte) uint64 { return binary.BigEndian.Uint64(key[:]) }
func keyMark(key [16]byte) uint16  { return binary.LittleEndian.Uint16(key[14:]) }

// lookAt is when the tasks of a run that are forgotten between two instants are worth a look: an eighth of that late.
func lookAt(since, until int64) int64 {
	if until == 0 {
		return math.MaxInt64
	}
	return since + (until-since)/8
}

// runWriter writes a run.
type runWriter struct {
	run     *run
	file    *newFile
	out     *bufio.Writer
	offset  int64
	content []byte // of the block under way
	header  uint32 // its checksum
}

// newRun begins a run.
func (b *Backend) newRun(number uint64) (*runWriter, error) {
	f, err := createFile(b.config.fs, b.config.Dir, runFile(number))
	if err != nil {
		return nil, err
	}
	w := &runWriter{file: f, out: bufio.NewWriterSize(f, 256<<10), offset: snapshotHeader}
	w.run = &run{named: runName{number: number}, path: filepath.Join(b.config.Dir, runFile(number)), since: math.MaxInt64}
	header := b.header(runMagic, number)
	w.header = binary.LittleEndian.Uint32(header[snapshotHeader-4:])
	_, err = w.out.Write(header)
	return w, err
}

// add adds an entry, whose key is above those of all before.
func (w *runWriter) add(a *codec.Apart) error {
	if len(w.content) == 0 {
		w.run.blocks = append(w.run.blocks, block{first: keyStart(a.Key), offset: w.offset, entry: len(w.run.marks)})
	}
	w.content = append(w.content, a.Entry...)
	w.run.marks = append(w.run.marks, keyMark(a.Key))
	if a.Until != 0 {
		w.run.since, w.run.until = min(w.run.since, a.Until), max(w.run.until, a.Until)
	}
	if len(w.content) < blockBytes {
		return nil
	}
	return w.frame()
}

// frame ends the block under way.
func (w *runWriter) frame() error {
	err := writeFrame(w.out, w.content)
	w.offset += frameHeader + int64(len(w.content))
	w.content = w.content[:0]
	return err
}

// end ends the run, which is on the disk then. After an error, this one or its own, there is nothing of it.
func (w *runWriter) end(err error) (*run, error) {
	if err == nil && len(w.content) > 0 {
		err = w.frame()
	}
	r, index := w.run, w.offset
	r.blocks = append(r.blocks, block{offset: index, entry: len(r.marks)})
	for i := 0; err == nil && i < len(r.blocks)-1; i++ {
		at, next := r.blocks[i], r.blocks[i+1]
		w.content = binary.LittleEndian.AppendUint64(w.content, at.first)
		w.content = binary.LittleEndian.AppendUint32(w.content, uint32(next.offset-at.offset-frameHeader)) //nolint:gosec // a block
		w.content = binary.LittleEndian.AppendUint32(w.content, uint32(next.entry-at.entry))               //nolint:gosec // of a block
		for _, mark := range r.marks[at.entry:next.entry] {
			w.content = binary.LittleEndian.AppendUint16(w.content, mark)
		}
		if len(w.content) >= indexBytes || i == len(r.blocks)-2 {
			err = w.frame()
		}
	}
	footer := make([]byte, runFooter)
	if r.until == 0 {
		r.since = 0
	}
	for i, n := range []int64{index, int64(len(r.marks)), int64(len(r.blocks) - 1), r.since, r.until} {
		binary.LittleEndian.PutUint64(footer[8*i:], uint64(n)) //nolint:gosec // not negative
	}
	r.named.sum = crc32.Update(w.header, castagnoli, footer[:runFooter-4])
	binary.LittleEndian.PutUint32(footer[runFooter-4:], r.named.sum)
	if err == nil {
		_, err = w.out.Write(footer)
		err = cmp.Or(err, w.out.Flush())
	}
	if err := w.file.keep(runFile(r.named.number), err); err != nil {
		return nil, err
	}
	r.named.bytes, r.look = w.offset+runFooter, lookAt(r.since, r.until)
	r.blocks, r.marks = slices.Clip(r.blocks), slices.Clip(r.marks)
	r.file, err = w.file.fs.Open(r.path)
	return r, err
}

// openRun opens the run that a snapshot names.
func (b *Backend) openRun(named runName) (*run, error) {
	r := &run{named: named, path: filepath.Join(b.config.Dir, runFile(named.number))}
	var err error
	if r.file, err = b.config.fs.Open(r.path); err == nil {
		if err = b.readIndex(r); err != nil {
			err = errors.Join(err, r.file.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", backend.ErrDamaged, r.path, err)
	}
	return r, nil
}

// readIndex reads all of a run but its blocks.
func (b *Backend) readIndex(r *run) error {
	size, err := r.file.Size()
	if err != nil {
		return err
	}
	ends := make([]byte, snapshotHeader+runFooter)
	header, footer := ends[:snapshotHeader], ends[snapshotHeader:]
	if size != r.named.bytes || size < int64(len(ends)) {
		return fmt.Errorf("it has %d bytes, and must have %d", size, r.named.bytes)
	}
	_, err = r.file.ReadAt(header, 0)
	if err == nil {
		_, err = r.file.ReadAt(footer, size-runFooter)
	}
	if err != nil {
		return err
	}
	if want := b.header(runMagic, r.named.number); !bytes.Equal(header, want) {
		return errors.New("its header is damaged")
	}
	sum := crc32.Update(binary.LittleEndian.Uint32(header[snapshotHeader-4:]), castagnoli, footer[:runFooter-4])
	if sum != binary.LittleEndian.Uint32(footer[runFooter-4:]) || sum != r.named.sum {
		return errors.New("its footer is damaged, or it is another one")
	}
	number := func(i int) int64 { return int64(binary.LittleEndian.Uint64(footer[8*i:])) } //nolint:gosec // as it was written
	index := number(0)
	r.since, r.until = number(3), number(4)
	r.look = lookAt(r.since, r.until)
	r.marks, r.blocks = make([]uint16, 0, number(1)), make([]block, 0, number(2)+1)
	at := int64(snapshotHeader)
	frames := bufio.NewReaderSize(io.NewSectionReader(r.file, index, size-runFooter-index), indexBytes)
	err = readFrames(frames, func(content []byte) error {
		for len(content) >= 16 {
			length, entries := binary.LittleEndian.Uint32(content[8:]), int(binary.LittleEndian.Uint32(content[12:]))
			r.blocks = append(r.blocks, block{binary.LittleEndian.Uint64(content), at, len(r.marks)})
			at += frameHeader + int64(length)
			if content = content[16:]; len(content) < 2*entries {
				return errors.New("its index is cut off")
			}
			for i := range entries {
				r.marks = append(r.marks, binary.LittleEndian.Uint16(content[2*i:]))
			}
			content = content[2*entries:]
		}
		return nil
	})
	if r.blocks = append(r.blocks, block{offset: at, entry: len(r.marks)}); err == nil && (at != index || int64(len(r.marks)) != number(1)) {
		err = errors.New("its index is not whole")
	}
	return err
}

// readBlock reads a block into buf, or into a larger buffer.
func (r *run) readBlock(i int, buf []byte) ([]byte, error) {
	at, length := r.blocks[i].offset, int(r.blocks[i+1].offset-r.blocks[i].offset)
	buf = slices.Grow(buf[:0], length)[:length]
	_, err := r.file.ReadAt(buf, at)
	content := buf[frameHeader:]
	if err == nil && (int(binary.LittleEndian.Uint32(buf)) != len(content) || binary.LittleEndian.Uint32(buf[4:]) != crc32.Checksum(content, castagnoli)) {
		err = errors.New("its checksum is another one")
	}
	if err != nil {
		return buf, fmt.Errorf("%w: %s: the block at offset %d: %w", backend.ErrDamaged, r.path, at, err)
	}
	return buf, nil
}

// find finds the entry of a key. The entry is valid until buf is used again, which may be replaced by a larger one.
func (r *run) find(key [16]byte, buf *[]byte) (a codec.Apart, ok bool, err error) {
	start, mark := keyStart(key), keyMark(key)
	blocks := r.blocks[:len(r.blocks)-1]
	for i := lastBlock(blocks, start); i >= 0; i-- {
		if slices.Contains(r.marks[r.blocks[i].entry:r.blocks[i+1].entry], mark) {
			if *buf, err = r.readBlock(i, *buf); err != nil {
				return a, false, err
			}
			for rest := (*buf)[frameHeader:]; ; {
				if a, rest, ok = codec.CutApart(rest); !ok {
					break
				}
				if a.Key == key {
					return a, true, nil
				}
			}
		}
		if blocks[i].first != start { // else keys with that start are in the block before, too
			return a, false, nil
		}
	}
	return a, false, nil
}

// lastBlock is the last block whose first key begins with start or before; -1: there is none. Keys are hashes, so it is near its share of
// the blocks: a search among all of them would be most of what a task costs that is not there.
func lastBlock(blocks []block, start uint64) int {
	share, _ := bits.Mul64(start, uint64(len(blocks)))
	from, to := int(share), int(share) //nolint:gosec // less than there are blocks
	for step := 8; from > 0 && blocks[from].first > start; step *= 2 {
		from = max(from-step, 0)
	}
	for step := 8; to < len(blocks) && blocks[to].first <= start; step *= 2 {
		to = min(to+step, len(blocks))
	}
	return from + sort.Search(to-from, func(i int) bool { return blocks[from+i].first > start }) - 1
}

// runScan goes through a run.
type runScan struct {
	run   *run
	next  int // block
	buf   []byte
	rest  []byte
	entry codec.Apart
	ended bool
	// unread, unless nil, gets the error of a block that is left out.
	unread func(error)
}

// step goes to the next entry.
func (s *runScan) step() error {
	for len(s.rest) == 0 {
		if s.ended = s.next == len(s.run.blocks)-1; s.ended {
			return nil
		}
		var err error
		s.buf, err = s.run.readBlock(s.next, s.buf)
		s.next++
		switch {
		case err == nil:
			s.rest = s.buf[frameHeader:]
		case s.unread == nil:
			return err
		default:
			s.unread(err)
		}
	}
	entry, rest, ok := codec.CutApart(s.rest)
	if s.entry, s.rest = entry, rest; !ok {
		return fmt.Errorf("%w: %s: an entry cannot be read", backend.ErrDamaged, s.run.path)
	}
	return nil
}

// eachEntry gives the entries of runs, which are ordered from the oldest on, by their keys: of each key the newest one.
func eachEntry(ctx context.Context, of []*run, unread func(error), each func(*codec.Apart) error) error {
	scans := make([]*runScan, 0, len(of))
	for _, r := range slices.Backward(of) {
		s := &runScan{run: r, unread: unread}
		if err := s.step(); err != nil {
			return err
		}
		scans = append(scans, s)
	}
	for {
		var first *runScan
		for _, s := range scans {
			if !s.ended && (first == nil || bytes.Compare(s.entry.Key[:], first.entry.Key[:]) < 0) {
				first = s
			}
		}
		if first == nil {
			return nil
		}
		if err := cmp.Or(ctx.Err(), each(&first.entry)); err != nil {
			return err
		}
		for key, i := first.entry.Key, 0; i < len(scans); i++ {
			if s := scans[i]; !s.ended && s.entry.Key == key {
				if err := s.step(); err != nil {
					return err
				}
			}
		}
	}
}
