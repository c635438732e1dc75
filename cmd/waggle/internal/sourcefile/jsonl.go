package sourcefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// jsonReader reads a JSON object a line, or objects over several lines as they
// are indented for people: those begin with a line { and end with a line }.
type jsonReader struct{ lines lines }

// Next implements [Reader].
func (r *jsonReader) Next() (Entry, error) {
	for {
		line, wrong, err := r.lines.next()
		if err != nil {
			return Entry{}, fatal(r.lines.number+1, err)
		}
		begin := r.lines.number
		if wrong != nil {
			return Entry{Line: begin, Err: wrong}, nil
		}
		text := bytes.TrimSpace(line)
		if len(text) == 0 {
			continue
		}
		if string(line) == "{" {
			if text, wrong, err = r.indented(); err != nil {
				return Entry{}, fatal(r.lines.number+1, err)
			}
			if wrong != nil {
				return Entry{Line: begin, Err: wrong}, nil
			}
		}
		spec, err := parseJSON(text)
		return Entry{Line: begin, Spec: spec, Err: err}, nil
	}
}

// indented reads the rest of an object that a line { began.
func (r *jsonReader) indented() (text []byte, wrong, err error) {
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

func parseJSON(text []byte) (*pb.SourceSpec, error) {
	var outer map[string]json.RawMessage
	if err := json.Unmarshal(text, &outer); err != nil {
		return nil, fmt.Errorf("is no JSON object: %w", err)
	}
	if _, whole := outer["spec"]; whole {
		var source pb.Source
		if err := protojson.Unmarshal(text, &source); err != nil {
			return nil, fmt.Errorf("is no Source: %s", plainProto(err))
		}
		return source.GetSpec(), nil
	}
	spec := &pb.SourceSpec{}
	if err := protojson.Unmarshal(text, spec); err != nil {
		return nil, fmt.Errorf("is no SourceSpec: %s", plainProto(err))
	}
	return spec, nil
}

// plainProto takes off what the protobuf library puts before its errors, and
// the no-break space in it.
func plainProto(err error) string {
	return strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: ")
}

// jsonWriter writes a SourceSpec a line.
type jsonWriter struct{ out io.Writer }

// Write implements [Writer].
func (w *jsonWriter) Write(spec *pb.SourceSpec) ([]string, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(Minimal(spec))
	if err != nil {
		return nil, fmt.Errorf("source %s: %w", spec.GetId(), err)
	}
	// The library varies its white space on purpose; files should not.
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil {
		return nil, fmt.Errorf("source %s: %w", spec.GetId(), err)
	}
	line.WriteByte('\n')
	if _, err := line.WriteTo(w.out); err != nil {
		return nil, fmt.Errorf("write: %w", err)
	}
	return nil, nil
}

// Close implements [Writer].
func (*jsonWriter) Close() error { return nil }
