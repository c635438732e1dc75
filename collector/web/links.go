package web

import (
	"bytes"
	"net/url"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/collector"
)

// maxURLLength is the longest URL that Waggle takes, in bytes. A longer link is counted as skipped.
const maxURLLength = 2048

// Links is what a document points at.
type Links struct {
	// URLs are absolute, http or https, without fragment, each once, in order of appearance, without the document's own.
	URLs []string

	// Skipped counts the links that cannot be a task: other schemes, URLs that do not parse or have no host,
	// URLs over 2 KiB, those not to be followed, and those beyond the limit that ExtractLinks was given.
	Skipped int

	// Modified is when some of the URLs last changed, by the feed or sitemap that lists them. A day without a time of day
	// means its end, so that a change on it is not missed.
	Modified map[string]time.Time

	// Relations are how a feed or sitemap leads to some of the URLs: those that are more than a link.
	Relations map[string]collector.Relation

	// Kind is what the URLs are known to be: KindSitemap for those of a sitemap index, else empty.
	Kind string

	// Canonical is the URL that an HTML document says is its own; empty when it says none. It is among the URLs too.
	Canonical string

	// NoIndex says that an HTML document asks not to be indexed.
	NoIndex bool

	// Period is how long a feed says that it stays as it is; 0: it does not say.
	Period time.Duration
}

// ExtractOptions says what ExtractLinks reports.
type ExtractOptions struct {
	// ContentType is the document's Content-Type header; its charset helps to decode the document.
	ContentType string

	// Resources adds what a page needs to be shown: images, scripts, style sheets, media, icons.
	Resources bool

	// RobotsAgent is the crawler's name, for what a document asks of it alone. Empty: only what it asks of all is read.
	RobotsAgent string

	// FollowNofollow reports the links of documents that say nofollow, and links that say so of themselves.
	FollowNofollow bool

	// Keep decides which URLs are reported; one that is not counts in Skipped. nil: all are.
	Keep func(absolute string) bool

	// Limit is the largest number of URLs to report; the rest is counted in Skipped. 0 means no limit.
	Limit int
}

// extraction is the state of one pass over a document.
type extraction struct {
	resolver
	opts       ExtractOptions
	seen       map[string]bool // by URL
	refs       map[string]bool // by reference as written, without its fragment, from the base that holds
	links      Links
	based      bool       // a base element was seen; only the first one counts
	attrs      attributes // of the tag that is read
	directives directives
}

func newExtraction(base *url.URL, opts ExtractOptions) *extraction {
	own := *base
	own.Fragment, own.RawFragment = "", ""
	return &extraction{resolver: resolver{base: base}, opts: opts, seen: map[string]bool{own.String(): true}, refs: map[string]bool{}}
}

// addAttr adds what an attribute refers to, if there is one.
func (x *extraction) addAttr(attrs attributes, name string) {
	value, ok := attrs.find(name)
	if !ok {
		return
	}
	if address, _, _ := bytes.Cut(value, []byte{'#'}); !x.refs[string(address)] {
		x.add(string(value))
	}
}

func (x *extraction) addAll(refs []string) {
	for _, ref := range refs {
		x.add(ref)
	}
}

// addListed is add for what a feed or sitemap lists, known to have changed last at a time, unless that is zero.
func (x *extraction) addListed(ref string, relation collector.Relation, modified time.Time) {
	before := len(x.links.URLs)
	x.add(ref)
	if len(x.links.URLs) == before {
		return
	}
	if x.links.Relations == nil {
		x.links.Relations = make(map[string]collector.Relation)
	}
	x.links.Relations[x.links.URLs[before]] = relation
	if modified.IsZero() {
		return
	}
	if x.links.Modified == nil {
		x.links.Modified = make(map[string]time.Time)
	}
	x.links.Modified[x.links.URLs[before]] = modified
}

// add resolves a reference and reports it unless it was seen.
func (x *extraction) add(ref string) {
	address, _, _ := strings.Cut(ref, "#")
	if x.refs[address] {
		return // as it is written, and so before it costs anything
	}
	absolute, ok := x.resolve(ref)
	if !ok {
		x.links.Skipped++
		return
	}
	if x.seen[absolute] {
		x.refs[address] = true
		return
	}
	if (x.opts.Limit > 0 && len(x.links.URLs) >= x.opts.Limit) || (x.opts.Keep != nil && !x.opts.Keep(absolute)) {
		x.links.Skipped++
		return
	}
	x.seen[absolute], x.refs[address] = true, true
	x.links.URLs = append(x.links.URLs, absolute)
}
