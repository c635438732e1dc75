package main

import (
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// checkServers refuses what can be no dispatcher's address, before anything waits
// for an answer from it. One alone may also be a name that gRPC resolves, as
// unix:/path or dns:///host:port.
func checkServers(cmd *cobra.Command, servers []string) error {
	if len(servers) == 0 {
		return usagef(cmd, "--server is empty; say host:port")
	}
	for i, server := range servers {
		servers[i] = strings.TrimSpace(server)
		if servers[i] == "" {
			return usagef(cmd, "--server has an empty address")
		}
		if !isAddress(servers[i]) && (len(servers) > 1 || !isTarget(servers[i])) {
			return usagef(cmd, "--server %s: want host:port, as %s", servers[i], defaultServer)
		}
	}
	return nil
}

func isAddress(server string) bool {
	host, port, err := net.SplitHostPort(server)
	number, portErr := strconv.ParseUint(port, 10, 16)
	return err == nil && portErr == nil && number > 0 && !strings.Contains(host, "/")
}

func isTarget(server string) bool {
	for _, scheme := range []string{"unix:", "unix-abstract:", "dns:", "passthrough:", "ipv4:", "ipv6:"} {
		if strings.HasPrefix(server, scheme) {
			return true
		}
	}
	return false
}
