package sourcefile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"golang.org/x/net/html"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/textfile"
)

// Formats are the names of the formats that can be read.
func Formats() []Format { return []Format{CSV, JSONL, OPML, Sitemap, URLs} }

// WriteFormats are the names of the formats that can be written.
func WriteFormats() []Format { return []Format{CSV, JSONL, OPML, URLs} }

// Open reads the file of that name in a format; if format is empty, in the one that its name or its beginning shows. Gzip
// and byte order marks are seen through.
func Open(in io.Reader, name string, format Format) (Reader, Format, error) {
	text, err := textfile.Decode(in)
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
		r = &jsonReader{textfile.NewLines(text)}
	case OPML, Sitemap:
		var x *xmlText
		x, err = newXMLText(text)
		if r = (&opmlReader{xml: x}); format == Sitemap {
			r = &sitemapReader{xml: x}
		}
	case URLs:
		r = &urlReader{textfile.NewLines(text)}
	default:
		err = fmt.Errorf("format %q is not known; say csv, jsonl, opml, sitemap, urls", format)
	}
	return mending{r}, format, err
}

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

// byExtension is the format of an extension that leaves no doubt. The root of XML shows its format.
func byExtension(name string) Format {
	name = strings.TrimSuffix(strings.ToLower(name), ".gz")
	switch path.Ext(name) {
	case ".csv", ".tsv":
		return CSV
	case ".jsonl", ".ndjson", ".json":
		return JSONL
	case ".opml":
		return OPML
	case ".urls":
		return URLs
	}
	return ""
}

// detect finds the format of a file by its name, else by how it begins.
func detect(text *bufio.Reader, name string) (Format, error) {
	if format := byExtension(name); format != "" {
		return format, nil
	}
	head, err := peek(text)
	if err != nil {
		return "", err
	}
	trimmed := bytes.TrimSpace(head)
	switch {
	case bytes.HasPrefix(trimmed, []byte("<")):
		return byRoot(head)
	case bytes.HasPrefix(trimmed, []byte("{")):
		return JSONL, nil
	}
	if bytes.IndexByte(head, 0) >= 0 {
		return "", errBinary
	}
	line, _, _ := strings.Cut(string(trimmed), "\n")
	if !strings.Contains(line, "://") && isHeader(line) {
		return CSV, nil
	}
	return URLs, nil
}

// errBinary says that a file holds bytes that no text has.
var errBinary = errors.New("it is a binary file, no text: neither OPML, CSV, JSON lines, a sitemap nor a list of URLs")

// byRoot finds what an XML file is by its outermost element.
func byRoot(head []byte) (Format, error) {
	tags := html.NewTokenizer(bytes.NewReader(head))
	for {
		switch tags.Next() {
		case html.ErrorToken:
			return "", fmt.Errorf("no XML element begins in the first %d bytes", textfile.LookAhead)
		case html.StartTagToken, html.SelfClosingTagToken:
		default:
			continue
		}
		name, _ := tags.TagName()
		switch _, root := splitName(string(name)); root {
		case "opml":
			return OPML, nil
		case "urlset", "sitemapindex":
			return Sitemap, nil
		case "rss", "feed", "rdf":
			return "", fmt.Errorf("it is a feed itself (<%s>), no list of feeds; `waggle source create` registers it by its URL", root)
		default:
			return "", fmt.Errorf("<%s> is neither OPML nor a sitemap", root)
		}
	}
}
