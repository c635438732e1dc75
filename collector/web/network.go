package web

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
)

// errPrivate is the error of an address that belongs to no public host.
var errPrivate = errors.New("address of a private network; only collectors with --allow-private (AllowPrivate) fetch from those")

// nat64 is the prefix of RFC 6052, under which networks without IPv4 reach it: the last four bytes are what is reached.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// public6 is the global unicast space of IPv6. The prefixes below are exceptions from it.
var public6 = netip.MustParsePrefix("2000::/3")

// refusedPrefixes are networks of IANA's special-purpose registries without public hosts. Some tunnel to any IPv4 address.
var refusedPrefixes = prefixes(
	"0.0.0.0/8",       // this host
	"10.0.0.0/8",      // private
	"100.64.0.0/10",   // carrier-grade NAT
	"127.0.0.0/8",     // loopback
	"169.254.0.0/16",  // link-local, with the metadata services of clouds
	"172.16.0.0/12",   // private
	"192.0.0.0/24",    // protocol assignments
	"192.0.2.0/24",    // documentation
	"192.88.99.0/24",  // 6to4 relays
	"192.168.0.0/16",  // private
	"198.18.0.0/15",   // benchmarks
	"198.51.100.0/24", // documentation
	"203.0.113.0/24",  // documentation
	"224.0.0.0/4",     // multicast
	"240.0.0.0/4",     // reserved, and broadcast
	"2001::/23",       // protocol assignments, Teredo among them
	"2001:db8::/32",   // documentation
	"2002::/16",       // 6to4
	"3fff::/20",       // documentation
)

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

// isPublic reports whether an address can be a public host's.
func isPublic(ip netip.Addr) bool {
	ip = ip.Unmap()
	if nat64.Contains(ip) {
		bytes := ip.As16()
		ip = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	if !ip.IsValid() || ip.Zone() != "" || (ip.Is6() && !public6.Contains(ip)) {
		return false
	}
	return !slices.ContainsFunc(refusedPrefixes, func(refused netip.Prefix) bool { return refused.Contains(ip) })
}

// RefusePrivate is a Control function for net.Dialer that refuses to connect to addresses of private, loopback,
// link-local, shared, multicast and reserved networks. It sees the address that a name has resolved to, so no DNS answer
// gets past it. A Handler's own transport uses it; give it to the dialer of a Config.Transport too.
func RefusePrivate(_, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q is no IP address with a port", errPrivate, address)
	}
	if !isPublic(target.Addr()) {
		return fmt.Errorf("%w: %s", errPrivate, target.Addr())
	}
	return nil
}

// loopbackNames are the names that resolvers take for the host itself, whatever DNS says: by RFC 6761, by the hosts files
// of Linux distributions, and by systemd. Of the first two, names below them are too.
var loopbackNames = []string{
	"localhost", "localhost.localdomain",
	"localhost4", "localhost4.localdomain4", "localhost6", "localhost6.localdomain6", "ip6-localhost", "ip6-loopback",
}

// checkHost refuses a URL whose host is, as it is written, an IP address of a private network or a name of the host itself.
// It needs no DNS, so it also works with a proxy or a Config.Transport. The host is in the form of extract.ParseReference.
func checkHost(u *url.URL) error {
	host := u.Hostname()
	ip, err := netip.ParseAddr(host)
	private := err == nil && !isPublic(ip) || slices.Contains(loopbackNames, host)
	if private || strings.HasSuffix(host, ".localhost") || strings.HasSuffix(host, ".localhost.localdomain") {
		return fmt.Errorf("%w: %s", errPrivate, u.Host)
	}
	return nil
}
