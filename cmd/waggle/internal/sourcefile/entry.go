package sourcefile

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Format is a way to write a list of sources.
type Format string

// The formats.
const (
	// CSV has a header that names columns; see [Columns]. Commas, semicolons or
	// tabs, whichever the header has.
	CSV Format = "csv"
	// JSONL has a SourceSpec a line, or a Source, whose spec is taken.
	JSONL Format = "jsonl"
	// OPML has feeds as outlines. Outlines around a feed become its label
	// "category", joined by slashes.
	OPML Format = "opml"
	// Sitemap is a sitemap, each page of which is a source, or an index of
	// sitemaps, each sitemap of which is one.
	Sitemap Format = "sitemap"
	// URLs has a URL a line; empty lines and those that begin with # are left
	// out.
	URLs Format = "urls"
)

// Formats are the names of the formats that can be read.
func Formats() []Format { return []Format{CSV, JSONL, OPML, Sitemap, URLs} }

// MaxRecord bounds an entry of a file in bytes: a spec of 1,000 seeds with the
// longest URLs fits.
const MaxRecord = 4 << 20

// Kinds of seeds that the formats imply, as the web collector knows them.
const (
	kindFeed    = "feed"
	kindSitemap = "sitemap"
)

// CategoryLabel is the label that holds the outlines around a feed.
const CategoryLabel = "category"

// Entry is one source of a file, or what is wrong with it.
type Entry struct {
	Line int // where it begins, from 1
	// Spec has an id only where the file gives one. With Err it is nil, or what could
	// be read, to say of which entry it is.
	Spec *pb.SourceSpec
	// Err says why the entry is no source; the entries after it can be read.
	Err error
}

// Reader gives the entries of a file in turn.
type Reader interface {
	// Next gives the next entry. io.EOF: there is none; any other error: the
	// rest of the file cannot be read.
	Next() (Entry, error)
}

// Open reads the file of that name, in a format or, when format is empty, in
// the one that its name or its beginning shows. Gzip and byte order marks are
// seen through.
func Open(in io.Reader, name string, format Format) (Reader, Format, error) {
	text, err := decode(in)
	if err != nil {
		return nil, "", err
	}
	if format == "" {
		if format, err = detect(text, name); err != nil {
			return nil, "", err
		}
	}
	var r Reader
	switch format {
	case CSV:
		r, err = newCSVReader(text)
	case JSONL:
		r = &jsonReader{objects: &Objects{lines: lines{in: text}}}
	case OPML:
		r = newOPMLReader(text)
	case Sitemap:
		r = newSitemapReader(text)
	case URLs:
		r = &urlReader{lines: lines{in: text}}
	default:
		err = fmt.Errorf("format %q is not known; say %s", format, names(Formats()))
	}
	return r, format, err
}

func names(formats []Format) string {
	text := make([]string, len(formats))
	for i, f := range formats {
		text[i] = string(f)
	}
	return strings.Join(text, ", ")
}

// Writer writes sources to a file.
type Writer interface {
	// Write adds a source and names the fields of its spec that the format
	// cannot hold, as SourceSpec spells them. [NothingHeld]: nothing was
	// written.
	Write(spec *pb.SourceSpec) (lost []string, err error)
	// Close ends the file. It does not close what lies below.
	Close() error
}

// NothingHeld is what Write gives for a source of which the format can hold
// nothing.
func NothingHeld() []string { return []string{"*"} }

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
	return nil, fmt.Errorf("format %q cannot be written; say %s", format, names(WriteFormats()))
}

var errTooLong = fmt.Errorf("an entry is longer than %d bytes", MaxRecord)

// fatal is an error after which the rest cannot be read, with where it was.
func fatal(line int, err error) error {
	if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return fmt.Errorf("line %d: %w", line, err)
}

// urlSpec is the spec of a source that is nothing but a URL.
func urlSpec(url, kind string) *pb.SourceSpec {
	return &pb.SourceSpec{Seeds: []*pb.Seed{{Url: url, Kind: kind}}}
}

// sortedKeys gives what differs, in an order that does not.
func sortedKeys(m map[string]bool) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
