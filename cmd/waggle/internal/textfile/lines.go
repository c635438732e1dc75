// Package textfile reads and writes files of lines and of JSON objects, of any length in little memory. What is wrong with
// one entry stands in its place, so that the others can be taken.
package textfile

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

const (
	// LookAhead is how much of a decoded file can be peeked at, in bytes.
	LookAhead = 64 << 10

	// MaxRecord bounds an entry of a file in bytes: a spec of 1,000 seeds with the longest URLs fits.
	MaxRecord = 4 << 20
)

// What can be wrong with an entry.
var (
	ErrTooLong = fmt.Errorf("an entry is longer than %d bytes", MaxRecord)
	ErrNotUTF8 = errors.New("is not in UTF-8")
)

// Decode sees through gzip, and turns UTF-16 with a byte order mark into UTF-8; it leaves out a byte order mark.
func Decode(in io.Reader) (*bufio.Reader, error) {
	raw := bufio.NewReaderSize(in, LookAhead)
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
	return bufio.NewReaderSize(transform.NewReader(text, unicode.BOMOverride(transform.Nop)), LookAhead), nil
}

// Fatal is an error after which the rest of a file cannot be read, with its line; io.EOF stays as it is.
func Fatal(line int, err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return fmt.Errorf("line %d: %w", line, err)
}

// Entry is a line or a JSON object of a file.
type Entry struct {
	Line int    // where it begins, from 1
	Text []byte // good until the next entry is read
	Err  error  // why there is no text; the entries after it can be read
}

// Lines reads a text line by line.
type Lines struct {
	in     *bufio.Reader
	number int // of the line given last
}

// NewLines reads a decoded text.
func NewLines(text *bufio.Reader) *Lines { return &Lines{in: text} }

// Next gives the next line without its end. io.EOF: there is none; any other error: the rest cannot be read.
func (l *Lines) Next() (Entry, error) {
	var line []byte
	var wrong error
	for {
		part, err := l.in.ReadSlice('\n')
		if len(line)+len(part) <= MaxRecord {
			line = append(line, part...)
		} else {
			wrong, line = ErrTooLong, nil
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return Entry{}, Fatal(l.number+1, err)
		case err != nil && len(line) == 0 && wrong == nil:
			return Entry{}, io.EOF
		}
		l.number++
		if wrong == nil && !utf8.Valid(line) {
			wrong = ErrNotUTF8
		}
		for len(line) > 0 && (line[len(line)-1] == '\n' || line[len(line)-1] == '\r') {
			line = line[:len(line)-1]
		}
		return Entry{Line: l.number, Text: line, Err: wrong}, nil
	}
}
