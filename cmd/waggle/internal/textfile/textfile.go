// Package textfile reads and writes files of lines and of JSON objects, of any length in little memory. What is wrong with
// one entry stands in its place, so that the others can be taken.
package textfile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/dispatch/duration"
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

// NextObject gives the next JSON object: one a line, or one over several lines as it is indented for people, which begins
// with a line { and ends with a line }. Errors are those of Next.
func (l *Lines) NextObject() (Entry, error) {
	for {
		line, err := l.Next()
		if err != nil || line.Err != nil {
			return line, err
		}
		if string(line.Text) == "{" {
			return l.indented(line.Line)
		}
		if line.Text = bytes.TrimSpace(line.Text); len(line.Text) > 0 {
			return line, nil
		}
	}
}

// indented reads the rest of an object that a line { began.
func (l *Lines) indented(begin int) (Entry, error) {
	object := Entry{Line: begin, Text: []byte("{")}
	for {
		line, err := l.Next()
		switch {
		case errors.Is(err, io.EOF):
			return Entry{Line: begin, Err: errors.New("the file ends within it")}, nil
		case err != nil:
			return Entry{}, err
		case line.Err != nil:
			object.Err = line.Err
		case len(object.Text)+len(line.Text) > MaxRecord:
			object.Err, object.Text = ErrTooLong, object.Text[:1]
		case object.Err == nil:
			object.Text = append(append(object.Text, '\n'), line.Text...)
		}
		if string(line.Text) == "}" {
			return object, nil
		}
	}
}

// WriteObject writes a message as an object in a line, with the names of the .proto files and without what is not set.
func WriteObject(out io.Writer, message proto.Message) error {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(message)
	if err != nil {
		return err
	}
	// The library varies its white space on purpose; files should not.
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil {
		return err
	}
	line.WriteByte('\n')
	if _, err := line.WriteTo(out); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// Unmarshal reads a message from JSON; its errors are for people.
func Unmarshal(text []byte, into proto.Message) error {
	if err := protojson.Unmarshal(text, into); err != nil {
		return PlainJSON(err)
	}
	return nil
}

// wrongDuration is how the protobuf library refuses a duration.
var wrongDuration = regexp.MustCompile(`invalid google\.protobuf\.Duration value "([^"]*)"`)

// PlainJSON is an error of protojson or encoding/json for people: without the library's prefix and the types of Go, and
// with how a duration has to be written.
func PlainJSON(err error) error {
	var other *json.UnmarshalTypeError
	if errors.As(err, &other) {
		return fmt.Errorf("it is of JSON's type %s", other.Value)
	}
	// The library keeps programs from reading its errors by a no-break space.
	text := strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: ")
	return errors.New(wrongDuration.ReplaceAllStringFunc(text, func(refusal string) string {
		value := wrongDuration.FindStringSubmatch(refusal)[1]
		seconds := "90s"
		if d, err := duration.Parse(value); err == nil {
			seconds = strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
		}
		return fmt.Sprintf("%q is no duration in JSON, where it is in seconds, as %q", value, seconds)
	}))
}
