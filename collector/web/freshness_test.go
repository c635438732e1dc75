package web_test

import (
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
)

// TestHandler_NextCrawlDelay holds that a seed's report passes on how long its page says that it stays as it is.
func TestHandler_NextCrawlDelay(t *testing.T) {
	t.Parallel()
	rss := func(channel string) string {
		return `<rss version="2.0" xmlns:sy="http://purl.org/rss/1.0/modules/syndication/"><channel><title>x</title>` + channel +
			`<item><link>http://a.example/1</link></item></channel></rss>`
	}
	for name, test := range map[string]struct {
		headers map[string]string
		body    string
		want    time.Duration
	}{
		"nothing":              {body: rss("")},
		"max-age":              {headers: map[string]string{"Cache-Control": "public, Max-Age=600"}, want: 10 * time.Minute},
		"max-age, of a cache":  {headers: map[string]string{"Cache-Control": "max-age=600", "Age": "60"}, want: 9 * time.Minute},
		"max-age, used up":     {headers: map[string]string{"Cache-Control": "max-age=600", "Age": "700"}},
		"max-age, for ever":    {headers: map[string]string{"Cache-Control": "max-age=31536000, immutable"}, want: 24 * time.Hour},
		"no-cache":             {headers: map[string]string{"Cache-Control": "max-age=600, no-cache"}},
		"max-age of nonsense":  {headers: map[string]string{"Cache-Control": "max-age=-1, max-age=soon"}},
		"ttl":                  {headers: map[string]string{"Cache-Control": "max-age=60"}, body: rss("<ttl>90</ttl>"), want: 90 * time.Minute},
		"ttl of nonsense":      {body: rss("<ttl>soon</ttl>")},
		"ttl beyond a year":    {body: rss("<ttl>2000000000</ttl>"), want: 366 * 24 * time.Hour},
		"period":               {body: rss("<sy:updatePeriod> daily </sy:updatePeriod>"), want: 24 * time.Hour},
		"period and frequency": {body: rss("<sy:updatePeriod>hourly</sy:updatePeriod><sy:updateFrequency>4</sy:updateFrequency>"), want: 15 * time.Minute},
		"period and ttl":       {body: rss("<ttl>5</ttl><sy:updatePeriod>hourly</sy:updatePeriod>"), want: time.Hour},
		"period of nonsense":   {body: rss("<sy:updatePeriod>often</sy:updatePeriod><sy:updateFrequency>0</sy:updateFrequency>")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			headers := map[string]string{"Content-Type": "application/rss+xml"}
			if !strings.HasPrefix(test.body, "<") {
				headers["Content-Type"] = "text/html"
			}
			for key, value := range test.headers {
				headers[key] = value
			}
			s.page("/feed", headers, 200, test.body)
			h := newHandler(t, web.Config{})
			done, err := handle(t, h, &collector.Task{URL: s.URL + "/feed", Recurring: true})
			if err != nil || done.NextCrawlDelay != test.want {
				t.Errorf("%v, %v; want %v", done.NextCrawlDelay, err, test.want)
			}
			if done, err = handle(t, h, &collector.Task{URL: s.URL + "/feed"}); err != nil || done.NextCrawlDelay != 0 {
				t.Errorf("of no seed: %v, %v", done.NextCrawlDelay, err)
			}
		})
	}
}
