package dispatch

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// maxHostLength is DNS's.
const maxHostLength = 253

// HostQueue is the default queue of a URL: its host in lower case and punycode,
// with ":port" when the port is not the scheme's, so that http and https share
// it. The error is a [FieldError] for "url".
func HostQueue(raw string) (string, error) {
	_, queue, err := canonicalize(CanonicalPlain, raw)
	return queue, err
}

// QueueName is the name of the queue that people mean by text: of a URL its host,
// as [HostQueue] has it; of a host in whatever case and script that host, with its
// port. What is neither is given as it is, for others to refuse.
func QueueName(text string) string {
	if strings.Contains(text, "://") {
		if queue, err := HostQueue(text); err == nil {
			return queue
		}
		return text
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = strings.Trim(text, "[]"), ""
	}
	name, err := canonicalHost(host)
	if err != nil {
		return text
	}
	if port == "" {
		return name
	}
	return net.JoinHostPort(strings.Trim(name, "[]"), port)
}

// TrimURL leaves out what stands around a URL and is none of it: white space, and
// the control characters that browsers leave out there too (WHATWG's "C0 control or
// space"). So are URLs kept and handed out; their keys have never had it.
func TrimURL(raw string) string {
	return strings.TrimFunc(raw, func(r rune) bool { return r <= ' ' || unicode.IsSpace(r) })
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
	trimmed := TrimURL(raw)
	if i := strings.IndexFunc(trimmed, isControl); i >= 0 {
		return nil, bad(fmt.Sprintf("must have no control character in it, such as %q", trimmed[i]))
	}
	u, err := url.Parse(trimmed)
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
	port, err := canonicalPort(u)
	if err != nil {
		return nil, bad(err.Error())
	}
	if port != "" {
		host = net.JoinHostPort(strings.Trim(host, "[]"), port)
	}
	u.Host = host
	return u, nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// canonicalPort is a URL's port without leading zeros; empty when it is the
// scheme's.
func canonicalPort(u *url.URL) (string, error) {
	text := u.Port()
	if text == "" {
		return "", nil
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return "", fmt.Errorf("has port %.20s; it must be 1 to 65535", text)
	}
	if u.Scheme == "http" && port == 80 || u.Scheme == "https" && port == 443 {
		return "", nil
	}
	return strconv.FormatUint(port, 10), nil
}

// canonicalHost gives a host name in lower case and punycode, or an IP address
// in its shortest form, IPv6 in brackets.
func canonicalHost(host string) (string, error) {
	if host == "" {
		return "", errors.New("must have a host")
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
	if ascii == "" || len(ascii) > maxHostLength {
		return "", fmt.Errorf("must have a host of 1 to %d bytes", maxHostLength)
	}
	if strings.Contains("."+ascii+".", "..") {
		return "", errors.New("has a host with an empty label")
	}
	for _, c := range []byte(ascii) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`/\?#@:[]{}<>"|^%`+"`", c) >= 0 {
			return "", fmt.Errorf("has a host with the character %q", c)
		}
	}
	return ascii, nil
}
