package web

import (
	"mime"
	"net/http"
	"net/url"

	"go.uber.org/zap"
)

// findLinks finds what the page leads to, unless the page or its depth forbids it.
func (v *visit) findLinks() {
	cfg := &v.handler.cfg
	base, err := url.Parse(v.after.URL)
	if err != nil || len(v.body) == 0 {
		return
	}
	trapped := 0
	guard := trapGuard{maxURLBytes: cfg.MaxURLBytes, maxSegments: cfg.MaxPathSegments, maxRepeats: cfg.MaxPathRepeats}
	v.links = v.extract(base, ExtractOptions{
		ContentType: v.after.ContentType, Resources: cfg.Resources, Limit: cfg.MaxLinks,
		RobotsAgent: cfg.RobotsAgent, FollowNofollow: cfg.FollowNofollow,
		Keep: func(u *url.URL) bool {
			allowed := guard.allows(u)
			if !allowed {
				trapped++
			}
			return allowed
		},
	})
	if trapped > 0 {
		cfg.Logger.Info("links left out that look like a trap", zap.String("url", v.after.URL), zap.Int("links", trapped))
	}
	if len(v.links.URLs) == cfg.MaxLinks && v.links.Skipped > 0 {
		cfg.Logger.Warn("page has more links than are reported", zap.String("url", v.after.URL),
			zap.Int("reported", cfg.MaxLinks), zap.Int("skipped", v.links.Skipped))
	}
	tooDeep := cfg.MaxDepth > 0 && v.task.Depth >= cfg.MaxDepth
	forbidden := !cfg.FollowNofollow && headerDirectives(v.answer.header, cfg.RobotsAgent).noFollow
	if tooDeep || forbidden {
		v.links.Skipped += len(v.links.URLs)
		v.links.URLs = nil
	}
}

// extract reads the body as what it is.
func (v *visit) extract(base *url.URL, opts ExtractOptions) Links {
	switch mediaType, _, _ := mime.ParseMediaType(v.after.ContentType); mediaType {
	case "text/html", "application/xhtml+xml":
		return ExtractLinks(base, v.body, opts)
	case "text/css":
		if opts.Resources {
			return ExtractStyleSheetLinks(base, v.body, opts)
		}
	}
	return Links{}
}

// noIndex tells whether the page asks not to be indexed: by its header, in its markup, or, when the server only said
// that nothing has changed, as it did when it was last read.
func (v *visit) noIndex() bool {
	if headerDirectives(v.answer.header, v.handler.cfg.RobotsAgent).noIndex || v.links.NoIndex {
		return true
	}
	return v.answer.status == http.StatusNotModified && len(v.body) == 0 && v.before.NoIndex
}
