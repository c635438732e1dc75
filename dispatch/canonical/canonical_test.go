package canonical_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/waggle-crawl/waggle/dispatch/canonical"
)

// canonicalForms freezes the rules: each URL with its form by rules 1, and by
// rules 2 where that is another. A line is never changed; a new case is added.
var canonicalForms = []struct{ raw, plain, sorted string }{
	// Scheme, host, port.
	{raw: "http://example.com", plain: "http://example.com/"},
	{raw: "HTTP://Example.COM:80/", plain: "http://example.com/"},
	{raw: "hTTps://EXAMPLE.com:443/a", plain: "https://example.com/a"},
	{raw: "https://example.com:80/a", plain: "https://example.com:80/a"},
	{raw: "http://example.com:443/a", plain: "http://example.com:443/a"},
	{raw: "http://example.com:/a", plain: "http://example.com/a"},
	{raw: "http://example.com:0080/a", plain: "http://example.com/a"},
	{raw: "http://example.com:08080/a", plain: "http://example.com:8080/a"},
	{raw: "http://example.com./a", plain: "http://example.com/a"},
	{raw: "http://example.com.:8080/a", plain: "http://example.com:8080/a"},
	{raw: "  http://example.com/a \n", plain: "http://example.com/a"},
	{raw: "\u00a0http://example.com/a\u2003", plain: "http://example.com/a"},
	{raw: "http://my_host.example/", plain: "http://my_host.example/"},
	{raw: "http://a-.example/", plain: "http://a-.example/"},
	{raw: "http://localhost/", plain: "http://localhost/"},
	{raw: "http://EXAMPLE/", plain: "http://example/"},
	// Addresses.
	{raw: "http://127.0.0.1:8080/x", plain: "http://127.0.0.1:8080/x"},
	{raw: "http://[2001:DB8::0:1]:80/", plain: "http://[2001:db8::1]/"},
	{raw: "http://[2001:db8:0:0:0:0:0:1]:8080/", plain: "http://[2001:db8::1]:8080/"},
	{raw: "http://[::FFFF:192.0.2.1]/", plain: "http://192.0.2.1/"},
	{raw: "http://2130706433/", plain: "http://127.0.0.1/"},
	// Names in other scripts.
	{raw: "http://bücher.example/", plain: "http://xn--bcher-kva.example/"},
	{raw: "http://BÜCHER.example/", plain: "http://xn--bcher-kva.example/"},
	{raw: "http://bu\u0308cher.example/", plain: "http://xn--bcher-kva.example/"},
	{raw: "http://b%C3%BCcher.example/", plain: "http://xn--bcher-kva.example/"},
	{raw: "http://XN--BCHER-KVA.example/", plain: "http://xn--bcher-kva.example/"},
	{raw: "http://faß.example/", plain: "http://xn--fa-hia.example/"},
	{raw: "http://例え。テスト/", plain: "http://xn--r8jz45g.xn--zckzah/"},
	// User information.
	{raw: "http://@example.com/", plain: "http://example.com/"},
	{raw: "http://:@example.com/", plain: "http://example.com/"},
	// Dot segments and slashes.
	{raw: "http://example.com/a/./b/../c", plain: "http://example.com/a/c"},
	{raw: "http://example.com/../../a", plain: "http://example.com/a"},
	{raw: "http://example.com/a/..", plain: "http://example.com/"},
	{raw: "http://example.com/a/.", plain: "http://example.com/a/"},
	{raw: "http://example.com/a/b/../..", plain: "http://example.com/"},
	{raw: "http://example.com/%2e%2E/a/%2e/b", plain: "http://example.com/a/b"},
	{raw: "http://example.com/a/.../..b/.c", plain: "http://example.com/a/.../..b/.c"},
	{raw: "http://example.com//a//b/", plain: "http://example.com//a//b/"},
	{raw: "http://example.com//a//../b", plain: "http://example.com//a/b"},
	{raw: "http://example.com/a/", plain: "http://example.com/a/"},
	{raw: "http://example.com?../a", plain: "http://example.com/?../a"},
	// Percent-encodings.
	{raw: "http://example.com/%7euser/%c3%a9", plain: "http://example.com/~user/%C3%A9"},
	{raw: "http://example.com/a%2fb", plain: "http://example.com/a%2Fb"},
	{raw: "http://example.com/a%2Fb c", plain: "http://example.com/a%2Fb%20c"},
	{raw: "http://example.com/é b", plain: "http://example.com/%C3%A9%20b"},
	{raw: "http://example.com/%e9", plain: "http://example.com/%E9"}, // Latin-1 stays what it is
	{raw: "http://example.com/e\u0301", plain: "http://example.com/e%CC%81"},
	{raw: "http://example.com/%2525", plain: "http://example.com/%2525"},
	{raw: "http://example.com/%00", plain: "http://example.com/%00"},
	{raw: "http://example.com/a+b%2Bc%20d", plain: "http://example.com/a+b%2Bc%20d"},
	{raw: "http://example.com/a;v=1,2:3@4!$&'()*=", plain: "http://example.com/a;v=1,2:3@4!$&'()*="},
	{raw: "http://example.com/[1]^`{|}\"<>", plain: "http://example.com/[1]%5E%60%7B%7C%7D%22%3C%3E"},
	{raw: "http://example.com/100%/%zz%4", plain: "http://example.com/100%25/%25zz%254"},
	{raw: "http://example.com/it's/%27", plain: "http://example.com/it's/%27"},
	// A backslash is a slash before the query.
	{raw: "http:\\\\example.com\\a\\..\\b?c\\d#e\\f", plain: "http://example.com/b?c%5Cd"},
	{raw: "http://example.com\\@b", plain: "http://example.com/@b"},
	{raw: "http://example.com/CaseStays?Query=CaseStays", plain: "http://example.com/CaseStays?Query=CaseStays"},
	// Query and fragment.
	{raw: "http://example.com/?", plain: "http://example.com/"},
	{raw: "http://example.com/?#", plain: "http://example.com/"},
	{raw: "http://example.com/#!/page", plain: "http://example.com/"},
	{raw: "http://example.com?q=1#frag?x", plain: "http://example.com/?q=1"},
	{raw: "http://example.com/a?/../b", plain: "http://example.com/a?/../b"},
	{raw: "http://example.com/?a=1?b=2", plain: "http://example.com/?a=1?b=2"},
	{raw: "http://example.com/?q=a b|c", plain: "http://example.com/?q=a%20b%7Cc"},
	{raw: "http://example.com/?q=a+b", plain: "http://example.com/?q=a+b"},
	{raw: "http://example.com/?q=100%&r=%zz", plain: "http://example.com/?q=100%25&r=%25zz"},
	{raw: "http://example.com/?q=%3d%26%2f", plain: "http://example.com/?q=%3D%26%2F"},
	{raw: "http://example.com/?q='a'", plain: "http://example.com/?q=%27a%27"},
	{raw: "http://example.com/?q=ü", plain: "http://example.com/?q=%C3%BC"},
	{raw: "http://example.com/?a&b=&c", plain: "http://example.com/?a&b=&c"},
	{raw: "http://example.com/?b=2&a=1&a=%41", plain: "http://example.com/?b=2&a=1&a=A", sorted: "http://example.com/?a=1&a=A&b=2"},
	{raw: "http://example.com/?a=2&a=1", plain: "http://example.com/?a=2&a=1"},
	{raw: "http://example.com/?a[]=2&A=3&a=1", plain: "http://example.com/?a[]=2&A=3&a=1", sorted: "http://example.com/?A=3&a=1&a[]=2"},
	{raw: "http://example.com/?&a=1&&b=2&", plain: "http://example.com/?&a=1&&b=2&", sorted: "http://example.com/?a=1&b=2"},
	{raw: "http://example.com/?z;a", plain: "http://example.com/?z;a"},
	// Session ids.
	{raw: "http://example.com/a;jsessionid=1A2B.node1?x=1", plain: "http://example.com/a?x=1"},
	{raw: "http://example.com/a;JSESSIONID=1A2B;v=2/b", plain: "http://example.com/a;v=2/b"},
	{raw: "http://example.com/x/..;jsessionid=1/b", plain: "http://example.com/b"},
	{raw: "http://example.com/a;%6Asessionid=1", plain: "http://example.com/a"},
	{raw: "http://example.com/(S(lit3py55t21z5v55vlm25s55))/a.aspx", plain: "http://example.com/a.aspx"},
	{raw: "http://example.com/app/(A(lit3py55t21z5v55vlm25s55)F(lit3py55t21z5v55vlm25s55))", plain: "http://example.com/app"},
	{raw: "http://example.com/(S(short))/a", plain: "http://example.com/(S(short))/a"},
	{raw: "http://example.com/?PHPSESSID=x&a=1", plain: "http://example.com/?a=1"},
	{raw: "http://example.com/?a=1&jsessionid=", plain: "http://example.com/?a=1"},
	{raw: "http://example.com/?ASPSESSIONIDQQBCDARS=ABC", plain: "http://example.com/"},
	{raw: "http://example.com/?CFID=1&a=2&CFTOKEN=3", plain: "http://example.com/?a=2"},
	{raw: "http://example.com/?cfid=1", plain: "http://example.com/?cfid=1"},
	{raw: "http://example.com/?sid=0123456789abcdef0123456789abcdef&t=5", plain: "http://example.com/?t=5"},
	{raw: "http://example.com/?osCsid=rk3a7q1m5h0n2d8c6f4e9g7j1l", plain: "http://example.com/"},
	{raw: "http://example.com/?sid=42", plain: "http://example.com/?sid=42"},
	{raw: "http://example.com/?sid=the_whole_story_of_a_session", plain: "http://example.com/?sid=the_whole_story_of_a_session"},
	{raw: "http://example.com/?session=0123456789abcdef0123456789abcdef", plain: "http://example.com/?session=0123456789abcdef0123456789abcdef"},
	// What follows visitors.
	{raw: "http://example.com/?utm_source=x&UTM_Medium=y", plain: "http://example.com/?utm_source=x&UTM_Medium=y", sorted: "http://example.com/"},
	{raw: "http://example.com/?id=7&fbclid=x&gclid=y", plain: "http://example.com/?id=7&fbclid=x&gclid=y", sorted: "http://example.com/?id=7"},
	{raw: "http://example.com/?ref=home&source=rss", plain: "http://example.com/?ref=home&source=rss"},
}

