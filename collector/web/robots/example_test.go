package robots_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/waggle-crawl/waggle/collector/web/robots"
)

// newCache makes a cache whose hosts all have the same robots.txt. A crawler's fetch sends an HTTP request.
func newCache(file string) *robots.Cache {
	return robots.NewCache("newsbot", time.Hour, func(context.Context, *url.URL) (robots.Answer, error) {
		return robots.Answer{Status: 200, Body: []byte(file)}, nil
	})
}

// Check fetches a host's robots.txt once, and then decides from the cache.
func ExampleCache_Check() {
	cache := newCache("User-agent: *\nDisallow: /\n\nUser-agent: newsbot\nDisallow: /drafts/\nAllow: /drafts/public$\n")
	for _, path := range []string{"/", "/drafts/1", "/drafts/public"} {
		err := cache.Check(context.Background(), &url.URL{Scheme: "https", Host: "news.example", Path: path})
		var denied *robots.DeniedError
		switch {
		case err == nil:
			fmt.Println(path, "allowed")
		case errors.As(err, &denied):
			fmt.Println(path, "denied")
		default: // no robots.txt could be fetched: try the host again later
			fmt.Println(err)
		}
	}
	// Output:
	// / allowed
	// /drafts/1 denied
	// /drafts/public allowed
}

// A host whose robots.txt cannot be fetched must not be crawled for now.
func ExampleUnavailableError() {
	cache := robots.NewCache("newsbot", time.Hour, func(context.Context, *url.URL) (robots.Answer, error) {
		return robots.Answer{Status: 503, RetryAfter: 2 * time.Minute}, nil
	})
	err := cache.Check(context.Background(), &url.URL{Scheme: "https", Host: "news.example", Path: "/"})
	var unavailable *robots.UnavailableError
	if errors.As(err, &unavailable) {
		fmt.Println(unavailable.Status, "retry after", unavailable.RetryAfter)
	}
	// Output: 503 retry after 2m0s
}

// Delay is the Crawl-delay of a host, once Check has read its robots.txt.
func ExampleCache_Delay() {
	cache := newCache("User-agent: *\nCrawl-delay: 1.5\n")
	page := &url.URL{Scheme: "https", Host: "news.example", Path: "/"}
	fmt.Println(cache.Delay(page))
	if err := cache.Check(context.Background(), page); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(cache.Delay(page))
	// Output:
	// 0s false
	// 1.5s true
}

// Sitemaps are named for all crawlers.
func ExampleCache_Sitemaps() {
	cache := newCache("User-agent: otherbot\nDisallow: /\n\nSitemap: https://news.example/sitemap.xml\n")
	page := &url.URL{Scheme: "https", Host: "news.example", Path: "/"}
	if err := cache.Check(context.Background(), page); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(cache.Sitemaps(page))
	// Output: [https://news.example/sitemap.xml]
}

// The name that robots.txt files use for a crawler is the first part of its user agent.
func ExampleProductToken() {
	fmt.Println(robots.ProductToken("NewsBot/1.2 (+https://news.example/bot)"))
	// Output: NewsBot
}
