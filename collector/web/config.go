package web

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/collector/web/extract"
	"github.com/waggle-crawl/waggle/collector/web/robots"
)

const (
	defaultProduct = "waggle"
	defaultContact = "https://github.com/waggle-crawl/waggle"

	// maxCrawlDelay is the longest delay that a queue takes from a host.
	maxCrawlDelay = time.Hour

	// maxRedirects is the longest chain of redirects that a dispatcher takes.
	maxRedirects = 100

	// maxRobotsTTL is how long RFC 9309 lets a robots.txt be kept.
	maxRobotsTTL = 24 * time.Hour
)

// Config says how a Handler fetches. The zero value of each field is its default.
type Config struct {
	// UserAgent is sent with each request. Default: "waggle (+CONTACT)". Name your crawler and how to reach you.
	UserAgent string

	// Contact is the URL or mail address that the default UserAgent names. Default: Waggle's home page.
	Contact string

	// RobotsAgent is the name that robots.txt files know the crawler by. Default: the UserAgent up to the first character
	// that is no letter, digit, "-" or "_".
	RobotsAgent string

	// IgnoreRobots fetches without asking robots.txt: for hosts of your own.
	IgnoreRobots bool

	// RobotsTTL is how long a robots.txt is kept, up to 24 h. Default 1 h.
	RobotsTTL time.Duration

	// MaxCrawlDelay is how much of a robots.txt's Crawl-delay is reported, for the host's queue to keep with any number of
	// collectors; the queue's rule may let less of it count. Default 1 h, the most; negative: nothing is reported. Only
	// tasks that are in flight when robots.txt is first read do not know of it yet.
	MaxCrawlDelay time.Duration

	// Timeout bounds a request, its body included. Default 30 s.
	Timeout time.Duration

	// MaxBytes bounds a body, over the wire and decompressed. Default 10 MiB. Each slot may hold one in memory. Tasks of kind
	// feed may have at least 30 MiB, those of kind sitemap or list 50 MiB: long ones are held compressed.
	MaxBytes int64

	// MaxRatio bounds how many times its compressed bytes a body of over 1 MiB may become. Default 200.
	MaxRatio int

	// MaxRedirects bounds the redirects from one page to its end; the page that has one more fails. Default 10, at most 100;
	// negative: none. None is followed at once: the target of each is reported as discovered, and takes its turn.
	MaxRedirects int

	// MaxLinks bounds what one page may report. Default 20,000; the rest is counted in the log.
	MaxLinks int

	// MaxListed bounds what one feed, sitemap or list may report. Default 50,000, of 50 MiB of URLs; the rest is counted in
	// the log.
	MaxListed int

	// MaxDepth is the depth from which on pages report no links; a seed's depth is 0. A source's follow rule may ask for
	// less. 0: no limit. Redirects are passed on at any depth.
	MaxDepth int

	// MaxURLBytes, MaxPathSegments and MaxPathRepeats keep out links of the looks that traps have: URLs over so many bytes
	// (default 2048, the most), paths of more segments (default 30), and paths that have the same one to eight segments
	// more than so often in a row (default 3). Empty segments count; so do repeated parameters of the query, by their names
	// as segments, with the same value as repetitions. Negative: no limit of the kind. What is left out is counted in the log.
	MaxURLBytes, MaxPathSegments, MaxPathRepeats int

	// FollowNofollow reports links that say nofollow, and those of pages that say so, in markup or by X-Robots-Tag.
	FollowNofollow bool

	// Resources reports images, scripts, style sheets, media and what style sheets point at too.
	Resources bool

	// Sitemaps reports the sitemaps that robots.txt names of the host of a page of depth 0 (a seed, a submitted task),
	// with the kind sitemap: for crawls of whole sites. They have depth 1 then, and what they list depth 2 or, by an index, 3.
	Sitemaps bool

	// Sink gets the pages. Default: none, pages are only followed.
	Sink Sink

	// AllowPrivate lets pages be on private, loopback, link-local, shared, multicast and reserved addresses: for sites of
	// your own. Without it they are refused, as they are written, in any spelling, as names of the host itself such as
	// localhost, after DNS and in each hop of a redirect, so that no page leads the crawler to what only its own network
	// can reach. A proxy may be on any address; what other names mean to it, it has to check itself.
	AllowPrivate bool

	// Proxy takes the requests: http, https, socks5 or socks5h, with user and password if it wants them. It is what
	// resolves names, with either socks, so AllowPrivate holds for what is written in URLs only: the proxy has to
	// refuse the private networks that it can reach. Default: that of the environment (HTTP_PROXY, HTTPS_PROXY, NO_PROXY).
	Proxy *url.URL

	// Exchanges gives the Sink the requests and answers as they went over the wire, beside the pages: for sinks that
	// archive them, as package warc's does. It costs a second copy of a compressed body while a page is worked on. zstd is
	// not asked for then, since readers of archives do not undo it.
	Exchanges bool

	// Transport sends the requests in place of the Handler's own; then Proxy must be nil, and its dialer refuses private
	// networks only if told to (see RefusePrivate). Default: one of its own, closed by Handler.Close.
	Transport http.RoundTripper

	// Logger gets what is odd about pages. Default: none.
	Logger *zap.Logger
}

