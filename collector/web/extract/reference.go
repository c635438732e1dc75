package extract

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"

	"github.com/waggle-crawl/waggle/dispatch/canonical"
)

// MaxURLBytes is the longest URL that Waggle takes, in bytes. A longer link is counted as skipped.
const MaxURLBytes = 2048

// ParseReference parses a reference that stands in a document of the given scheme, http or https, as browsers do by
// WHATWG's URL standard; without a scheme the reference has to be absolute. White space and control characters around it
// and line breaks within are left out, "\" is "/", `http:name` is relative in a document of http, slashes before a host are
// as good as two, a colon in the first segment of a path is no scheme's unless what stands before it could be one, and what
// may not stand in a URL is percent-encoded, with each "%" that encodes nothing. The schemes of feeds (feed, feeds, itpc) are
// those of the web. Of http and https, the host is in the form that names its queue, an IP address also if it is spelled
// otherwise, without the scheme's port. User information is left out.
func ParseReference(ref, scheme string) (*url.URL, error) {
	return parseReference(ref, scheme, nil)
}

// parseReference is ParseReference in a document whose encoding is that of queries; nil is UTF-8.
func parseReference(ref, scheme string, queries encoding.Encoding) (*url.URL, error) {
	ref = strings.TrimFunc(ref, func(r rune) bool { return r <= ' ' })
	if strings.ContainsAny(ref, "\t\r\n") {
		ref = strings.NewReplacer("\t", "", "\r", "", "\n", "").Replace(ref)
	}
	ref, _, _ = strings.Cut(ref, "#")
	before, query, hasQuery := strings.Cut(ref, "?")
	own, rest := cutScheme(before)
	switch own {
	case "", "http", "https":
	case "feed", "feeds", "itpc":
		return parseReference(canonical.WebAddress(ref), scheme, queries)
	default:
		return parse(ref)
	}
	rest = strings.ReplaceAll(rest, `\`, "/")
	begin := ""
	if strings.HasPrefix(rest, "//") || own != "" && own != scheme {
		authority, path := cutAuthority(strings.TrimLeft(rest, "/"))
		host, err := canonical.Authority(cmp.Or(own, scheme), authority[strings.LastIndexByte(authority, '@')+1:])
		if err != nil {
			return nil, fmt.Errorf("URL %w", err)
		}
		if begin, rest = "//"+host, path; own != "" {
			begin = own + ":" + begin
		}
	}
	rest = escape(plainDots(rest), pathEscapes)
	if first, _, _ := strings.Cut(rest, "/"); begin == "" && strings.Contains(first, ":") {
		rest = "./" + rest // for the parser not to look for a scheme
	}
	if hasQuery {
		escapes := queryEscapes
		if other := encoded(query, queries); other != query {
			query, escapes = other, encodedEscapes
		}
		rest += "?" + escape(query, escapes)
	}
	return parse(begin + rest)
}

// plainDots has the segments of a path that are one dot or two, however they are written, as such.
func plainDots(path string) string {
	if !strings.Contains(path, "%2") {
		return path
	}
	segments, plain := strings.Split(path, "/"), strings.NewReplacer("%2e", ".", "%2E", ".")
	for i, segment := range segments {
		if dots := plain.Replace(segment); dots == "." || dots == ".." {
			segments[i] = dots
		}
	}
	return strings.Join(segments, "/")
}

// encoded is a query in an encoding, as browsers write it: what that does not have is the number of the character.
func encoded(query string, in encoding.Encoding) string {
	if in == nil || isASCII(query) {
		return query
	}
	encoder, text, out := in.NewEncoder(), []byte(query), make([]byte, 8*len(query)) // up to two changes of state a character
	var b strings.Builder
	for {
		n, read, err := encoder.Transform(out, text, true)
		b.Write(out[:n])
		if text = text[read:]; err == nil || len(text) == 0 {
			return b.String()
		}
		r, size := utf8.DecodeRune(text)
		fmt.Fprintf(&b, "%%26%%23%d%%3B", r)
		text = text[size:]
	}
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}

// parse parses a URL without its user information. Its error does not show the URL, which may have a password.
func parse(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("URL does not parse")
	}
	u.User = nil
	return u, nil
}

func cutAuthority(text string) (authority, path string) {
	if i := strings.IndexByte(text, '/'); i >= 0 {
		return text[:i], text[i:]
	}
	return text, ""
}

// cutScheme cuts the scheme that a reference begins with, in lower case; empty when there is none.
func cutScheme(ref string) (scheme, rest string) {
	before, after, found := strings.Cut(ref, ":")
	if !found || before == "" || !isLetter(before[0]) {
		return "", ref
	}
	for _, c := range []byte(before) {
		if !isLetter(c) && (c < '0' || c > '9') && strings.IndexByte("+-.", c) < 0 {
			return "", ref
		}
	}
	return strings.ToLower(before), after
}

// What WHATWG's percent-encode sets of a path and of a query have beside the space, control characters and what is not
// ASCII. "|" is ours: net/url writes no path with it.
const (
	pathEscapes  = "\"<>^`{}|"
	queryEscapes = `"#<>'`

	// encodedEscapes are those, and the signs that are the second half of a character in some encodings. Browsers leave those as
	// they are, which is the same to the server.
	encodedEscapes = queryEscapes + "@[\\]^`{|}"
)

// escape percent-encodes the bytes of a part of a URL that may not stand in it, and each "%" that encodes nothing.
func escape(s, escapes string) string {
	const upperHex = "0123456789ABCDEF"
	if !strings.ContainsFunc(s, func(r rune) bool { return r == '%' || mustEscape(r, escapes) }) {
		return s
	}
	var b strings.Builder
	for i, c := range []byte(s) {
		if mustEscape(rune(c), escapes) || c == '%' && !isEscape(s[i:]) {
			b.Write([]byte{'%', upperHex[c>>4], upperHex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func mustEscape(r rune, escapes string) bool {
	return r <= ' ' || r >= 0x7f || strings.IndexByte(escapes, byte(r)) >= 0
}

// isEscape reports whether s, which begins with "%", begins with a percent-encoding.
func isEscape(s string) bool { return len(s) > 2 && isHex(s[1]) && isHex(s[2]) }

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// resolve makes a reference that is relative to base absolute, without its fragment. It fails if the result cannot be a task.
func (c *collection) resolve(base *url.URL, ref string) (absolute string, ok bool) {
	if len(ref) > 2*MaxURLBytes {
		return "", false
	}
	u, err := parseReference(ref, base.Scheme, c.encoding)
	if err != nil {
		return "", false
	}
	u = base.ResolveReference(u)
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return "", false
	}
	u.Fragment, u.RawFragment = "", ""
	u.Path = cmp.Or(u.Path, "/")
	absolute = u.String()
	return absolute, len(absolute) <= MaxURLBytes
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
