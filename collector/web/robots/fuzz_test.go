package robots_test

import (
	"cmp"
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/collector/web/robots"
)

// robotsSeeds are files with a path to judge.
var robotsSeeds = []struct{ file, path string }{
	{"User-agent: *\nDisallow: /a\nAllow: /a/b\n", "/a/b?c"},
	{"\xef\xbb\xbfUser-agent: waggle/1.0 # us\r\nUSER-AGENT:other\rDisallow : /*.php$\nAllow:/x$y\n\nuser-agent: *\ndisallow: /", "/x.php"},
	{"user-agent: waggle\ncrawl-delay: 1.5\nuser-agent: *\nallow: /%7ea%2fb*\ndisallow: /ä\nsitemap: https://a.example/\nallow: *", "/~a/b%C3%A4"},
	{"user-agent: waggle\ncrawl-delay: 2\nsitemap: /s\nuser-agent: other\ndisallow /a\nallow: a\nuser-agent: */1.0\ndisallow: /", "/a"},
	{"user-agent:*\ndisallow:/**\nallow:/a\n", "/a"},
	{"user-agent:*\ndisallow:/%2a*%24$\nallow:a%2\n", "/*x$"},
	{"user-agent: *\ncrawl-delay: 1e9\ndisallow: " + strings.Repeat("/*a", 600) + "\n", "/" + strings.Repeat("a/", 900)},
}

// FuzzCache_Check holds that any robots.txt is read, and that the decision is that of RFC 9309, by a second reading of it.
func FuzzCache_Check(f *testing.F) {
	for _, seed := range robotsSeeds {
		f.Add(seed.file, seed.path)
	}
	f.Fuzz(func(t *testing.T, file, path string) {
		u, err := url.Parse("http://a.example/" + strings.TrimPrefix(path, "/"))
		if err != nil || u.Host != "a.example" || len(path) > 2048 || len(file) > 16<<10 {
			return
		}
		allowed := decide(t, file, u)
		if want := googleAllows(file, "waggle", u); allowed != want {
			t.Errorf("%q by %q is allowed: %t, want %t", u, file, allowed, want)
		}
	})
}

// decide is what a cache decides by a robots.txt, whose other parts have to keep their limits.
func decide(t *testing.T, file string, u *url.URL) (allowed bool) {
	t.Helper()
	cache := robots.NewCache("waggle", time.Hour, serve(200, file))
	start := time.Now()
	err := cache.Check(t.Context(), u)
	if took := time.Since(start); took > 10*time.Second { // some milliseconds, but on a machine that is busy
		t.Errorf("a file of %d bytes took %v", len(file), took)
	}
	if denied := new(robots.DeniedError); err != nil && !errors.As(err, &denied) {
		t.Fatalf("%v, want a decision", err)
	}
	if delay, ok := cache.Delay(u); !ok || delay < 0 || delay > 24*time.Hour {
		t.Errorf("delay %v, %t", delay, ok)
	}
	sitemaps := cache.Sitemaps(u)
	if len(sitemaps) > 100 || slices.ContainsFunc(sitemaps, func(s string) bool { return len(s) > 2048 || !strings.Contains(s, "://") }) {
		t.Errorf("sitemaps %q", sitemaps)
	}
	return err == nil
}

// FuzzCache_large holds that a file of the greatest size takes bounded work, whatever it repeats.
func FuzzCache_large(f *testing.F) {
	for _, seed := range robotsSeeds {
		f.Add(seed.file, seed.path)
	}
	for _, line := range []string{"*", "/*a", "a", "%", "\n", "\r", ":", "user-agent:*\n", "disallow:*a*a*a*a*b\n", "sitemap:http://a\n", "**\nallow:", "\xff#"} {
		f.Add(line, strings.Repeat("a", 2000))
		f.Add("user-agent: *\ndisallow: /"+line, strings.Repeat("/a", 1000))
	}
	f.Fuzz(func(t *testing.T, file, path string) {
		u := &url.URL{Scheme: "http", Host: "a.example", Path: "/" + path}
		if file == "" || len(path) > 2048 || len(file) > robots.MaxBytes {
			return
		}
		decide(t, strings.Repeat(file, robots.MaxBytes/len(file)), u)
		decide(t, "user-agent: *\n"+strings.Repeat(file, robots.MaxBytes/len(file)), u)
	})
}

