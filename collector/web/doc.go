// Package web is the collector that ships with Waggle: a collector.Handler that fetches a task's URL over HTTP, obeys
// robots.txt, reports the links it finds as discovered, and gives the page to a Sink.
//
// It fetches again only what has changed: what a server says of a page (ETag, Last-Modified) and the body's digest are
// left in the task's memo for the next crawl. It tells the dispatcher whose fault a failure is, and passes on what a
// site asks for by Retry-After.
package web
