package sourcefile

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// extensions that leave no doubt. What is XML is told by its root.
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

// detect tells the format of a file by its name, else by how it begins.
func detect(text *bufio.Reader, name string) (Format, error) {
	if format := byExtension(name); format != "" {
		return format, nil
	}
	head, err := text.Peek(lookAhead)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return "", fmt.Errorf("read: %w", err)
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

// byRoot tells what an XML file is by its outermost element.
func byRoot(head []byte) (Format, error) {
	decoder := newXML(bytes.NewReader(head))
	for {
		token, err := decoder.Token()
		if err != nil {
			return "", fmt.Errorf("no XML element begins in the first %d bytes: %w", lookAhead, err)
		}
		start, is := token.(xml.StartElement)
		if !is {
			continue
		}
		switch start.Name.Local {
		case "opml":
			return OPML, nil
		case "urlset", "sitemapindex":
			return Sitemap, nil
		case "rss", "feed", "RDF":
			return "", fmt.Errorf("it is a feed itself (<%s>), no list of feeds; `waggle source create` registers it by its URL", start.Name.Local)
		}
		return "", fmt.Errorf("<%s> is neither OPML nor a sitemap", start.Name.Local)
	}
}
