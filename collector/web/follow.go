package web

import (
	"bytes"
	"context"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/collector"
)

// Kinds of tasks that say how their content is read, whatever its Content-Type. A task of another kind, or of none, is
// read by its Content-Type: HTML, RSS, Atom, JSON feeds, and XML by its root element.
const (
	KindFeed    = "feed"    // RSS, Atom or JSON feed
	KindSitemap = "sitemap" // sitemap or sitemap index, also gzipped, or a list
	KindList    = "list"    // one URL a line
)

// kindPage and kindStyle are what else a Content-Type says.
const (
	kindPage  = "page"
	kindStyle = "style"
)

// findLinks finds what the page leads to, unless the page or its depth forbids it.
func (v *visit) findLinks(ctx context.Context) error {
	cfg := &v.handler.cfg
	base, err := url.Parse(v.after.URL)
	if err != nil || len(v.body) == 0 {
		return nil
	}
	kind := v.kind(base)
	limit := cfg.MaxLinks
	if kind == KindFeed || kind == KindSitemap || kind == KindList {
		limit = cfg.MaxListed
	}
	trapped := 0
	guard := trapGuard{maxURLBytes: cfg.MaxURLBytes, maxSegments: cfg.MaxPathSegments, maxRepeats: cfg.MaxPathRepeats}
	v.links, err = v.extract(ctx, kind, base, ExtractOptions{
		ContentType: v.after.ContentType, Resources: cfg.Resources, Limit: limit,
		RobotsAgent: cfg.RobotsAgent, FollowNofollow: cfg.FollowNofollow,
		Keep: func(absolute string) bool {
			allowed := guard.allows(absolute)
			if !allowed {
				trapped++
			}
			return allowed
		},
	})
	if trapped > 0 {
		cfg.Logger.Info("links left out that look like a trap", zap.String("url", v.after.URL), zap.Int("links", trapped))
	}
	if len(v.links.URLs) == limit && v.links.Skipped > 0 {
		cfg.Logger.Warn("page has more links than are reported", zap.String("url", v.after.URL),
			zap.Int("reported", limit), zap.Int("skipped", v.links.Skipped))
	}
	tooDeep := cfg.MaxDepth > 0 && v.task.Depth >= cfg.MaxDepth
	forbidden := !cfg.FollowNofollow && headerDirectives(v.answer.header, cfg.RobotsAgent).noFollow
	if tooDeep || forbidden {
		v.links.Skipped += len(v.links.URLs)
		v.links.URLs = nil
	}
	return err
}

// kind tells how the content is to be read; "" when it leads nowhere.
func (v *visit) kind(base *url.URL) string {
	switch v.task.Kind {
	case KindFeed, KindSitemap, KindList:
		return v.task.Kind
	}
	mediaType, _, _ := mime.ParseMediaType(v.after.ContentType)
	switch mediaType {
	case "text/html", "application/xhtml+xml":
		return kindPage
	case "text/css":
		return kindStyle
	case "application/rss+xml", "application/atom+xml", "application/rdf+xml", "application/feed+json":
		return KindFeed
	case "application/gzip", "application/x-gzip":
		if strings.HasSuffix(base.Path, ".xml.gz") {
			return KindSitemap
		}
	case "application/xml", "text/xml":
		return kindOfRoot(rootElement(utf8XML(v.body, v.after.ContentType)))
	}
	return ""
}

func kindOfRoot(root string) string {
	switch root {
	case "rss", "rdf", "feed":
		return KindFeed
	case "urlset", "sitemapindex":
		return KindSitemap
	case "html":
		return kindPage
	}
	return ""
}

// extract reads the body as what it is.
func (v *visit) extract(ctx context.Context, kind string, base *url.URL, opts ExtractOptions) (Links, error) {
	body := v.body
	if kind == KindFeed || kind == KindSitemap || kind == KindList {
		var err error
		if body, err = v.unzipped(); err != nil {
			return Links{}, err
		}
	}
	switch kind {
	case kindPage:
		return ExtractLinks(base, body, opts), nil
	case kindStyle:
		if opts.Resources {
			return ExtractStyleSheetLinks(base, body, opts), nil
		}
	case KindList:
		return ExtractListLinks(base, body, opts), nil
	case KindFeed:
		return ExtractFeedLinks(ctx, base, body, opts)
	case KindSitemap:
		if kindOfRoot(rootElement(utf8XML(body, opts.ContentType))) == KindFeed { // its protocol lets feeds be sitemaps
			return ExtractFeedLinks(ctx, base, body, opts)
		}
		return ExtractSitemapLinks(base, body, opts)
	}
	return Links{}, nil
}

// unzipped is the body of a file that is kept gzipped, within the limits of what comes compressed.
func (v *visit) unzipped() ([]byte, error) {
	if !bytes.HasPrefix(v.body, []byte("\x1f\x8b")) {
		return v.body, nil
	}
	cfg := &v.handler.cfg
	return readDecoded(bytes.NewReader(v.body), []string{"gzip"}, bodyLimits{bytes: cfg.MaxBytes, ratio: int64(cfg.MaxRatio)})
}

// unreadable reports content that is not what it claims to be.
func (v *visit) unreadable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	failed := &collector.Failed{
		Reason: collector.ReasonParse, Message: v.after.URL + ": " + err.Error(),
		HTTPStatus: v.answer.status, FetchDuration: v.took,
	}
	if errors.Is(err, errTooLarge) {
		failed.Reason, failed.Permanent = collector.ReasonTooLarge, true
	}
	return failed
}

// noIndex tells whether the page asks not to be indexed: by its header, in its markup, or, when the server only said
// that nothing has changed, as it did when it was last read.
func (v *visit) noIndex() bool {
	if headerDirectives(v.answer.header, v.handler.cfg.RobotsAgent).noIndex || v.links.NoIndex {
		return true
	}
	return v.answer.status == http.StatusNotModified && len(v.body) == 0 && v.before.NoIndex
}
