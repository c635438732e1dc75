package client

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
)

// DefaultServer is the dispatcher to ask if no other is named.
const DefaultServer = "127.0.0.1:7070"

// CheckServers refuses what can be no dispatcher's address, before anything waits for an answer from it. One alone may
// also be a name that gRPC resolves, such as unix:/path or dns:///host:port.
func CheckServers(servers []string) error {
	if len(servers) == 0 {
		return cli.Usagef("--server is empty; say host:port")
	}
	for i, server := range servers {
		servers[i] = strings.TrimSpace(server)
		if servers[i] == "" {
			return cli.Usagef("--server has an empty address")
		}
		if !isAddress(servers[i]) && (len(servers) > 1 || !isTarget(servers[i])) {
			return cli.Usagef("--server %s: want host:port, as %s", servers[i], DefaultServer)
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
	scheme, _, _ := strings.Cut(server, ":")
	return slices.Contains([]string{"unix", "unix-abstract", "dns", "passthrough", "ipv4", "ipv6"}, scheme) && scheme != server
}

// TLSOptions are how a dispatcher proves who it is.
type TLSOptions struct {
	on bool
	ca string
}

// Register adds the flags.
func (t *TLSOptions) Register(flags *pflag.FlagSet) {
	flags.BoolVar(&t.on, "tls", false, "connect by TLS")
	flags.StringVar(&t.ca, "tls-ca", "", "PEM `file` with the authorities to trust, instead of the system's; turns --tls on")
}

// Wanted reports whether to connect by TLS.
func (t *TLSOptions) Wanted() bool { return t.on || t.ca != "" }

// Credentials are those of a connection.
func (t *TLSOptions) Credentials() (credentials.TransportCredentials, error) {
	if !t.Wanted() {
		return insecure.NewCredentials(), nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.ca != "" {
		pem, err := os.ReadFile(t.ca)
		if err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--tls-ca: %s holds no PEM certificate", t.ca)
		}
	}
	return credentials.NewTLS(config), nil
}
