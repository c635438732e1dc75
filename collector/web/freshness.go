package web

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/mmcdole/gofeed"
	"github.com/mmcdole/gofeed/rss"
)

const (
	// maxFresh is how much of a max-age counts: a year of it says that the file has another name when it changes, or
	// that nobody thought of it, and nothing of when a page has news.
	maxFresh = 24 * time.Hour

	// maxFeedPeriod is how much counts of what a feed says; syndication has no longer period than a year.
	maxFeedPeriod = 366 * 24 * time.Hour
)

// nextCrawlDelay is how long a page says that it stays as it is: by its feed's own words, else as long as caches may keep it.
func (v *visit) nextCrawlDelay() time.Duration {
	if v.links.Period > 0 {
		return v.links.Period
	}
	return freshFor(v.answer.header)
}

// freshFor is what is left of the max-age of Cache-Control; 0 when there is none, or caches have to ask each time.
func freshFor(header http.Header) time.Duration {
	var fresh time.Duration
	for directive := range strings.SplitSeq(strings.Join(header.Values("Cache-Control"), ","), ",") {
		name, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(directive)), "=")
		switch name {
		case "no-cache", "no-store":
			return 0
		case "max-age":
			fresh = wholeSeconds(strings.Trim(value, `"`))
		}
	}
	return min(max(fresh-wholeSeconds(header.Get("Age")), 0), maxFresh)
}

// wholeSeconds reads a number of seconds; 0 when it is none.
func wholeSeconds(text string) time.Duration {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Second
}

// feedPeriod is how long a feed says that it stays as it is: ttl of RSS, in minutes, or updatePeriod and updateFrequency of
// its syndication module, whichever is longer.
func feedPeriod(feed *gofeed.Feed) time.Duration {
	var ttl time.Duration
	if original, ok := feed.OriginalFeed().(*rss.Feed); ok {
		ttl = 60 * min(wholeSeconds(original.TTL), maxFeedPeriod)
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