func (c Config) withDefaults() Config {
	c.Contact = cmp.Or(c.Contact, defaultContact)
	c.UserAgent = cmp.Or(c.UserAgent, defaultProduct+" (+"+c.Contact+")")
	c.RobotsAgent = cmp.Or(c.RobotsAgent, robots.ProductToken(c.UserAgent))
	c.RobotsTTL = cmp.Or(c.RobotsTTL, time.Hour)
	c.MaxCrawlDelay = cmp.Or(c.MaxCrawlDelay, maxCrawlDelay)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.MaxBytes = cmp.Or(c.MaxBytes, 10<<20)
	c.MaxRatio = cmp.Or(c.MaxRatio, 200)
	c.MaxRedirects = cmp.Or(c.MaxRedirects, 10)
	c.MaxLinks = cmp.Or(c.MaxLinks, 20_000)
	c.MaxListed = cmp.Or(c.MaxListed, 50_000)
	c.MaxPathSegments = cmp.Or(c.MaxPathSegments, 30)
	c.MaxPathRepeats = cmp.Or(c.MaxPathRepeats, 3)
	if c.Sink == nil {
		c.Sink = discard{}
	}
	c.Logger = cmp.Or(c.Logger, zap.NewNop())
	return c
}

// Validate checks the configuration; its error names the field, the value and the limit.
func (c *Config) Validate() error {
	for _, text := range []struct{ name, value string }{{"UserAgent", c.UserAgent}, {"Contact", c.Contact}} {
		if strings.ContainsFunc(text.value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return fmt.Errorf("field %s: %q: want printable ASCII", text.name, text.value)
		}
	}
	if c.RobotsAgent != robots.ProductToken(c.RobotsAgent) {
		return fmt.Errorf("field RobotsAgent: %q: want letters, digits, '-' and '_'", c.RobotsAgent)
	}
	if c.UserAgent != "" && c.RobotsAgent == "" && robots.ProductToken(c.UserAgent) == "" {
		return fmt.Errorf("field UserAgent: %q: want it to begin with a name, or RobotsAgent set", c.UserAgent)
	}
	if c.RobotsTTL < 0 || c.RobotsTTL > maxRobotsTTL {
		return fmt.Errorf("field RobotsTTL: %s: want 0 to %s", c.RobotsTTL, maxRobotsTTL)
	}
	if c.MaxCrawlDelay > maxCrawlDelay {
		return fmt.Errorf("field MaxCrawlDelay: %s: want at most %s", c.MaxCrawlDelay, maxCrawlDelay)
	}
	if c.MaxURLBytes > extract.MaxURLBytes {
		return fmt.Errorf("field MaxURLBytes: %d: want at most %d", c.MaxURLBytes, extract.MaxURLBytes)
	}
	if c.MaxRedirects > maxRedirects {
		return fmt.Errorf("field MaxRedirects: %d: want at most %d", c.MaxRedirects, maxRedirects)
	}
	if c.Sitemaps && c.IgnoreRobots {
		return errors.New("field Sitemaps: robots.txt, which names them, is not asked with IgnoreRobots")
	}
	return cmp.Or(
		notNegative("Timeout", c.Timeout, "more than 0"),
		notNegative("MaxBytes", c.MaxBytes, "more than 0"),
		notNegative("MaxRatio", c.MaxRatio, "more than 0"),
		notNegative("MaxLinks", c.MaxLinks, "more than 0"),
		notNegative("MaxListed", c.MaxListed, "more than 0"),
		notNegative("MaxDepth", c.MaxDepth, "0 or more"),
		c.validateProxy(),
	)
}

func notNegative[N cmp.Ordered](field string, value N, want string) error {
	if value < *new(N) {
		return fmt.Errorf("field %s: %v: want %s", field, value, want)
	}
	return nil
}

func (c *Config) validateProxy() error {
	if c.Proxy == nil {
		return nil
	}
	switch c.Proxy.Scheme {
	case "http", "https", "socks5", "socks5h":
	default:
		return fmt.Errorf("field Proxy: scheme %q: want http, https, socks5 or socks5h", c.Proxy.Scheme)
	}
	if c.Proxy.Hostname() == "" {
		return fmt.Errorf("field Proxy: %q: want a host", c.Proxy.Redacted())
	}
	if c.Transport != nil {
		return errors.New("field Proxy: want none with a Transport of its own")
	}
	return nil
}
