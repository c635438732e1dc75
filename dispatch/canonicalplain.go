package dispatch

import "strings"

// plainHost recognizes URLs that are in the canonical form of every rules
// already, as most are, by looking at each byte once: a host name of plain
// labels, no port, a path of bytes that never change, no query. It gives the
// host of such a URL. What it does not recognize has to be parsed.
func plainHost(raw string) (host string, ok bool) {
	rest, ok := strings.CutPrefix(raw, "https://")
	if !ok {
		if rest, ok = strings.CutPrefix(raw, "http://"); !ok {
			return "", false
		}
	}
	end := strings.IndexByte(rest, '/')
	if end < 0 || len(raw) > MaxURLLength || !plainName(rest[:end]) || !plainPath(rest[end:]) {
		return "", false
	}
	return rest[:end], true
}

// plainName reports whether a host is a name that IDNA leaves as it is, and no
// address.
func plainName(host string) bool {
	letters := false
	last := byte('.')
	for _, c := range []byte(host) {
		switch {
		case 'a' <= c && c <= 'z':
			letters = true
		case '0' <= c && c <= '9' || c == '-':
		case c == '.' && last != '.':
		default:
			return false
		}
		last = c
	}
	return letters && last != '.' && len(host) <= maxHostLength && !strings.Contains(host, "xn--")
}

// plainPath reports whether a path has no byte that is ever changed, left out,
// or the sign of a segment that is: a dot segment, a session id.
func plainPath(path string) bool {
	last := byte(0)
	for _, c := range []byte(path) {
		switch {
		case c == '.' && last == '/':
			return false
		case isUnreserved(c) || c == '/' || c == ',' || c == '=' || c == ':' || c == '@' || c == '+' || c == '&' || c == '$':
		default:
			return false
		}
		last = c
	}
	return true
}
