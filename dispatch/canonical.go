package dispatch

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Canonicalize turns a URL into the form that identifies it, by the numbered
// rules. Rules never change once released: a source keeps the number it was
// made with, because its keys were made by them.
//
// Rules 1, after RFC 3986 section 6.2.2 and 6.2.3: only http and https; scheme
// and host in lower case, the host in punycode, without the scheme's default
// port and without a trailing dot; percent-encodings in upper case, those of
// unreserved characters decoded, what must be encoded encoded; dot segments
// removed; an empty path is "/"; no fragment; no empty query. Query, user
// information, trailing slashes and letter case of the path are kept.
//
// The error is a [FieldError] for "url".
func Canonicalize(rules int, raw string) (string, error) {
	if rules != 1 {
		return "", Invalid("canonical_rules", rules, "must be 1")
	}
	u, err := parseURL(raw)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(u.Scheme + "://")
	if u.User != nil {
		b.WriteString(u.User.String() + "@")
	}
	b.WriteString(u.Host)
	b.WriteString(normalizeEscapes(removeDotSegments(u.EscapedPath())))
	if u.RawQuery != "" {
		b.WriteString("?" + normalizeEscapes(u.RawQuery))
	}
	return b.String(), nil
}

// HostQueue is the default queue of a URL: its host in lower case and punycode,
// with ":port" when the port is not the scheme's, so that http and https share
// it. The error is a [FieldError] for "url".
func HostQueue(raw string) (string, error) {
	u, err := parseURL(raw)
	if err != nil {
		return "", err
	}
	return u.Host, nil
}

// parseURL parses an absolute http or https URL and brings scheme and host into
// canonical form.
func parseURL(raw string) (*url.URL, error) {
	bad := func(limit string) error { return Invalid("url", raw, limit) }
	switch {
	case len(raw) > MaxURLLength:
		return nil, bad(fmt.Sprintf("is %d bytes long; the limit is %d", len(raw), MaxURLLength))
	case !utf8.ValidString(raw):
		return nil, bad("must be UTF-8")
	}
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil {
		return nil, bad("does not parse as a URL")
	}
	u.Scheme = strings.ToLower(u.Scheme)
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, bad("must begin with http:// or https://")
	}
	host, err := canonicalHost(u.Hostname())
	if err != nil {
		return nil, bad(err.Error())
	}
	port := u.Port()
	if port == "" && strings.HasSuffix(u.Host, ":") || port == defaultPort(u.Scheme) {
		port = ""
	}
	if port != "" {
		host = net.JoinHostPort(strings.Trim(host, "[]"), port)
	}
	u.Host = host
	return u, nil
}

func defaultPort(scheme string) string {
	if scheme == "https" {
		return "443"
	}
	return "80"
}

// canonicalHost gives a host name in lower case and punycode, or an IP address
// in its shortest form, IPv6 in brackets.
func canonicalHost(host string) (string, error) {
	if host == "" {
		return "", fmt.Errorf("must have a host")
	}
	if ip := net.ParseIP(host); ip != nil {
		if ip.To4() == nil {
			return "[" + ip.String() + "]", nil
		}
		return ip.String(), nil
	}
	ascii, err := idna.Lookup.ToASCII(strings.TrimSuffix(host, "."))
	if err != nil {
		// Lookup refuses names that DNS has all the same, such as those with
		// underscores; plain ASCII is taken as it is.
		ascii = strings.ToLower(strings.TrimSuffix(host, "."))
	}
	if ascii == "" || len(ascii) > 253 {
		return "", fmt.Errorf("must have a host of 1 to 253 bytes")
	}
	if strings.Contains("."+ascii+".", "..") {
		return "", fmt.Errorf("has a host with an empty label")
	}
	for _, c := range []byte(ascii) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`/\?#@:[]{}<>"|^%`+"`", c) >= 0 {
			return "", fmt.Errorf("has a host with the character %q", c)
		}
	}
	return ascii, nil
}

// removeDotSegments is RFC 3986 section 5.2.4 for an absolute path.
func removeDotSegments(path string) string {
	if path == "" {
		return "/"
	}
	var out []string
	segments := strings.Split(path[1:], "/")
	for i, segment := range segments {
		last := i == len(segments)-1
		switch strings.ReplaceAll(strings.ReplaceAll(segment, "%2e", "."), "%2E", ".") {
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
