package canonical

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// maxHostLength is DNS's.
const maxHostLength = 253

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
