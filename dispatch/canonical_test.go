package dispatch_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/waggle-crawl/waggle/dispatch"
)

func TestCanonicalize_rules1(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"http://example.com":                           "http://example.com/",
		"HTTP://Example.COM:80/":                       "http://example.com/",
		"https://example.com:443/a":                    "https://example.com/a",
		"https://example.com:80/a":                     "https://example.com:80/a",
		"http://example.com:/a":                        "http://example.com/a",
		"http://example.com./a":                        "http://example.com/a",
		"  http://example.com/a  ":                     "http://example.com/a",
		"http://example.com/a/./b/../c":                "http://example.com/a/c",
		"http://example.com/../../a":                   "http://example.com/a",
		"http://example.com/a/..":                      "http://example.com/",
		"http://example.com/a/.":                       "http://example.com/a/",
		"http://example.com/%2e%2e/a":                  "http://example.com/a",
		"http://example.com//a//b/":                    "http://example.com//a//b/",
		"http://example.com/%7euser/%c3%a9":            "http://example.com/~user/%C3%A9",
		"http://example.com/a%2fb":                     "http://example.com/a%2Fb",
		"http://example.com/é b":                       "http://example.com/%C3%A9%20b",
		"http://example.com/?":                         "http://example.com/",
		"http://example.com?q=1#frag":                  "http://example.com/?q=1",
		"http://example.com/?b=2&a=1&a=%41":            "http://example.com/?b=2&a=1&a=A",
		"http://example.com/?q=a b|c":                  "http://example.com/?q=a%20b%7Cc",
		"http://bücher.example/":                       "http://xn--bcher-kva.example/",
		"http://user:pw@example.com/":                  "http://user:pw@example.com/",
		"http://[2001:DB8::0:1]:80/":                   "http://[2001:db8::1]/",
		"http://[2001:db8::1]:8080/":                   "http://[2001:db8::1]:8080/",
		"http://127.0.0.1:8080/x":                      "http://127.0.0.1:8080/x",
		"http://my_host.example/":                      "http://my_host.example/",
		"http://example.com/CaseStays?Query=CaseStays": "http://example.com/CaseStays?Query=CaseStays",
	} {
		got, err := dispatch.Canonicalize(1, raw)
		if err != nil || got != want {
			t.Errorf("Canonicalize(%q) = %q, %v; want %q", raw, got, err, want)
		}
	}
}

func TestCanonicalize_refuses(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"", "example.com", "/path", "ftp://example.com/", "mailto:a@example.com", "http://", "http:///path", "http://:80/",
		"http://exa mple.com/", "http://a{b}.example/", "http://example.com:port/", "http://[::1/", "javascript:alert(1)",
		"http://../", "http://a..b/", "http://.a/", "http://example.com/\xff", "http://example.com/" + strings.Repeat("a", dispatch.MaxURLLength),
		"http://" + strings.Repeat("a.", 127) + "example/",
	} {
		_, err := dispatch.Canonicalize(1, raw)
		var field *dispatch.FieldError
		if !errors.As(err, &field) || field.Field != "url" {
			t.Errorf("Canonicalize(%.40q): %v; want a FieldError for url", raw, err)
		}
	}
	if _, err := dispatch.Canonicalize(2, "http://example.com/"); !errors.Is(err, dispatch.ErrInvalid) {
		t.Errorf("unknown rules: %v, want ErrInvalid", err)
	}
}

// What is canonical stays as it is: the key of a key is the key.
func TestCanonicalize_isIdempotent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		raw := "http://" + rapid.StringMatching(`[a-zA-Z0-9.-]{1,20}`).Draw(rt, "host") + "/" + rapid.String().Draw(rt, "path")
		once, err := dispatch.Canonicalize(1, raw)
		if err != nil {
			return
		}
		twice, err := dispatch.Canonicalize(1, once)
		if err != nil || twice != once {
			rt.Fatalf("%q became %q, then %q, %v", raw, once, twice, err)
		}
	})
}

func TestHostQueue_sharesSchemes(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"http://Example.com/a":       "example.com",
		"https://example.com:443/b":  "example.com",
		"https://example.com:8443/b": "example.com:8443",
		"http://[2001:db8::1]/":      "[2001:db8::1]",
		"http://[2001:db8::1]:81/":   "[2001:db8::1]:81",
	} {
		if got, err := dispatch.HostQueue(raw); err != nil || got != want {
			t.Errorf("HostQueue(%q) = %q, %v; want %q", raw, got, err, want)
		}
	}
}
