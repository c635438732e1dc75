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

// readJSONL reads objects that are sources or their specs.
func readJSONL(text []byte, add func(Entry) error) error {
	return eachEntry(textfile.NewLines(bufio.NewReader(bytes.NewReader(text))).NextObject, parseJSON, add)
}

// readURLs reads a list of URLs.
func readURLs(text []byte, add func(Entry) error) error {
	return eachEntry(textfile.NewLines(bufio.NewReader(bytes.NewReader(text))).Next, parseURL, add)
}

// eachEntry adds the entry of each line, or object, that next gives; parse may leave one out.
func eachEntry(next func() (textfile.Entry, error), parse func([]byte) (*pb.SourceSpec, error), add func(Entry) error) error {
	for {
		from, err := next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		e := Entry{Line: from.Line, Err: from.Err}
		if e.Err == nil && err == nil {
			e.Spec, e.Err = parse(from.Text)
		}
		if err == nil && (e.Spec != nil || e.Err != nil) {
			err = add(e)
		}
		if err != nil {
			return err
		}
	}
}

// parseJSON reads a Source or a SourceSpec.
func parseJSON(text []byte) (*pb.SourceSpec, error) {
	var outer map[string]json.RawMessage
	if err := json.Unmarshal(text, &outer); err != nil {
		return nil, fmt.Errorf("is no JSON object: %w", textfile.PlainJSON(err))
	}
	if _, whole := outer["spec"]; whole {
		source := &pb.Source{}
		if err := textfile.Unmarshal(text, source); err != nil {
			return nil, fmt.Errorf("is no Source: %w", err)
		}
		return source.GetSpec(), nil
	}
	spec := &pb.SourceSpec{}
	if err := textfile.Unmarshal(text, spec); err != nil {
		return spec, fmt.Errorf("is no SourceSpec: %w", err)
	}
	return spec, nil
}

func parseURL(line []byte) (*pb.SourceSpec, error) {
	url := strings.TrimSpace(string(line))
	if url == "" || strings.HasPrefix(url, "#") {
		return nil, nil //nolint:nilnil // it is left out
	}
	return urlSpec(url, ""), nil
}