// googleAllows is a second reading of RFC 9309, after the matcher that Google publishes: all rules are looked at, each with
// all places in the path that its pattern may have come to.
func googleAllows(file, agent string, u *url.URL) bool {
	path := cmp.Or(u.EscapedPath(), "/")
	if path == "/robots.txt" {
		return true
	}
	if u.RawQuery != "" {
		path += "?" + u.RawQuery
	}
	path = spelled(path, func(c byte, _ bool) bool { return c == '*' || c == '$' })
	longest := map[bool]int{true: -1, false: -1} // the match that decides, of allow and disallow
	for _, rule := range googleRules(file, agent) {
		if googleMatches(path, rule.pattern) {
			longest[rule.allow] = max(longest[rule.allow], len(rule.pattern))
		}
	}
	return longest[true] >= longest[false]
}

type googleRule struct {
	pattern string
	allow   bool
}

// googleLine is a line that counts: a field and its value, with a colon between them or without. Others end no list of names.
var googleLine = regexp.MustCompile(`^(?i)(user-agent|allow|disallow)(?:[\s\v\x{85}\pZ]*:|[\s\v\x{85}\pZ])[\s\v\x{85}\pZ]*((?s).*)$`)

// googleRules are the rules of the groups of an agent, or of all agents if none names it.
func googleRules(file, agent string) []googleRule {
	found := map[string][]googleRule{} // by "agent" and "*"
	named := map[string]bool{}
	var group []string // names of the group whose lines these are
	agents := false    // whether its names go on
	for _, line := range strings.Split(strings.ReplaceAll(strings.TrimPrefix(file, "\xef\xbb\xbf"), "\r", "\n"), "\n") {
		line, _, _ = strings.Cut(line, "#")
		parts := googleLine.FindStringSubmatch(strings.TrimSpace(line))
		if parts == nil {
			continue
		}
		key, value := strings.ToLower(parts[1]), parts[2]
		switch key {
		case "user-agent":
			if !agents {
				group = nil
			}
			agents = true
			name := strings.ToLower(value)
			if end := strings.IndexFunc(name, func(r rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789_-", r) }); end >= 0 {
				name = name[:end]
			}
			if value == "*" || strings.HasPrefix(value, "* ") {
				name = "*"
			}
			group, named[name] = append(group, name), true
		case "allow", "disallow":
			agents = false
			if len(value) > 2048 || value == "" || value[0] != '/' && value[0] != '*' {
				continue
			}
			pattern := spelled(value, func(c byte, last bool) bool { return c == '$' && !last })
			for _, name := range slices.Compact(slices.Sorted(slices.Values(group))) {
				found[name] = append(found[name], googleRule{pattern, key == "allow"})
			}
		}
	}
	if named[agent] {
		return found[agent]
	}
	return found["*"]
}

// spelled is a path or a pattern in one spelling: percent-encoded what is not ASCII or has no place in a URL, and what
// special says; unreserved characters decoded. special is asked whether a character as it stands is no wildcard.
func spelled(text string, special func(c byte, last bool) bool) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		encode := c <= ' ' || c >= 0x7f || strings.IndexByte("\"<>^`{}|'", c) >= 0 || special(c, i == len(text)-1)
		if c == '%' && i+2 < len(text) {
			high, low := strings.IndexByte(hex, upper(text[i+1])), strings.IndexByte(hex, upper(text[i+2]))
			if high >= 0 && low >= 0 {
				i += 2
				c = byte(high<<4 | low)
				encode = !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~", rune(c))
			}
		}
		if encode {
			b.WriteString("%" + hex[c>>4:c>>4+1] + hex[c&15:c&15+1])
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func upper(c byte) byte {
	if 'a' <= c && c <= 'f' {
		return c - 'a' + 'A'
	}
	return c
}

// googleMatches keeps the set of lengths of the path that the pattern so far may match.
func googleMatches(path, pattern string) bool {
	ends := []int{0}
	for i, c := range []byte(pattern) {
		switch {
		case c == '$' && i == len(pattern)-1:
			return ends[len(ends)-1] == len(path)
		case c == '*':
			first := ends[0]
			ends = ends[:0]
			for end := first; end <= len(path); end++ {
				ends = append(ends, end)
			}
		default:
			next := ends[:0]
			for _, end := range ends {
				if end < len(path) && path[end] == c {
					next = append(next, end+1)
				}
			}
			ends = next
		}
		if len(ends) == 0 {
			return false
		}
	}
	return true
}
