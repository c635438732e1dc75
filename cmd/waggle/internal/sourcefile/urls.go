package sourcefile

import (
	"fmt"
	"io"
	"strings"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// urlReader reads a list of URLs.
type urlReader struct{ lines lines }

// Next implements [Reader].
func (r *urlReader) Next() (Entry, error) {
	for {
		line, wrong, err := r.lines.next()
		if err != nil {
			return Entry{}, fatal(r.lines.number+1, err)
		}
		if wrong != nil {
			return Entry{Line: r.lines.number, Err: wrong}, nil
		}
		url := strings.TrimSpace(string(line))
		if url == "" || strings.HasPrefix(url, "#") {
			continue
		}
		return Entry{Line: r.lines.number, Spec: urlSpec(url, "")}, nil
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
		return NothingHeld(), nil
	}
	return lost(spec, first), nil
}

// Close implements [Writer].
func (*urlWriter) Close() error { return nil }
