package canonical

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// maxHostLength is DNS's.
const maxHostLength = 253

// hostProfile maps names as WHATWG's "domain to ASCII" does when it is not strict, which takes the names that DNS has,
// such as those with underscores or with hyphens in a row. It leaves out the bidi rule, which is about display and
// refuses names in use, such as a label of digits before one in Arabic.
var hostProfile = idna.New(idna.MapForLookup(), idna.CheckHyphens(false), idna.StrictDomainName(false))

var errCredentials = errors.New(`must have no user name or password, since URLs are kept and shown; remove what is before the "@"`)

// Authority is the host of a URL of the given scheme, as [URL] has it, from what stands between "://" and the path. The
// error completes "the URL ...".
func Authority(scheme, authority string) (string, error) {
	at := strings.LastIndexByte(authority, '@')
	if at > 0 && authority[:at] != ":" {
		return "", errCredentials
	}
	host, port := cutPort(authority[at+1:])
	host, err := canonicalHost(host)
	if err != nil {
		return "", err
	}
	if port, err = canonicalPort(scheme, port); err != nil || port == "" {
		return host, err
	}
	return host + ":" + port, nil
}

// cutPort cuts a host, an IPv6 address in brackets, from the port behind it.
func cutPort(authority string) (host, port string) {
	end := 0
	if strings.HasPrefix(authority, "[") {
		end = max(strings.IndexByte(authority, ']'), 0)
	}
	colon := strings.IndexByte(authority[end:], ':')
	if colon < 0 {
		return authority, ""
	}
	return authority[:end+colon], authority[end+colon+1:]
}

// canonicalPort is a port without leading zeros; empty when it is the scheme's.
func canonicalPort(scheme, text string) (string, error) {
	if text == "" {
		return "", nil
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r < '0' || r > '9' }) {
		return "", errors.New("has a port that is no number") // it may be a part of a password
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return "", fmt.Errorf("has port %.20s; it must be 1 to 65535", text)
	}
	if scheme == "http" && port == 80 || scheme == "https" && port == 443 {
		return "", nil
	}
	return strconv.FormatUint(port, 10), nil
}

// canonicalHost is WHATWG's host parser: it gives a host name in lower case and punycode, or an IP address in its
// shortest form, IPv6 in brackets. Other than there, a name has no trailing dot and no empty label, and an IPv6 address
// that stands for an IPv4 address is that.
func canonicalHost(host string) (string, error) {
	if host == "" {
		return "", errors.New("must have a host")
	}
	if strings.HasPrefix(host, "[") {
		return canonicalIPv6(host)
	}
	name, err := canonicalName(host)
	if err != nil {
		return "", err
	}
	if endsInNumber(name) {
		return canonicalIPv4(name)
	}
	return name, nil
}

func canonicalName(host string) (string, error) {
	name, err := toASCII(unescape(host))
	if err != nil {
		return "", err
	}
	name = strings.TrimSuffix(name, ".")
	if name == "" || len(name) > maxHostLength {
		return "", fmt.Errorf("must have a host of 1 to %d bytes", maxHostLength)
	}
	if strings.Contains("."+name+".", "..") {
		return "", errors.New("has a host with an empty label")
	}
	for _, c := range []byte(name) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`/\?#@:[]{}<>"|^%`+"`", c) >= 0 {
			return "", fmt.Errorf("has a host with the character %q", c)
		}
	}
	return name, nil
}

// toASCII maps a name by UTS 46. One that is ASCII already only changes its case.
func toASCII(name string) (string, error) {
	lower := strings.ToLower(name)
	plain := !strings.Contains("."+lower, ".xn--")
	for i := 0; plain && i < len(lower); i++ {
		plain = lower[i] < utf8.RuneSelf
	}
	if plain {
		return lower, nil
	}
	if !utf8.ValidString(name) {
		return "", errors.New("has a host that is not UTF-8")
	}
	ascii, err := hostProfile.ToASCII(name)
	if err != nil {
		return "", errors.New("has a host that is no valid internationalized name (IDNA)")
	}
	return ascii, nil
}

// unescape decodes percent-encodings; a "%" that encodes nothing stays.
func unescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && isEscape(s[i:]) {
			b.WriteByte(unhex(s[i+1])<<4 | unhex(s[i+2]))
			i += 2
		} else {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

func canonicalIPv6(host string) (string, error) {
	text, closed := strings.CutSuffix(host[1:], "]")
	ip, err := netip.ParseAddr(text)
	if err != nil || !closed || !ip.Is6() || ip.Zone() != "" {
		return "", errors.New("has a host in brackets that is no IPv6 address")
	}
	if ip = ip.Unmap(); ip.Is4() {
		return ip.String(), nil
	}
	return "[" + ip.String() + "]", nil
}

// endsInNumber reports whether the last label of a name is a number, which makes the name an IPv4 address.
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if !strings.ContainsFunc(last, func(r rune) bool { return r < '0' || r > '9' }) {
		return true
	}
	digits, hex := strings.CutPrefix(last, "0x")
	return hex && !strings.ContainsFunc(digits, func(r rune) bool { return !isHex(byte(r)) })
}

// canonicalIPv4 reads the one to four numbers of an IPv4 address, each decimal, octal ("0...") or hexadecimal ("0x..."),
// the last one for all bytes that are left.
func canonicalIPv4(name string) (string, error) {
	parts := strings.Split(name, ".")
	var address uint64
	for i, part := range parts {
		left := 4 - i // bytes
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * left
		}
		number, ok := parseNumber(part)
		if left <= 0 || !ok || number>>bits > 0 {
			return "", errors.New("has a host that ends in a number, but is no IPv4 address")
		}
		address |= number << (8*left - bits)
	}
	return netip.AddrFrom4([4]byte{byte(address >> 24), byte(address >> 16), byte(address >> 8), byte(address)}).String(), nil
}

// parseNumber reads a number of an IPv4 address; "0x" is 0.
func parseNumber(text string) (number uint64, ok bool) {
	digits, base := text, 10
	if after, hex := strings.CutPrefix(text, "0x"); hex {
		digits, base = after, 16
	} else if len(text) > 1 && text[0] == '0' {
		digits, base = text[1:], 8
	}
	if digits == "" {
		return 0, base == 16
	}
	number, err := strconv.ParseUint(digits, base, 32) // without an underscore or a sign
	return number, err == nil
}
