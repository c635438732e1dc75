// Package sourcefile reads and writes lists of sources: OPML, CSV, JSON lines, sitemaps and plain lists of URLs. What
// is wrong with one entry of a file stands in its place, so that the others can be taken. What a writer gives, the reader
// of the format reads back; what the format cannot hold, the writer names.
package sourcefile

import (
	"fmt"

	"github.com/waggle-crawl/waggle/dispatch/canonical"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Format is a way to write a list of sources.
type Format string

// The formats.
const (
	// CSV has a header that names columns; see [Columns]. Commas, semicolons or tabs, whichever the header has.
	CSV Format = "csv"
	// JSONL has a SourceSpec a line, or a Source, whose spec is taken.
	JSONL Format = "jsonl"
	// OPML has feeds as outlines. Outlines around a feed become its label "category", joined by slashes.
	OPML Format = "opml"
	// Sitemap is a sitemap, each page of which is a source, or an index of sitemaps, each sitemap of which is one.
	Sitemap Format = "sitemap"
	// URLs has a URL a line; empty lines and those that begin with # are left out.
	URLs Format = "urls"
)

// Kinds of seeds that the formats imply, as the web collector knows them.
const (
	kindFeed    = "feed"
	kindSitemap = "sitemap"
)

// Rules are those by which URLs become keys that an import gives to new sources, as dispatch/canonical has them.
const Rules = canonical.Sorted

// CategoryLabel is the label that holds the outlines around a feed.
const CategoryLabel = "category"

// Entry is one source of a file, or what is wrong with it.
type Entry struct {
	Line int // where it begins, from 1
	// Spec has an id only if the file gives one. With Err it is nil, or what could be read, to name the entry.
	Spec *pb.SourceSpec
	// Err says why the entry is no source; the entries after it can be read.
	Err error
	// Mended is what was read as something else, up to this entry from the one before. One without Spec and Err has nothing else.
	Mended []Mend
}

// Mend is a mistake of a file that was mended as it was read.
type Mend struct {
	Line int
	What string // such as: raw "&" read as "&amp;"
}

// mendURLs reads the URLs of seeds that feed readers and people write in their ways as what they stand for.
func (e *Entry) mendURLs() {
	for _, seed := range e.Spec.GetSeeds() {
		if url := canonical.WebAddress(seed.GetUrl()); url != seed.GetUrl() {
			e.Mended = append(e.Mended, Mend{e.Line, fmt.Sprintf("%q read as %q", seed.GetUrl(), url)})
			seed.Url = url
		}
	}
}

// urlSpec is the spec of a source that is nothing but a URL.
func urlSpec(url, kind string) *pb.SourceSpec {
	return &pb.SourceSpec{Seeds: []*pb.Seed{{Url: url, Kind: kind}}}
}
