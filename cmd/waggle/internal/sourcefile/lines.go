package sourcefile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/textfile"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// eachEntry adds the entry of each line, or object, that next gives; parse may leave one out.
func eachEntry(next func() (textfile.Entry, error), add func(Entry) error, parse func([]byte) (*pb.SourceSpec, error)) error {
	for {
		from, err := next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		e := Entry{Line: from.Line, Err: from.Err}
		if e.Err == nil {
			e.Spec, e.Err = parse(from.Text)
		}
		if e.Spec == nil && e.Err == nil {
			continue
		}
		if err := add(e); err != nil {
			return err
		}
	}
}

// readJSONL reads objects that are sources or their specs.
func readJSONL(text []byte, add func(Entry) error) error {
	return eachEntry(textfile.NewLines(bufio.NewReader(bytes.NewReader(text))).NextObject, add, func(object []byte) (*pb.SourceSpec, error) {
		source, err := ParseJSON(object)
		return source.GetSpec(), err
	})
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

// readURLs reads a list of URLs.
func readURLs(text []byte, add func(Entry) error) error {
	return eachEntry(textfile.NewLines(bufio.NewReader(bytes.NewReader(text))).Next, add, func(line []byte) (*pb.SourceSpec, error) {
		url := strings.TrimSpace(string(line))
		if url == "" || strings.HasPrefix(url, "#") {
			return nil, nil //nolint:nilnil // it is left out
		}
		return urlSpec(url, ""), nil
	})
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
