package canonical

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// maxHostLength is DNS's.
const maxHostLength = 253

// Host is the host of a URL as [URL] has it. The error is that of [Parse].
func Host(raw string) (string, error) {
	u, err := Parse(Plain, raw)
	return u.Host, err
}

// QueueName is the name of the queue that people mean by text: of a URL its [Host]; of a host in whatever case and script that host, with its
// port. What is neither is given as it is, for others to refuse.
func QueueName(text string) string {
	if strings.Contains(text, "://") {
		if queue, err := Host(text); err == nil {
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

// parseURL takes an absolute http or https URL apart, and brings scheme and host
// into canonical form.
func parseURL(raw string) (u *url.URL, parts urlParts, err error) {
	switch {
	case len(raw) > MaxLength:
		return nil, parts, fmt.Errorf("is %d bytes long; the limit is %d", len(raw), MaxLength)
	case !utf8.ValidString(raw):
		return nil, parts, errors.New("must be UTF-8")
	}
	trimmed := trimURL(raw)
	if i := strings.IndexFunc(trimmed, isControl); i >= 0 {
		return nil, parts, fmt.Errorf("must have no control character in it, such as %q", trimmed[i])
	}
	parts = splitURL(trimmed)
	if u, err = url.Parse(parts.head); err != nil {
		return nil, parts, errors.New("does not parse as a URL")
	}
	u.Scheme = strings.ToLower(u.Scheme)
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, parts, errors.New("must begin with http:// or https://")
	}
	host, err := canonicalHost(u.Hostname())
	if err != nil {
		return nil, parts, err
	}
	port, err := canonicalPort(u)
	if err != nil {
		return nil, parts, err
	}
	if port != "" {
		host = net.JoinHostPort(strings.Trim(host, "[]"), port)
	}
	u.Host = host
	return u, parts, nil
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
