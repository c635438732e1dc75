// Package web is the collector that ships with Waggle: a collector.Handler that fetches a task's URL over HTTP, obeys
// robots.txt, reports what it leads to as discovered, and gives the page to a Sink.
//
// It fetches again only what has changed: what a server says of a page (ETag, Last-Modified) and the body's digest are
// left in the task's memo for the next crawl. It tells the dispatcher whose fault a failure is, and passes on what a
// site asks for by Retry-After and by Crawl-delay of its robots.txt.
//
// Links come from HTML, RSS, Atom and JSON feeds, sitemaps and their indexes, plain lists, and, on request, what pages
// need to be shown; by the task's kind (see package extract), else by content type. The target of a redirect is a task of its
// own, of the page's own depth, which is due again with the page where the chain began. When sitemaps and feeds say when a page changed, that is passed on, so that it is crawled again.
//
// A server cannot harm it: bodies are bounded in bytes, time and the ratio of their compression, documents in depth and
// elements, addresses of private networks are refused unless Config.AllowPrivate is set, and links that look like a trap
// are left out.
package web
