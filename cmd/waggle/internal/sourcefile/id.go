package sourcefile

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
)

const (
	maxID      = 128 // bytes of a source's id
	digestSize = 10  // hexadecimal digits, of the URL's SHA-256
)

// ID is the id of a source that has none: the same for the same URL whatever
// stands around it, and another for another URL.
//
// It is the host and the path of the URL with _ for each slash: https://example.com/feeds/rss.xml is
// example.com_feeds_rss.xml. Where that would not say all of it (another scheme, a port, a query, capitals, other
// characters than letters, digits, dots and hyphens, a slash at the end, too many bytes), what can be kept is kept, and
// a hyphen and ten digits of the URL's SHA-256 follow. prefix stands before it, and counts for the length.
func ID(prefix, rawURL string) string {
	if plain, ok := plainID(rawURL); ok && len(prefix)+len(plain) <= maxID {
		return prefix + plain
	}
	sum := sha256.Sum256([]byte(rawURL))
	_, rest, found := strings.Cut(rawURL, "://")
	if !found {
		rest = rawURL
	}
	rest, _, _ = strings.Cut(rest, "#")
	slug := slug(rest, max(maxID-len(prefix)-digestSize-1, 0))
	if slug != "" {
		slug += "-"
	}
	return prefix + slug + hex.EncodeToString(sum[:])[:digestSize]
}

// plainID is the id of a URL that can be read back from it.
func plainID(rawURL string) (string, bool) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "https" || u.Host == "" || rawURL != "https://"+u.Host+u.Path {
		return "", false
	}
	path := u.Path
	if path == "/" {
		path = ""
	}
	if strings.HasSuffix(path, "/") || strings.ContainsFunc(u.Host+strings.ReplaceAll(path, "/", ""), notPlain) {
		return "", false
	}
	return u.Host + strings.ReplaceAll(path, "/", "_"), true
}

func notPlain(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '.' && r != '-'
}

// slug keeps of a text what an id may hold, up to a length.
func slug(text string, length int) string {
	var b strings.Builder
	gap := false
	for _, r := range strings.ToLower(text) {
		switch {
		case b.Len()+2 > length:
			return strings.Trim(b.String(), "._-")
		case notPlain(r):
			gap = b.Len() > 0
			continue
		case gap:
			b.WriteByte('_')
		}
		gap = false
		b.WriteRune(r)
	}
	return strings.Trim(b.String(), "._-")
}
