package sourcefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Object is a JSON object or a line of a file, or what is wrong with where one should be.
type Object struct {
	Line int // where it begins, from 1
	Text []byte
	// Err says why there is no text; the objects after it can be read.
	Err error
}

// Objects reads a JSON object a line, or objects over several lines as they are
// indented for people: those begin with a line { and end with a line }.
type Objects struct{ lines lines }

// OpenObjects reads a file of objects. Gzip and byte order marks are seen through.
func OpenObjects(in io.Reader) (*Objects, error) {
	text, err := decode(in)
	if err != nil {
		return nil, err
	}
	return &Objects{lines: lines{in: text}}, nil
}

// Next gives the next object, whose text is good until the call after. io.EOF: there is
// none; any other error: the rest of the file cannot be read.
func (r *Objects) Next() (Object, error) {
	for {
		line, wrong, err := r.lines.next()
		if err != nil {
			return Object{}, fatal(r.lines.number+1, err)
		}
		begin := r.lines.number
		if wrong != nil {
			return Object{Line: begin, Err: wrong}, nil
		}
		text := bytes.TrimSpace(line)
		if len(text) == 0 {
			continue
		}
		if string(line) == "{" {
			if text, wrong, err = r.indented(); err != nil {
				return Object{}, fatal(r.lines.number+1, err)
			}
			if wrong != nil {
				return Object{Line: begin, Err: wrong}, nil
			}
		}
		return Object{Line: begin, Text: text}, nil
	}
}

// indented reads the rest of an object that a line { began.
func (r *Objects) indented() (text []byte, wrong, err error) {
	text = []byte("{")
	for {
		line, bad, err := r.lines.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil, errors.New("the file ends within it"), nil
		case err != nil:
			return nil, nil, err
		case bad != nil:
			wrong = bad
		case len(text)+len(line) > MaxRecord:
			wrong, text = errTooLong, text[:1]
		case wrong == nil:
			text = append(append(text, '\n'), line...)
		}
		if string(line) == "}" {
			return text, wrong, nil
		}
	}
}

// WriteObject writes a message as an object in a line, with the names of the .proto
// files and without what is not set.
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
