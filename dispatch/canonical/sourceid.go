package canonical

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

const (
	maxSourceID = 128 // bytes of a source's id
	digestSize  = 10  // hexadecimal digits, of the URL's SHA-256
)

// unplain is what an id has instead of as it is in a URL.
var unplain = regexp.MustCompile(`[^a-z0-9.-]+`)

// SourceID is the id of a source that has none: the same for each spelling of a URL, and another for another URL.
//
// It is the host and the path of the URL with _ for each slash: https://example.com/feeds/rss.xml is
// example.com_feeds_rss.xml. Where that would not be all of it (another scheme, a port, a query, capitals, other
// characters than letters, digits, dots and hyphens, a slash at the end, too many bytes), what can be kept is kept, and
// a hyphen and ten digits of the URL's SHA-256 follow. prefix stands before it, and counts for the length.
func SourceID(prefix, rawURL string) string {
	if form, err := Form(Sorted, rawURL); err == nil {
		rawURL = form
	} else {
		rawURL = RedactedURL(rawURL)
	}
	_, rest, found := strings.Cut(rawURL, "://")
	if !found {
		rest = rawURL
	}
	if host, path, _ := strings.Cut(rest, "/"); path == "" {
		rest = host
	}
	plain := strings.ReplaceAll(rest, "/", "_")
	if strings.HasPrefix(rawURL, "https://") && len(prefix)+len(plain) <= maxSourceID && !strings.HasSuffix(rest, "/") && !unplain.MatchString(strings.ReplaceAll(rest, "/", "")) {
		return prefix + plain
	}
	sum := sha256.Sum256([]byte(rawURL))
	slug := strings.Trim(unplain.ReplaceAllString(strings.ToLower(rest), "_"), "._-")
	if slug = strings.Trim(slug[:min(len(slug), max(maxSourceID-len(prefix)-digestSize-1, 0))], "._-"); slug != "" {
		slug += "-"
	}
	return prefix + slug + hex.EncodeToString(sum[:])[:digestSize]
}
