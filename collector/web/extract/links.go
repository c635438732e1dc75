package extract

import (
	"io"
	"net/url"
	"slices"
	"time"

	"golang.org/x/text/encoding"

	"github.com/waggle-crawl/waggle/dispatch/canonical"
)

// maxLinkBytes bounds the URLs of a document's links together: relative to a long URL, few bytes make many. It is what the
// protocol of sitemaps.org lets a sitemap have in all.
const maxLinkBytes = 50 << 20

// Kinds of tasks that say how their content is read.
const (
	KindFeed    = "feed"    // RSS, Atom or JSON feed
	KindSitemap = "sitemap" // sitemap or sitemap index, also gzipped, or a list
	KindList    = "list"    // one URL a line
)

// Options say what Find reports.
type Options struct {
	// Resources adds what a page needs to be shown: images, scripts, style sheets, media, icons.
	Resources bool

	// RobotsAgent is the crawler's name, for what a document asks of it alone. Empty: only what it asks of all is read.
	RobotsAgent string

	// FollowNofollow reports the links of documents that say nofollow, and links that say so of themselves.
	FollowNofollow bool

	// MaxLinks is the largest number of links of a page or a style sheet, MaxListed that of a feed, sitemap or list. With
	// either, their URLs have 50 MiB together at most. 0 means no limit.
	MaxLinks, MaxListed int

	// MaxURLBytes, MaxPathSegments and MaxPathRepeats leave out links of the looks that traps have: URLs over so many bytes,
	// paths of more segments, and paths that have the same one to eight segments more than so often in a row. Empty segments
	// count. A parameter of the query whose name came before counts as a segment, and one that came before with its value as
	// a repetition. 0 or less means no limit of the kind.
	MaxURLBytes, MaxPathSegments, MaxPathRepeats int

	// Unzip undoes the gzip of a feed, sitemap or list that is kept so, within its caller's limits. nil: those are not read.
	Unzip func(packed io.Reader) (io.Reader, error)

	// Known are the Entries that a feed had the last time. What is new since then and has no date counts as modified at Now.
	Known []byte
	Now   time.Time
}

// Link is one place that a document leads to.
type Link struct {
	// URL is absolute, http or https, without fragment.
	URL string

	// ListedBy is KindFeed for an item of a feed, KindSitemap for an entry of a sitemap; empty for any other link.
	ListedBy string

	// Modified is when it last changed, by the feed or sitemap that lists it; zero when that is not known. A day without a
	// time of day means its end, so that a change on it is not missed. Of several entries of one page the newest counts.
	Modified time.Time
}

// Result is what Find finds.
type Result struct {
	// Links are in order of appearance, each URL once, without the document's own. Of a sitemap the last modified comes
	// first, then what has no lastmod.
	Links []Link

	// Skipped counts the links that are not among Links: other schemes, URLs that do not parse or have no host, URLs over
	// 2 KiB, those not to be followed, Trapped and Surplus.
	Skipped int

	// Trapped counts those that look like a trap, Surplus those beyond the limits.
	Trapped, Surplus int

	// Kind is what the links are known to be: KindSitemap for those of a sitemap index, else empty.
	Kind string

	// Canonical is the URL that an HTML document says is its own; empty when it says none. It is among the links too.
	Canonical string

	// Title, Author and Published are what an HTML document says of itself, its title on one line: by its title element or og:title, and
	// by meta elements. At most 1,000 bytes each, the rest is cut; empty or zero when it says none.
	Title, Author string
	Published     time.Time

	// NoIndex says that the document asks not to be indexed.
	NoIndex bool

	// Period is how long a feed says that it stays as it is; 0: it does not say.
	Period time.Duration

	// Broken says after how many entries a feed, sitemap or list was broken off, and by what; empty: it was read to its end.
	Broken string

	// Entries are short hashes of the ids of a feed's entries that have no date, for the next Options.Known.
	Entries []byte
}

// collection is what was found of a document so far.
type collection struct {
	base     *url.URL          // references are relative to it
	encoding encoding.Encoding // of queries; nil: UTF-8
	opts     *Options
	limit    int
	seen     map[string]int // by URL: its place in found.Links; -1: it has none
	bytes    int            // of the URLs of found.Links
	entries  int            // of a feed, sitemap or list, so far
	found    Result
}

func newCollection(base *url.URL, opts *Options) *collection {
	own := *base
	own.Fragment, own.RawFragment = "", ""
	return &collection{base: base, opts: opts, seen: map[string]int{own.String(): -1}}
}

func (c *collection) addAll(refs []string) {
	for _, ref := range refs {
		c.add(ref)
	}
}

// add resolves a reference and reports it unless it was seen.
func (c *collection) add(ref string) { c.addLink(ref, Link{}) }

// addLink is add with what is known of the link. What is listed has a host, even if its scheme is left out.
func (c *collection) addLink(ref string, link Link) {
	if link.ListedBy != "" {
		ref = canonical.WebAddress(ref)
	}
	absolute, ok := c.resolve(c.base, ref)
	at, seen := c.seen[absolute]
	switch {
	case !ok:
		c.found.Skipped++
	case seen && at >= 0 && link.Modified.After(c.found.Links[at].Modified):
		c.found.Links[at].Modified = link.Modified
	case seen:
	case c.limit > 0 && (len(c.found.Links) >= c.limit || c.bytes+len(absolute) > maxLinkBytes):
		c.surplus(1)
	case isTrap(absolute, c.opts.MaxURLBytes, c.opts.MaxPathSegments, c.opts.MaxPathRepeats):
		c.found.Skipped++
		c.found.Trapped++
	default:
		c.seen[absolute] = len(c.found.Links)
		link.URL = absolute
		c.found.Links = append(c.found.Links, link)
		c.bytes += len(absolute)
	}
}

// keep keeps the first links, within the limits, and reports whether there were more.
func (c *collection) keep(limit int) (more bool) {
	links := c.found.Links
	if limit == 0 || len(links) <= limit && c.bytes <= maxLinkBytes {
		return false
	}
	kept := 0
	for c.bytes = 0; kept < limit && c.bytes+len(links[kept].URL) <= maxLinkBytes; kept++ {
		c.bytes += len(links[kept].URL)
		c.seen[links[kept].URL] = kept
	}
	for _, link := range links[kept:] {
		delete(c.seen, link.URL)
	}
	c.surplus(len(links) - kept)
	c.found.Links = slices.Delete(links, kept, len(links))
	return true
}

// surplus counts links beyond the limits.
func (c *collection) surplus(links int) {
	c.found.Skipped += links
	c.found.Surplus += links
}
