package web

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/mmcdole/gofeed"
	"github.com/mmcdole/gofeed/atom"
	"github.com/mmcdole/gofeed/json"

	"github.com/waggle-crawl/waggle/collector"
)

const (
	// maxFeedElements bounds what the library makes of a feed: it keeps all elements, also those that nobody asks for.
	maxFeedElements = 250_000

	// maxFeedObjects bounds a JSON feed likewise.
	maxFeedObjects = 100_000

	// feedTimeout bounds the time that reading a feed may take; some documents cost the square of their size.
	feedTimeout = 10 * time.Second
)

// ExtractFeedLinks finds what an RSS, Atom or JSON feed that was fetched from base lists: its items in their order, by
// their link or, failing that, their id if it is a URL, and the feed's next and archived pages (RFC 5005). With
// opts.Resources it adds the enclosures. It fails for what is no feed, or would take too much time or memory to read.
func ExtractFeedLinks(ctx context.Context, base *url.URL, body []byte, opts ExtractOptions) (Links, error) {
	text := utf8XML(body, opts.ContentType)
	err := checkXML(text, maxFeedElements)
	if isJSON(text) {
		err = nil
		if objects := bytes.Count(text, []byte("{")); objects > maxFeedObjects {
			err = fmt.Errorf("%w: %d objects, limit %d", errTooLarge, objects, maxFeedObjects)
		}
	}
	if err != nil {
		return Links{}, fmt.Errorf("feed %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, feedTimeout, fmt.Errorf("%w in %s", errParse, feedTimeout))
	defer cancel()
	parser := gofeed.NewParser()
	parser.KeepOriginalFeed = true
	feed, err := parser.Parse(&untilDone{ctx: ctx, r: bytes.NewReader(text)})
	if ctx.Err() != nil {
		return Links{}, context.Cause(ctx)
	}
	if err != nil {
		return Links{}, fmt.Errorf("feed %w: %w", errParse, err)
	}
	x := newExtraction(base, opts)
	for _, item := range feed.Items {
		x.feedItem(item)
	}
	x.addAll(nextPages(feed))
	x.links.Period = feedPeriod(feed)
	return x.links, nil
}

func isJSON(text []byte) bool { return bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) }

func (x *extraction) feedItem(item *gofeed.Item) {
	link := item.Link
	if link == "" && (strings.HasPrefix(item.GUID, "http://") || strings.HasPrefix(item.GUID, "https://")) {
		link = item.GUID
	}
	if link == "" && len(item.Links) > 0 {
		link = item.Links[0]
	}
	if link != "" {
		x.addListed(link, collector.RelationFeedItem, changedAt(item))
	}
	if x.opts.Resources {
		for _, enclosure := range item.Enclosures {
			x.add(enclosure.URL)
		}
	}
}

// changedAt is when an item was changed last, or else published; zero when the feed does not say.
func changedAt(item *gofeed.Item) time.Time {
	switch {
	case item.UpdatedParsed != nil:
		return *item.UpdatedParsed
	case item.PublishedParsed != nil:
		return *item.PublishedParsed
	}
	return time.Time{}
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