func TestForm(t *testing.T) {
	t.Parallel()
	for _, test := range canonicalForms {
		sorted := test.sorted
		if sorted == "" {
			sorted = test.plain
		}
		for rules, want := range map[int]string{canonical.Plain: test.plain, canonical.Sorted: sorted} {
			got, err := canonical.Form(rules, test.raw)
			if err != nil || got != want {
				t.Errorf("Canonicalize(%d, %q) = %q, %v; want %q", rules, test.raw, got, err, want)
			}
			if again, err := canonical.Form(rules, got); err != nil || again != got {
				t.Errorf("Canonicalize(%d, %q) = %q, %v; want it unchanged", rules, got, again, err)
			}
		}
	}
}

func TestForm_refuses(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"", "example.com", "/path", "//example.com/", "ftp://example.com/", "mailto:a@example.com", "http:example.com", "http:/example.com",
		"http://", "http:///path", "http://:80/", "http://exa mple.com/", "http://a{b}.example/",
		"http://example.com:port/", "http://example.com:0/", "http://example.com:65536/", "http://example.com:-1/", "http://[::1/",
		"http://[::1]x/", "http://[fe80::1%25eth0]/", "http://::1/", "javascript:alert(1)", "http://../", "http://./", "http://a..b/", "http://.a/",
		"http://example%.com/", "http://user:pw@example.com/", "http://User:@example.com/", "http://:pw@example.com/", "http://us%65r%40home@example.com/", "http://example.com/a\nb", "http://example.com/\xff",
		"http://example.com/" + strings.Repeat("a", canonical.MaxLength), "http://" + strings.Repeat("a.", 127) + "example/",
	} {
		if form, err := canonical.Form(1, raw); err == nil {
			t.Errorf("Form(%.40q) = %q; want an error", raw, form)
		}
	}
	for _, rules := range []int{-1, 0, 3} {
		if form, err := canonical.Form(rules, "http://example.com/"); err == nil {
			t.Errorf("rules %d: %q, want an error", rules, form)
		}
	}
}

