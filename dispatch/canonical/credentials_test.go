package canonical_test

import (
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch/canonical"
)

// withCredentials are URLs with a user name or a password, as people write them, some wrongly.
var withCredentials = []string{
	"https://ada:secret@example.com/", "http://ada:secret@example.com:8080/a?b#c", "HTTPS://secret@example.com", "https://:secret@example.com/",
	`https:\\ada:secret@example.com\a`, "https:///ada:secret@example.com/", "https:ada:secret@example.com", " https://ada:secret@example.com/",
	"https://ada:secret@example.com@evil.example/", "https://ada:secr@secret@example.com/@ada", "https://ada:secret/x@example.com/",
	"https://ada:1secret?x@example.com/", "https://ada:my secret@example.com/", "ftp://ada:secret@example.com/",
	"//ada:secret@example.com/", "ada:secret@example.com/a", "https://ada:secret@[::1]:80/", "https://ada:secret@[::1/", "https://ada:secret@exa mple/",
	"feed:https://ada:secret@example.com/", "https://ada:secret@\x00", "https://ada:%73ecret@127.1/secure",
	"https://ada:secret＠example.com/", "https://ada:secret%40example.com/",
}

// URLs are kept and shown, so that none may have credentials; nor may the error.
func TestParse_refusesCredentials(t *testing.T) {
	t.Parallel()
	for _, raw := range withCredentials {
		got, err := canonical.Parse(canonical.Plain, raw)
		if err == nil {
			t.Errorf("%q became %q; want an error", raw, got.Canonical)
		} else if strings.Contains(err.Error(), "ada") || strings.Contains(err.Error(), "secr") {
			t.Errorf("the error of %q shows them: %v", raw, err)
		}
	}
	_, err := canonical.Parse(canonical.Plain, withCredentials[0])
	if want := `must have no user name or password, since URLs are kept and shown; remove what is before the "@"`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestRedactedURL(t *testing.T) {
	t.Parallel()
	for _, raw := range withCredentials {
		if got := canonical.RedactedURL(raw); strings.Contains(got, "secr") || strings.Contains(got, "ada:") {
			t.Errorf("%q is shown as %q", raw, got)
		}
	}
	for raw, want := range map[string]string{
		"https://ada:secret@example.com/a@b": "https://xxxxx@example.com/a@b",
		"ada:secret@example.com":             "xxxxx@example.com",
		"https://example.com/@ada":           "https://example.com/@ada",
		"https://example.com:8080/@ada":      "https://example.com:8080/@ada",
		"https://example.com?q=ada@x":        "https://example.com?q=ada@x",
		"https://[::1]:80/@ada":              "https://[::1]:80/@ada",
		"//example.com/@ada":                 "//example.com/@ada",
		"":                                   "",
	} {
		if got := canonical.RedactedURL(raw); got != want {
			t.Errorf("%q is shown as %q, want %q", raw, got, want)
		}
	}
}

func TestRedacted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://ada:secret@example.com/a@b":                                                 "https://ada:xxxxx@example.com/a@b",
		"get https://a.example/ of redis://:secret@b.example:6379, https://secret@c.example": "get https://a.example/ of redis://:xxxxx@b.example:6379, https://xxxxx@c.example",
		"fetch https://example.com: see https://example.com/@ada, ada@example.com":           "fetch https://example.com: see https://example.com/@ada, ada@example.com",
		"sso:ada@example.com": "sso:ada@example.com",
	} {
		if got := canonical.Redacted(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}
