package web_test

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
)

func parse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestHandler_EscapedURL holds that a URL reaches the server, and the links on its page the report, escaped by the
// percent-encode sets of WHATWG's URL standard, and with the escapes that they had. A path's "|" is escaped beside those.
func TestHandler_EscapedURL(t *testing.T) {
	t.Parallel()
	s := newSite(t) // answers 400 to a request line with a space in it, as other servers do
	var asked []string
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.RequestURI)
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<a href="/x%2Fy z/é%25|%zz?q=a b&amp;r='100%'#e f">x</a>`)
	})
	s.mux.HandleFunc("/moved", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/to here?q=a b\xe9")
		w.WriteHeader(http.StatusFound)
	})
	for _, test := range []struct{ url, want string }{
		{"/a%2Fb c/ä?q=a b", "/a%2Fb%20c/%C3%A4?q=a%20b"},
		{`/"<>^{}|%/` + "`", "/%22%3C%3E%5E%7B%7D%7C%25/%60"},
		{`/?"<>'^{}|%\ü` + "`", "/?%22%3C%3E%27^{}|%25\\%C3%BC`"},
		{`\b\[c]?d\e`, `/b/[c]?d\e`},
	} {
		asked = nil
		done, err := handle(t, newHandler(t, web.Config{IgnoreRobots: true}), &collector.Task{URL: s.URL + test.url})
		if err != nil || !slices.Equal(asked, []string{test.want}) {
			t.Errorf("%s: asked for %q, want %q: %v", test.url, asked, test.want, err)
		}
		if want := []string{s.URL + "/x%2Fy%20z/%C3%A9%25%7C%25zz?q=a%20b&r=%27100%25%27"}; !slices.Equal(discovered(done), want) {
			t.Errorf("discovered %q, want %q", discovered(done), want)
		}
	}
	done, err := handle(t, newHandler(t, web.Config{IgnoreRobots: true}), &collector.Task{URL: s.URL + "/moved"})
	if want := []string{s.URL + "/to%20here?q=a%20b%E9"}; err != nil || !slices.Equal(discovered(done), want) {
		t.Errorf("redirected to %q, want %q: %v", discovered(done), want, err)
	}
}

// TestHandler_EscapedURL_robots holds that robots.txt judges the URL that is asked for, however the rule is spelled.
func TestHandler_EscapedURL_robots(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.page("/", nil, 200, "")
	s.page("/robots.txt", nil, 200, "User-agent: *\nDisallow: /*?q=a b\nDisallow: /*?r='\nDisallow: /{x}\nDisallow: /%27")
	h := newHandler(t, web.Config{})
	for _, denied := range []string{"/?q=a b", "/?q=a%20b", "/?r='", "/?r=%27", "/{x}", "/%7Bx%7d", "/'"} {
		if _, err := handle(t, h, &collector.Task{URL: s.URL + denied}); err == nil || failedOf(t, err).Reason != collector.ReasonRobotsDenied {
			t.Errorf("%s: %v, want it denied", denied, err)
		}
	}
}
