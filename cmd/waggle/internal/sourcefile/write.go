package sourcefile

import (
	"fmt"
	"io"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Writer writes sources to a file.
type Writer interface {
	// Write adds a source and names the fields of its spec that the format cannot hold, as SourceSpec spells them, or
	// [Everything].
	Write(spec *pb.SourceSpec) (lost []string, err error)
	// Close ends the file. It does not close what lies below.
	Close() error
}

// Everything stands for all fields of a source of which the format can hold nothing.
const Everything = "*"

// WriteFormats are the names of the formats that can be written.
func WriteFormats() []Format { return []Format{CSV, JSONL, OPML, URLs} }

// Create begins a file of a format.
func Create(out io.Writer, format Format) (Writer, error) {
	switch format {
	case CSV:
		return newCSVWriter(out)
	case JSONL:
		return &jsonWriter{out: out}, nil
	case OPML:
		return newOPMLWriter(out)
	case URLs:
		return &urlWriter{out: out}, nil
	case Sitemap:
	}
	return nil, fmt.Errorf("format %q cannot be written; say csv, jsonl, opml, urls", format)
}
