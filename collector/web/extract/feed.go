package extract

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mmcdole/gofeed"
	"github.com/mmcdole/gofeed/atom"
	"github.com/mmcdole/gofeed/json"
	"github.com/mmcdole/gofeed/rss"
)

const (
	// maxFeedElements bounds what the library makes of a feed: it keeps all elements, also those that nobody asks for.
	maxFeedElements = 250_000

	// maxFeedObjects bounds a JSON feed likewise.
	maxFeedObjects = 100_000

	// feedTimeout bounds the time that reading a feed may take; some documents cost the square of their size.
	feedTimeout = 10 * time.Second

	// maxFeedPeriod is how much counts of what a feed says of itself; syndication has no longer period than a year.
	maxFeedPeriod = 366 * 24 * time.Hour
)

// readFeed finds what an RSS, Atom or JSON feed lists: its items in their order, and its next and archived pages (RFC 5005).
// With Resources it adds the enclosures. One that breaks the rules of XML is mended. It fails for what is no feed, or needs
// too much time or memory.
func readFeed(ctx context.Context, c *collection, text []byte) error {
	ctx, cancel := context.WithTimeoutCause(ctx, feedTimeout, fmt.Errorf("%w in %s", errParse, feedTimeout))
	defer cancel()
	feed, err := parseFeed(ctx, text)
	if errors.Is(err, errParse) && ctx.Err() == nil && !isJSON(text) {
		if mended, again := parseFeed(ctx, mendXML(text)); again == nil && slices.ContainsFunc(mended.Items, hasLink) {
			feed, err = mended, nil
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("feed %w", err)
	}
	for _, item := range feed.Items {
		addItem(c, item)
	}
	c.addAll(nextPages(feed))
	c.found.Period = feedPeriod(feed)
	return nil
}

// parseFeed parses a feed, as the library does.
func parseFeed(ctx context.Context, text []byte) (*gofeed.Feed, error) {
	if err := checkFeed(text); err != nil {
		return nil, err
	}
	parser := gofeed.NewParser()
	parser.KeepOriginalFeed = true
	feed, err := parser.Parse(&untilDone{ctx: ctx, r: bytes.NewReader(text)})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errParse, err)
	}
	return feed, nil
}

func isJSON(text []byte) bool { return bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) }

// checkFeed refuses what the library would take too much memory for.
func checkFeed(text []byte) error {
	if !isJSON(text) {
		return checkXML(text, maxFeedElements)
	}
	if objects := bytes.Count(text, []byte("{")); objects > maxFeedObjects {
		return fmt.Errorf("%w: %d objects, limit %d", ErrTooLarge, objects, maxFeedObjects)
	}
	return nil
}

func hasLink(item *gofeed.Item) bool { return itemLink(item) != "" }

// itemLink is the link of an item, else its id if that is a URL.
func itemLink(item *gofeed.Item) string {
	switch {
	case item.Link != "":
		return item.Link
	case strings.HasPrefix(item.GUID, "http://"), strings.HasPrefix(item.GUID, "https://"):
		return item.GUID
	case len(item.Links) > 0:
		return item.Links[0]
	}
	return ""
}

// addItem adds what an item links to.
func addItem(c *collection, item *gofeed.Item) {
	if link := itemLink(item); link != "" {
		c.addLink(link, Link{ListedBy: KindFeed, Modified: cmp.Or(ReadTime(item.Updated), ReadTime(item.Published))})
	}
	if c.opts.Resources {
		for _, enclosure := range item.Enclosures {
			c.add(enclosure.URL)
		}
	}
}

// nextPages are the pages that a feed goes on in.
func nextPages(feed *gofeed.Feed) []string {
	var pages []string
	add := func(rel, href string) {
		if href != "" && (rel == "next" || rel == "prev-archive") {
			pages = append(pages, href)
		}
	}
	switch original := feed.OriginalFeed().(type) {
	case *atom.Feed:
		for _, link := range original.Links {
			add(link.Rel, link.Href)
		}
	case *json.Feed:
		add("next", original.NextURL)
	}
	for _, link := range feed.Extensions["atom"]["link"] {
		add(link.Attrs["rel"], link.Attrs["href"])
	}
	return pages
}

// feedPeriod is how long a feed says that it stays as it is: ttl of RSS, in minutes, or updatePeriod and updateFrequency of
// its syndication module, whichever is longer.
func feedPeriod(feed *gofeed.Feed) time.Duration {
	var ttl time.Duration
	if original, ok := feed.OriginalFeed().(*rss.Feed); ok {
		if minutes, err := strconv.ParseUint(strings.TrimSpace(original.TTL), 10, 31); err == nil {
			ttl = time.Duration(min(minutes, uint64(maxFeedPeriod/time.Minute))) * time.Minute
		}
	}
	word := func(name string) string {
		for _, element := range feed.Extensions["sy"][name] {
			return strings.ToLower(strings.TrimSpace(element.Value))
		}
		return ""
	}
	period := map[string]time.Duration{
		"hourly": time.Hour, "daily": 24 * time.Hour, "weekly": 7 * 24 * time.Hour,
		"monthly": 30 * 24 * time.Hour, "yearly": 365 * 24 * time.Hour,
	}[word("updatePeriod")]
	if times, err := strconv.ParseUint(word("updateFrequency"), 10, 16); err == nil && times > 0 {
		period /= time.Duration(times)
	}
	return min(max(ttl, period), maxFeedPeriod).Truncate(time.Second)
}

// untilDone reads until its context has ended.
type untilDone struct {
	ctx context.Context //nolint:containedctx // an io.Reader has no other way to learn that its reader must stop
	r   io.Reader
}

func (u *untilDone) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(p)
}
