package web_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
)

func TestExtractLinks_directives(t *testing.T) {
	t.Parallel()
	const anchor = `<a href="x">x</a>`
	for name, test := range map[string]struct {
		html    string
		opts    web.ExtractOptions
		want    []string
		skipped int
		noIndex bool
	}{
		"rel": {
			html: `<a rel="noopener NoFollow" href="x"><area rel=nofollow href="y"><link rel="next nofollow" href="n"><a rel="ugc" href="z">`,
			want: []string{"http://a/z"}, skipped: 3,
		},
		"rel, followed": {
			html: `<a rel="nofollow" href="x"><meta name=robots content=nofollow>`, opts: web.ExtractOptions{FollowNofollow: true},
			want: []string{"http://a/x"},
		},
		"noindex":      {html: `<meta name="robots" content=" NoIndex ,follow">` + anchor, want: []string{"http://a/x"}, noIndex: true},
		"none":         {html: `<meta name="robots" content="none">` + anchor, skipped: 1, noIndex: true},
		"other agent":  {html: `<meta name="otherbot" content="none">` + anchor, want: []string{"http://a/x"}},
		"own agent":    {html: `<meta name="Waggle" content="nofollow">` + anchor, opts: web.ExtractOptions{RobotsAgent: "waggle"}, skipped: 1},
		"nothing said": {html: `<meta name="robots" content="index, follow, noindexing"><meta>` + anchor, want: []string{"http://a/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := web.ExtractLinks(parse(t, "http://a/"), []byte(test.html), test.opts)
			if !slices.Equal(got.URLs, test.want) || got.Skipped != test.skipped || got.NoIndex != test.noIndex {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestExtractLinks_canonical(t *testing.T) {
	t.Parallel()
	for html, want := range map[string]string{
		`<link rel="canonical" href="/c#x"><link rel=canonical href=/second>`: "http://a/c",
		`<link rel="canonical" href="mailto:x">`:                              "",
		`<base href="http://b/d/"><link rel="Canonical" href="c">`:            "http://b/d/c",
		`<a rel="canonical" href="x">`:                                        "",
	} {
		if got := web.ExtractLinks(parse(t, "http://a/"), []byte(html), web.ExtractOptions{}).Canonical; got != want {
			t.Errorf("%s: canonical %q, want %q", html, got, want)
		}
	}
}

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

// TestExtractLinks_longToken holds that nothing of any length is held, nor hides a link behind it.
func TestExtractLinks_longToken(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3<<20)
	for name, html := range map[string]string{
		"script":     `<a href="1"></a><script>` + long + `</script><a href="2"></a>`,
		"comment":    `<a href="1"></a><!--` + long + `--><a href="2"></a>`,
		"lost":       `<a href="1"></a><a class="` + long + `" href="lost"></a><a href="2"></a>`,
		"attribute":  `<a href="1"></a><p class="` + long + `"><a href="2"></a>`,
		"attributes": `<a href="1"></a><p ` + strings.Repeat("a ", 2<<20) + `><a href="2"></a>`,
		"text":       `<a href="1"></a>` + long + `<a href="2"></a>`,
	} {
		got := web.ExtractLinks(parse(t, "http://a/"), []byte(html), web.ExtractOptions{})
		if !slices.Equal(got.URLs, []string{"http://a/1", "http://a/2"}) {
			t.Errorf("%s: %q", name, got.URLs)
		}
	}
}