// A URL may be as long as the limit, whatever its canonical form is.
func TestForm_long(t *testing.T) {
	t.Parallel()
	begin := "http://example.com/?b&a="
	got, err := canonical.Form(2, begin+strings.Repeat("é", (canonical.MaxLength-len(begin))/2))
	if want := "http://example.com/?a=" + strings.Repeat("%C3%A9", (canonical.MaxLength-len(begin))/2) + "&b"; err != nil || got != want {
		t.Errorf("got %.40q, %d bytes, %v", got, len(got), err)
	}
}

// What is canonical stays as it is: the key of a key is the key.
func TestForm_isIdempotent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		raw := "http://" + rapid.StringMatching(`[a-zA-Z0-9.-]{1,20}`).Draw(rt, "host") + "/" + rapid.OneOf(rapid.String(),
			rapid.StringMatching(`([/.;&=?%()]|%2[eEfF6]|jsessionid|(\(S\(lit3py55t21z5v55vlm25s55\)\))|sid|utm_a|cfid|cftoken|[ab]){0,20}`)).Draw(rt, "path")
		rules := rapid.IntRange(1, 2).Draw(rt, "rules")
		once, err := canonical.Form(rules, raw)
		if err != nil {
			return
		}
		twice, err := canonical.Form(rules, once)
		if err != nil || twice != once {
			rt.Fatalf("%q became %q, then %q, %v", raw, once, twice, err)
		}
	})
}

