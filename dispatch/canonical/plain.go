package canonical

import (
	"net/netip"
	"strconv"
	"strings"
)

// plainHost recognizes URLs that are in the canonical form of every rules
// already, as most are, by looking at each byte once: a host name of plain
// labels or an IPv4 address, a port that is no scheme's, a path of bytes that
// never change, no query. It gives the host of such a URL, with the port. What
// it does not recognize has to be parsed.
func plainHost(raw string) (host string, ok bool) {
	rest, ok := strings.CutPrefix(raw, "https://")
	if !ok {
		if rest, ok = strings.CutPrefix(raw, "http://"); !ok {
			return "", false
		}
	}
	end := strings.IndexByte(rest, '/')
	if end < 0 || !plainPath(rest[end:]) {
		return "", false
	}
	host = rest[:end]
	name, port, hasPort := strings.Cut(host, ":")
	if hasPort && !plainPort(port) || !plainName(name) && !plainAddress(name) {
		return "", false
	}
	return host, true
}

// plainPort reports whether a port is written as it is in canonical form, and
// no scheme's.
func plainPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0 && n != 80 && n != 443 && strconv.FormatUint(n, 10) == port
}

// plainAddress reports whether a host is an IPv4 address in canonical form.
func plainAddress(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Is4()
}

// plainName reports whether a host is a name that IDNA leaves as it is, and no
// address: its last label begins with a letter.
func plainName(host string) bool {
	last, label := byte('.'), byte(0)
	for _, c := range []byte(host) {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-':
			if last == '.' {
				label = c
			}
		case c == '.' && last != '.':
		default:
			return false
		}
		last = c
	}
	return 'a' <= label && label <= 'z' && last != '.' && len(host) <= maxHostLength && !strings.Contains(host, "xn--")
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
