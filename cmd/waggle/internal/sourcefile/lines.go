package sourcefile

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/textfile"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// jsonReader reads objects that are sources or their specs.
type jsonReader struct{ lines *textfile.Lines }

// Next implements [Reader].
func (r *jsonReader) Next() (Entry, error) {
	object, err := r.lines.NextObject()
	if err != nil || object.Err != nil {
		return Entry{Line: object.Line, Err: object.Err}, err
	}
	source, err := ParseJSON(object.Text)
	return Entry{Line: object.Line, Spec: source.GetSpec(), Err: err}, nil
}

// ParseJSON reads a Source, or a SourceSpec as a source that has nothing else.
func ParseJSON(text []byte) (*pb.Source, error) {
	var outer map[string]json.RawMessage
	if err := json.Unmarshal(text, &outer); err != nil {
		return nil, fmt.Errorf("is no JSON object: %w", textfile.PlainJSON(err))
	}
	source := &pb.Source{Spec: &pb.SourceSpec{}}
	if _, whole := outer["spec"]; whole {
		if err := textfile.Unmarshal(text, source); err != nil {
			return nil, fmt.Errorf("is no Source: %w", err)
		}
	} else if err := textfile.Unmarshal(text, source.GetSpec()); err != nil {
		return nil, fmt.Errorf("is no SourceSpec: %w", err)
	}
	return source, nil
}

// jsonWriter writes a SourceSpec a line.
type jsonWriter struct{ out io.Writer }

// Write implements [Writer].
func (w *jsonWriter) Write(spec *pb.SourceSpec) ([]string, error) {
	if err := textfile.WriteObject(w.out, Minimal(spec)); err != nil {
		return nil, fmt.Errorf("source %s: %w", spec.GetId(), err)
	}
	return nil, nil
}

// Close implements [Writer].
func (*jsonWriter) Close() error { return nil }

// urlReader reads a list of URLs.
type urlReader struct{ lines *textfile.Lines }

// Next implements [Reader].
func (r *urlReader) Next() (Entry, error) {
	for {
		line, err := r.lines.Next()
		if err != nil || line.Err != nil {
			return Entry{Line: line.Line, Err: line.Err}, err
		}
		if url := strings.TrimSpace(string(line.Text)); url != "" && !strings.HasPrefix(url, "#") {
			return Entry{Line: line.Line, Spec: urlSpec(url, "")}, nil
		}
	}
}

// urlWriter writes the URLs of seeds.
type urlWriter struct{ out io.Writer }

// Write implements [Writer].
func (w *urlWriter) Write(spec *pb.SourceSpec) ([]string, error) {
	var first *pb.SourceSpec
	for _, seed := range spec.GetSeeds() {
		if seed.GetUrl() == "" {
			continue
		}
		if _, err := fmt.Fprintln(w.out, seed.GetUrl()); err != nil {
			return nil, fmt.Errorf("write: %w", err)
		}
		if first == nil {
			first = urlSpec(seed.GetUrl(), "")
			first.Id = ID("", seed.GetUrl())
		}
	}
	if first == nil {
		return []string{Everything}, nil
	}
	return lost(spec, first), nil
}

// Close implements [Writer].
func (*urlWriter) Close() error { return nil }
