package auth

import (
	"net"
	"net/netip"
	"strings"
)

// IsLocal reports whether only this machine reaches an address to listen on: one of the loopback, or a Unix socket.
func IsLocal(address string) bool {
	if strings.HasPrefix(address, "unix:") {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	return err == nil && isLoopback(host)
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