// URLs that are recognized as canonical without being parsed have the form, and
// the queue, that parsing gives them. A fragment, which no canonical form has,
// makes a URL be parsed.
func TestForm_plainURLsAsParsedOnes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		raw := rapid.SampledFrom([]string{"http://", "https://", "HTTP://"}).Draw(rt, "scheme") +
			rapid.StringMatching(`(([a-z0-9-]{0,4}(xn--)?\.?){1,4}|[0-9]{1,3}(\.[0-9]{1,3}){2,4})(:(80|443|[0-9]{1,6}))?`).Draw(rt, "host") +
			rapid.StringMatching(`(/[a-zA-Z0-9._~!$&'()*+,;=:@%?-]{0,5}){0,3}`).Draw(rt, "path")
		plain, plainErr := canonical.Form(1, raw)
		parsed, parsedErr := canonical.Form(1, raw+"#fragment")
		if plain != parsed || (plainErr == nil) != (parsedErr == nil) {
			rt.Fatalf("%q became %q, %v; with a fragment %q, %v", raw, plain, plainErr, parsed, parsedErr)
		}
		plainQueue, _ := canonical.Host(raw) // its errors are those of Canonicalize
		parsedQueue, _ := canonical.Host(raw + "#fragment")
		if plainQueue != parsedQueue {
			rt.Fatalf("the queue of %q is %q; with a fragment %q", raw, plainQueue, parsedQueue)
		}
	})
}

func TestHost_sharesSchemes(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"http://Example.com/a":       "example.com",
		"https://example.com:443/b":  "example.com",
		"https://example.com:8443/b": "example.com:8443",
		"http://[2001:db8::1]/":      "[2001:db8::1]",
		"http://[2001:db8::1]:81/":   "[2001:db8::1]:81",
	} {
		if got, err := canonical.Host(raw); err != nil || got != want {
			t.Errorf("Host(%q) = %q, %v; want %q", raw, got, err, want)
		}
	}
}

func TestQueueName(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Example.COM":                 "example.com",
		"example.com.":                "example.com",
		"bücher.example:8080":         "xn--bcher-kva.example:8080",
		"https://Example.com:443/a?b": "example.com",
		"2001:DB8::1":                 "[2001:db8::1]",
		"[2001:DB8::1]:81":            "[2001:db8::1]:81",
		"my_queue-1":                  "my_queue-1",
		"":                            "",
		"*":                           "*",
		"no host":                     "no host",
		"ftp://example.com/":          "ftp://example.com/",
	} {
		if got := canonical.QueueName(text); got != want {
			t.Errorf("QueueName(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestForm_refusesControlCharacters(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"http://a%c.example/", "http://a.example/x%cy", "http://a.example/?q=%c1", "http://a.example/#x%cy", "ht%ctp://a.example/"} {
		for _, c := range []rune{0, '\t', '\n', '\r', 0x1f, 0x7f} {
			raw := fmt.Sprintf(where, c)
			_, err := canonical.Form(canonical.Plain, raw)
			want := fmt.Sprintf("must have no control character in it, such as %q", c)
			if err == nil || err.Error() != want {
				t.Errorf("Form(%q): %v, want %s", raw, err, want)
			}
		}
	}
}

func TestWebAddress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"feed://example.com/rss":             "http://example.com/rss",
		"feed:https://example.com/rss":       "https://example.com/rss",
		"feed://http://example.com/rss?a=b":  "http://example.com/rss?a=b",
		" FEED:example.com/rss ":             "http://example.com/rss",
		"feeds://example.com/rss":            "https://example.com/rss",
		"feeds:HTTP://example.com/rss":       "HTTP://example.com/rss",
		"itpc://example.com:8080/podcast":    "http://example.com:8080/podcast",
		"www.example.com":                    "http://www.example.com",
		"WWW.example.com:8080/a?b=http://c/": "http://WWW.example.com:8080/a?b=http://c/",
		"feed://feed.example.com/http://x/":  "http://feed.example.com/http://x/",
		"feed:":                              "http://",
		" https://example.com/feed:x ":       " https://example.com/feed:x ",
		"www.":                               "www.",
		"wwwa.example.com":                   "wwwa.example.com",
		"example.com/www.":                   "example.com/www.",
		"feedburner.com:80":                  "feedburner.com:80",
		"":                                   "",
	} {
		if got := canonical.WebAddress(text); got != want {
			t.Errorf("WebAddress(%q) = %q, want %q", text, got, want)
		}
	}
}
