package extract

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// maxFeedPeriod is how much counts of what a feed says of itself; syndication has no longer period than a year.
	maxFeedPeriod = 366 * 24 * time.Hour

	// maxEntries is how many ids of entries without a date are kept.
	maxEntries = 256
)

// readFeed finds what an RSS, Atom or JSON feed lists: its entries in their order, and its next and archived pages (RFC 5005).
// With Resources it adds the enclosures.
func readFeed(ctx context.Context, c *collection, text *bufio.Reader) error {
	begin, _ := text.Peek(maxBegin) // it comes again with the next read
	if bytes.HasPrefix(bytes.TrimLeft(begin, " \t\r\n"), []byte("{")) {
		return c.finish(ctx, KindFeed, readJSONFeed(ctx, c, text))
	}
	var pages []*field
	texts := map[string]string{}
	m := newMarkup(c.base, c.addItem, func(f *field) {
		if f.name != "link" {
			texts[f.name] = strings.ToLower(f.text)
		} else if hasRelation(f, "next", "prev-archive") && len(pages) < maxFields {
			pages = append(pages, f)
		}
	})
	err := m.readKind(ctx, text, KindFeed)
	for _, page := range pages {
		c.add(c.absolute(page, page.attrs["href"]))
	}
	c.found.Period = feedPeriod(texts)
	return c.finish(ctx, KindFeed, err)
}

// addItem adds what an item of RSS or an entry of Atom leads to.
func (c *collection) addItem(e *entry) {
	link, best, id := e.about, len(itemRanks), ""
	var updated, published time.Time
	for _, f := range e.fields {
		switch f.name {
		case "updated", "modified":
			updated = cmp.Or(updated, ReadTime(f.text))
		case "published", "pubdate", "issued", "date", "created":
			published = cmp.Or(published, ReadTime(f.text))
		case "guid", "id":
			id = cmp.Or(id, f.text)
		}
		for rank, of := range itemRanks[:best] {
			if address := of(f); address != "" {
				link, best = c.absolute(f, address), rank
				break
			}
		}
	}
	c.addEntry(link, id, cmp.Or(updated, published))
	if !c.opts.Resources {
		return
	}
	for _, f := range e.fields {
		switch {
		case f.name == "enclosure":
			c.add(c.absolute(f, f.attrs["url"]))
		case f.name == "link" && hasRelation(f, "enclosure"):
			c.add(c.absolute(f, f.attrs["href"]))
		}
	}
}

// itemRanks are what may be the address of an item, the best first.
var itemRanks = []func(*field) string{
	func(f *field) string { // a page of its own
		mediaType := f.attrs["type"]
		if f.name == "link" && (mediaType == "" || strings.Contains(strings.ToLower(mediaType), "html")) && hasRelation(f, "alternate") {
			return cmp.Or(f.attrs["href"], f.text)
		}
		return ""
	},
	func(f *field) string {
		if f.name == "link" && hasRelation(f, "alternate") {
			return cmp.Or(f.attrs["href"], f.text)
		}
		return ""
	},
	func(f *field) string {
		permanent := strings.ToLower(f.attrs["ispermalink"])
		if f.name == "guid" && permanent != "false" && (permanent == "true" || isListed([]byte(f.text))) {
			return f.text
		}
		return ""
	},
	func(f *field) string { return f.attrs["src"] }, // of content
	func(f *field) string {
		if f.name == "id" && isWebURL(f.text) {
			return f.text
		}
		return ""
	},
	func(f *field) string {
		if f.name == "link" && hasRelation(f, "self") {
			return f.attrs["href"]
		}
		return ""
	},
}

// hasRelation reports whether a link has one of the relations. One that says none is an alternate.
func hasRelation(link *field, relations ...string) bool {
	for word := range strings.FieldsSeq(strings.ToLower(cmp.Or(strings.TrimSpace(link.attrs["rel"]), "alternate"))) {
		word = word[strings.LastIndexByte(word, '/')+1:] // of IANA's IRIs
		if slices.Contains(relations, word) {
			return true
		}
	}
	return false
}

// absolute is a reference of a field that may have a base of its own.
func (c *collection) absolute(f *field, ref string) string {
	if f.base != c.base && ref != "" {
		if absolute, ok := c.resolve(f.base, ref); ok {
			return absolute
		}
	}
	return ref
}

// addEntry adds the page of an entry of a feed. One without a date that the feed did not have the last time changed now.
func (c *collection) addEntry(link, id string, modified time.Time) {
	if link == "" {
		return
	}
	c.entries++
	if modified.IsZero() && id != "" && len(c.found.Entries) < 4*maxEntries {
		sum := fnv.New32a()
		_, _ = sum.Write([]byte(id)) // it takes everything
		c.found.Entries = binary.BigEndian.AppendUint32(c.found.Entries, sum.Sum32())
		if len(c.opts.Known) > 0 && !isKnown(c.opts.Known, sum.Sum32()) {
			modified = c.opts.Now
		}
	}
	c.addLink(link, Link{ListedBy: KindFeed, Modified: modified})
}

func isKnown(known []byte, sum uint32) bool {
	for ; len(known) >= 4; known = known[4:] {
		if binary.BigEndian.Uint32(known) == sum {
			return true
		}
	}
	return false
}

// feedPeriod is how long a feed says that it stays as it is: ttl of RSS, in minutes, or updatePeriod and updateFrequency of
// its syndication module, whichever is longer.
func feedPeriod(texts map[string]string) time.Duration {
	var ttl time.Duration
	if minutes, err := strconv.ParseUint(texts["ttl"], 10, 31); err == nil {
		ttl = time.Duration(min(minutes, uint64(maxFeedPeriod/time.Minute))) * time.Minute
	}
	period := map[string]time.Duration{
		"hourly": time.Hour, "daily": 24 * time.Hour, "weekly": 7 * 24 * time.Hour,
		"monthly": 30 * 24 * time.Hour, "yearly": 365 * 24 * time.Hour,
	}[texts["updateperiod"]]
	if times, err := strconv.ParseUint(texts["updatefrequency"], 10, 16); err == nil && times > 0 {
		period /= time.Duration(times)
	}
	return min(max(ttl, period), maxFeedPeriod).Truncate(time.Second)
}
