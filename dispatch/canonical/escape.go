package canonical

import (
	"strings"
	"unicode"
)

// Escape writes a URL as browsers send it, by WHATWG's URL standard: without
// the white space and control characters around it, "\" before the query as "/",
// and percent-encoded what its path, query and fragment may not contain. A "%"
// that encodes nothing becomes "%25". Everything else stays as it is.
func Escape(raw string) string {
	u := splitURL(raw)
	return u.head + u.path + u.query + u.fragment
}

// WebAddress is the http or https URL that people mean by an address that feed readers
// write (feed:, feeds:, itpc:), or by one that begins with "www."; any other text is
// returned as it is.
func WebAddress(text string) string {
	trimmed := trimURL(text)
	scheme, rest, _ := strings.Cut(trimmed, ":")
	switch strings.ToLower(scheme) {
	case "feed", "itpc":
		scheme = "http"
	case "feeds":
		scheme = "https"
	default:
		if len(trimmed) > 4 && strings.EqualFold(trimmed[:4], "www.") {
			return "http://" + trimmed
		}
		return text
	}
	rest = strings.TrimLeft(rest, "/")
	if inner, _, found := strings.Cut(rest, "://"); found && (strings.EqualFold(inner, "http") || strings.EqualFold(inner, "https")) {
		return rest
	}
	return scheme + "://" + rest
}

// urlParts are the parts of a URL as [Escape] writes them. Together they are
// the URL.
type urlParts struct {
	head     string // up to the path: scheme, user information, host and port
	path     string
	query    string // with its "?"
	fragment string // with its "#"
}

func splitURL(raw string) (u urlParts) {
	text := trimURL(raw)
	text, u.fragment = cutFrom(text, '#')
	text, u.query = cutFrom(text, '?')
	u.head = strings.ReplaceAll(text, `\`, "/")
	if begin := strings.Index(u.head, "://"); begin >= 0 {
		begin += len("://")
		if end := strings.IndexByte(u.head[begin:], '/'); end >= 0 {
			u.head, u.path = u.head[:begin+end], escapeURLPart(u.head[begin+end:], pathEscapes)
		}
	}
	u.query, u.fragment = escapeURLPart(u.query, queryEscapes), escapeURLPart(u.fragment, fragmentEscapes)
	return u
}

// trimURL leaves out what stands around a URL and is none of it: white space, and
// the control characters that browsers leave out there too (WHATWG's "C0 control or
// space").
func trimURL(raw string) string {
	return strings.TrimFunc(raw, func(r rune) bool { return r <= ' ' || unicode.IsSpace(r) })
}

// cutFrom cuts text before the first c.
func cutFrom(text string, c byte) (before, from string) {
	if i := strings.IndexByte(text, c); i >= 0 {
		return text[:i], text[i:]
	}
	return text, ""
}

// What WHATWG's percent-encode sets of a URL's parts have beside the space, control
// characters and what is not ASCII.
const (
	pathEscapes     = "\"<>^`{}"
	queryEscapes    = `"<>'`
	fragmentEscapes = "\"<>`"
)

// escapeURLPart percent-encodes the bytes of a part of a URL that may not stand in
// it, and each "%" that encodes nothing.
func escapeURLPart(s, escapes string) string {
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

const upperHex = "0123456789ABCDEF"

// normalizeEscapes writes percent-encodings in upper case, decodes those of
// unreserved characters, and encodes bytes that may not stand in a URL.
func normalizeEscapes(s string) string {
	const escapes = "\"<>\\^{|}`"
	if !strings.ContainsFunc(s, func(r rune) bool { return r == '%' || mustEscape(r, escapes) }) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '%' && isEscape(s[i:]):
			decoded := unhex(s[i+1])<<4 | unhex(s[i+2])
			if isUnreserved(decoded) {
				b.WriteByte(decoded)
			} else {
				b.Write([]byte{'%', upperHex[decoded>>4], upperHex[decoded&15]})
			}
			i += 2
		case c == '%' || mustEscape(rune(c), escapes):
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
