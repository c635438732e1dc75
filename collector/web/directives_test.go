package web_test

import (
	"testing"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
)

func TestHandler_RobotsTag(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]struct{ follow, noIndex bool }{
		"":                                    {follow: true},
		"noindex":                             {follow: true, noIndex: true},
		"NOFOLLOW, noarchive":                 {},
		"none":                                {noIndex: true},
		"waggle: nofollow, noindex":           {noIndex: true},
		"waggle:none":                         {noIndex: true},
		"otherbot: none, noindex":             {follow: true},
		"otherbot: none, waggle: nofollow":    {},
		"waggle: noindex, otherbot: nofollow": {follow: true, noIndex: true},
		"unavailable_after: 25 Jun 2010 15:00:00 PST, none":    {noIndex: true},
		"unavailable_after: Sun, 25-Jun-10 15:00:00, nofollow": {},
		"max-snippet: 10, nofollow":                            {},
	} {
		s := newSite(t)
		s.page("/", map[string]string{"Content-Type": "text/html", "X-Robots-Tag": header}, 200, `<a href="x">x</a>`)
		sink := &memorySink{}
		done, err := handle(t, newHandler(t, web.Config{Sink: sink}), &collector.Task{URL: s.URL + "/"})
		if err != nil {
			t.Fatal(err)
		}
		if got := sink.pages[0]; (len(done.Discovered) == 1) != want.follow || got.NoIndex != want.noIndex {
			t.Errorf("%q: discovered %q, noindex %t", header, discovered(done), got.NoIndex)
		}
		followed, err := handle(t, newHandler(t, web.Config{FollowNofollow: true}), &collector.Task{URL: s.URL + "/"})
		if err != nil || len(followed.Discovered) != 1 {
			t.Errorf("%q: with FollowNofollow %q, %v", header, discovered(followed), err)
		}
	}
}

// TestHandler_NoIndex holds that a page that has not changed still asks not to be indexed.
func TestHandler_NoIndex(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	body := `<meta name=robots content=noindex><link rel=canonical href=/own>`
	versioned(s, "/", `"v"`, "text/html", &body)
	bare := `<meta name=robots content=none>`
	versioned(s, "/bare", `"w"`, "text/html", &bare)
	for path, canonical := range map[string]string{"/": s.URL + "/own", "/bare": ""} {
		sink := &memorySink{}
		h := newHandler(t, web.Config{Sink: sink})
		task := &collector.Task{URL: s.URL + path}
		for i, status := range []int{200, 304, 304} {
			done, err := handle(t, h, task)
			if err != nil {
				t.Fatal(err)
			}
			if page := sink.pages[i]; page.Status != status || !page.NoIndex || page.Canonical != canonical {
				t.Errorf("%s, crawl %d: %+v", path, i, page)
			}
			task.Memo = done.Memo
		}
	}
}
