package collector

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"
)

// TLS says by which files dispatchers and this program prove to each other who they are. The files are read again for each
// connection, so they may be replaced while the program runs. While they cannot be read, or do not fit together, those that
// were read last are used.
type TLS struct {
	// CAFile has the certificates of the authorities to trust, in PEM. Default: those of the system.
	CAFile string

	// CertFile and KeyFile have the certificate of this program, with its chain, and the key of it, in PEM: both or neither.
	// Default: no certificate is shown.
	CertFile string
	KeyFile  string

	// ServerName is the name that a dispatcher's certificate must have. Default: the host in the target.
	ServerName string
}

func (t *TLS) validate() error {
	if t != nil && (t.CertFile == "") != (t.KeyFile == "") {
		return fmt.Errorf("field TLS.CertFile: %q and TLS.KeyFile: %q: want both or neither", t.CertFile, t.KeyFile)
	}
	return nil
}

// read makes a configuration of what the files hold now.
func (t *TLS) read() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("field TLS.CAFile: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("field TLS.CAFile: %s holds no PEM certificate", t.CAFile)
		}
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("field TLS.CertFile: %s with key %s: %w", t.CertFile, t.KeyFile, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// tlsTransport makes each handshake with what the files hold at that time.
type tlsTransport struct {
	credentials.TransportCredentials // for what does not depend on the files
	config                           *reloaded[*tls.Config]
}

// newTLSTransport reads the files for the first time.
func newTLSTransport(t TLS, log *zap.Logger) (credentials.TransportCredentials, error) {
	config, err := newReloaded("a file of TLS", 0, log, t.read)
	if err != nil {
		return nil, err
	}
	return &tlsTransport{TransportCredentials: credentials.NewTLS(config.good), config: config}, nil
}

// ClientHandshake implements [credentials.TransportCredentials].
func (t *tlsTransport) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(t.config.latest()).ClientHandshake(ctx, authority, conn)
}

// Clone implements [credentials.TransportCredentials].
func (t *tlsTransport) Clone() credentials.TransportCredentials {
	return &tlsTransport{TransportCredentials: t.TransportCredentials.Clone(), config: t.config}
}

// localTransport is plain text that leaves the machine under no name: it refuses connections to other addresses.
type localTransport struct {
	credentials.TransportCredentials
}

var errNotLocal = errors.New("a token is sent over TLS, to a Unix socket or to a loopback address only")

// ClientHandshake implements [credentials.TransportCredentials].
func (t localTransport) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	switch address := conn.RemoteAddr().(type) {
	case *net.UnixAddr:
	case *net.TCPAddr:
		if !address.IP.IsLoopback() {
			return nil, nil, fmt.Errorf("%w, not to %s", errNotLocal, address)
		}
	default:
		return nil, nil, fmt.Errorf("%w, not over %s", errNotLocal, address.Network())
	}
	return t.TransportCredentials.ClientHandshake(ctx, authority, conn)
}

// Clone implements [credentials.TransportCredentials].
func (t localTransport) Clone() credentials.TransportCredentials {
	return localTransport{t.TransportCredentials.Clone()}
}
