package sourcefile

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// lookAhead is how much of a file is looked at to tell its format, in bytes.
const lookAhead = 64 << 10

// decode sees through gzip, and turns UTF-16 with a byte order mark into UTF-8;
// a byte order mark is left out.
func decode(in io.Reader) (*bufio.Reader, error) {
	raw := bufio.NewReaderSize(in, lookAhead)
	magic, err := raw.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read: %w", err)
	}
	var text io.Reader = raw
	if string(magic) == "\x1f\x8b" {
		if text, err = gzip.NewReader(raw); err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
	}
	return bufio.NewReaderSize(transform.NewReader(text, unicode.BOMOverride(transform.Nop)), lookAhead), nil
}

// budget is a reader that gives no more than about MaxRecord bytes between two
// resets, so that a parser cannot be made to keep a whole file in memory.
type budget struct {
	in   io.Reader
	left int
}

func newBudget(in io.Reader) *budget { return &budget{in: in, left: MaxRecord} }

// Read implements [io.Reader].
func (b *budget) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLong
	}
	n, err := b.in.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// reset begins the next entry.
func (b *budget) reset() { b.left = MaxRecord }

// lines gives the lines of a text without their ends.
type lines struct {
	in     *bufio.Reader
	number int // of the line given last
}

// next gives the next line; it is good until the call after. One that is too
// long or no UTF-8 is passed over, and err says so; io.EOF: there is none.
func (l *lines) next() (line []byte, wrong, err error) {
	for {
		part, err := l.in.ReadSlice('\n')
		if len(line)+len(part) <= MaxRecord {
			line = append(line, part...)
		} else {
			wrong, line = errTooLong, nil
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return nil, nil, err
		case err != nil && len(line) == 0 && wrong == nil:
			return nil, nil, io.EOF
		}
		l.number++
		if wrong == nil && !utf8.Valid(line) {
			wrong = errNotUTF8
		}
		for len(line) > 0 && (line[len(line)-1] == '\n' || line[len(line)-1] == '\r') {
			line = line[:len(line)-1]
		}
		return line, wrong, nil
	}
}

var errNotUTF8 = errors.New("is not in UTF-8")

// Lines reads a text line by line.
type Lines struct{ lines lines }

// OpenLines reads a text. Gzip and byte order marks are seen through.
func OpenLines(in io.Reader) (*Lines, error) {
	text, err := decode(in)
	if err != nil {
		return nil, err
	}
	return &Lines{lines{in: text}}, nil
}

// Next gives the next line without its end, or what is wrong with it; its text is good
// until the call after. io.EOF: there is none; any other error: the rest cannot be read.
func (l *Lines) Next() (Object, error) {
	text, wrong, err := l.lines.next()
	if err != nil {
		return Object{}, fatal(l.lines.number+1, err)
	}
	return Object{Line: l.lines.number, Text: text, Err: wrong}, nil
}
