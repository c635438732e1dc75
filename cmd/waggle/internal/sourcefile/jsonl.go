package sourcefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/duration"
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
		return nil, fmt.Errorf("is no JSON object: %w", PlainJSON(err))
	}
	if _, whole := outer["spec"]; whole {
		var source pb.Source
		if err := protojson.Unmarshal(text, &source); err != nil {
			return nil, fmt.Errorf("is no Source: %w", PlainJSON(err))
		}
		return source.GetSpec(), nil
	}
	spec := &pb.SourceSpec{}
	if err := protojson.Unmarshal(text, spec); err != nil {
		return nil, fmt.Errorf("is no SourceSpec: %w", PlainJSON(err))
	}
	return spec, nil
}

// wrongDuration is how the protobuf library refuses a duration.
var wrongDuration = regexp.MustCompile(`invalid google\.protobuf\.Duration value "([^"]*)"`)

// PlainJSON is an error of protojson or encoding/json for people: without what the
// library puts before it and types of Go, and with how a duration has to be written.
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
