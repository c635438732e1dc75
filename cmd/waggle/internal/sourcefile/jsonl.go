package sourcefile

import (
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

// jsonReader reads objects that are sources or their specs.
type jsonReader struct{ objects *Objects }

// Next implements [Reader].
func (r *jsonReader) Next() (Entry, error) {
	object, err := r.objects.Next()
	if err != nil || object.Err != nil {
		return Entry{Line: object.Line, Err: object.Err}, err
	}
	spec, err := parseJSON(object.Text)
	return Entry{Line: object.Line, Spec: spec, Err: err}, nil
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
	if err := WriteObject(w.out, Minimal(spec)); err != nil {
		return nil, fmt.Errorf("source %s: %w", spec.GetId(), err)
	}
	return nil, nil
}

// Close implements [Writer].
func (*jsonWriter) Close() error { return nil }
