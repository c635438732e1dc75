package dispatch

import (
	"fmt"
	"net/url"
	"strings"
)

// Numbers of the canonicalisation rules. A source keeps the number it was made
// with, because its keys were made by them: the rules of a number never change
// once released. New rules get a new number.
const (
	// CanonicalPlain are the rules that do not change which document a URL
	// stands for.
	CanonicalPlain = 1
	// CanonicalSorted are those of CanonicalPlain, and those that hardly ever
	// do: the query in order, what only follows visitors left out.
	CanonicalSorted = 2
)

// Canonicalize turns a URL into the form that identifies it, by the rules of
// the given number. The form makes the key of a task and is what follow
// patterns are matched with; what is fetched is the URL as it was submitted.
//
// Rules 1 ([CanonicalPlain]), after RFC 3986 section 6.2.2 and 6.2.3, and after
// what crawlers do:
//   - white space around the URL goes (see [TrimURL]); only http and https are taken;
//   - the scheme and the host are in lower case, the host in punycode (IDNA 2008
//     as UTS 46 looks names up), without a trailing dot; IP addresses are in
//     their shortest form;
//   - no port that is the scheme's, no leading zeros in another, no ":" without
//     a port, no user information that is empty;
//   - percent-encodings are in upper case, those of unreserved characters are
//     decoded, and bytes that may not stand in a URL are encoded; "+" stays, and
//     so does an encoded "/";
//   - dot segments are removed; an empty path is "/"; empty segments stay;
//   - no fragment, no query that is empty;
//   - no session ids (see withoutSessions).
//
// Everything else is kept: user information, letter case and trailing slash of
// the path, the order of the query.
//
// Rules 2 ([CanonicalSorted]) are rules 1, then:
//   - parameters of the query that only follow visitors are left out (see
//     isTracking), and so are empty ones;
//   - the others are ordered by their names; those of one name stay in their
//     order, which lists are made of.
//
// The error is a [FieldError] for "url", or for "canonical_rules" if there are
// none of that number.
func Canonicalize(rules int, raw string) (string, error) {
	canonical, _, err := canonicalize(rules, raw)
	return canonical, err
}

// canonicalize gives the canonical form of a URL, and its [HostQueue].
func canonicalize(rules int, raw string) (canonical, queue string, err error) {
	if err := checkCanonicalRules(rules); err != nil {
		return "", "", err
	}
	if host, ok := plainHost(raw); ok {
		return raw, host, nil
	}
	u, err := parseURL(raw)
	if err != nil {
		return "", "", err
	}
	path := removeDotSegments(withoutPathSession(normalizeEscapes(rawPath(u))))
	query := withoutQuerySession(normalizeEscapes(u.RawQuery))
	if rules == CanonicalSorted {
		query = sortedQuery(query)
	}
	var b strings.Builder
	b.WriteString(u.Scheme + "://" + userInfo(u) + u.Host + path)
	if query != "" {
		b.WriteString("?" + query)
	}
	return b.String(), u.Host, nil
}

func checkCanonicalRules(rules int) error {
	if rules < CanonicalPlain || rules > CanonicalSorted {
		return Invalid("canonical_rules", rules, fmt.Sprintf("must be %d or %d", CanonicalPlain, CanonicalSorted))
	}
	return nil
}

// rawPath is the path as it was written. The one that [url.URL.EscapedPath]
// makes of a path with characters that should be encoded has lost which of its
// slashes were.
func rawPath(u *url.URL) string {
	if u.RawPath != "" {
		return u.RawPath
	}
	return u.EscapedPath()
}

// userInfo is what stands before the host, with its "@"; empty when it says
// nothing.
func userInfo(u *url.URL) string {
	password, _ := u.User.Password()
	switch {
	case u.User.Username() == "" && password == "":
		return ""
	case password == "":
		return url.User(u.User.Username()).String() + "@"
	}
	return u.User.String() + "@"
}

// removeDotSegments is RFC 3986 section 5.2.4 for an absolute path whose
// percent-encodings are normalized.
func removeDotSegments(path string) string {
	if path == "" {
		return "/"
	}
	var out []string
	segments := strings.Split(path[1:], "/")
	for i, segment := range segments {
		last := i == len(segments)-1
		switch segment {
		case ".":
			if last {
				out = append(out, "")
			}
		case "..":
			if len(out) > 0 {
				out = out[:len(out)-1]
			}
			if last {
				out = append(out, "")
			}
		default:
			out = append(out, segment)
		}
	}
	return "/" + strings.Join(out, "/")
}

const upperHex = "0123456789ABCDEF"

// normalizeEscapes writes percent-encodings in upper case, decodes those of
// unreserved characters, and encodes bytes that may not stand in a URL.
func normalizeEscapes(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]):
			decoded := unhex(s[i+1])<<4 | unhex(s[i+2])
			if isUnreserved(decoded) {
				b.WriteByte(decoded)
			} else {
				b.Write([]byte{'%', upperHex[decoded>>4], upperHex[decoded&15]})
			}
			i += 2
		case c <= ' ' || c >= 0x7f || c == '%' || strings.IndexByte(`"<>\^{|}`+"`", c) >= 0:
			b.Write([]byte{'%', upperHex[c>>4], upperHex[c&15]})
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c >= 'a':
		return c - 'a' + 10
	default:
		return c - 'A' + 10
	}
}
