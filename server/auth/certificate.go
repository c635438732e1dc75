package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"
)

// Certificates are the certificate of a server, and the authorities of its clients' certificates. They follow their files.
type Certificates struct {
	files   files
	current atomic.Pointer[served]
}

// served is what a server serves with.
type served struct {
	cert        *tls.Certificate
	authorities *x509.CertPool // nil: clients are not asked for certificates

	ends, authoritiesEnd time.Time
}

// LoadCertificates reads PEM files. clientCAFile may be empty: then clients are not asked for certificates.
func LoadCertificates(certFile, keyFile, clientCAFile string, log *zap.Logger) (*Certificates, error) {
	c := new(Certificates)
	c.files = files{paths: []string{certFile, keyFile}, what: "the TLS certificate", log: log, read: c.use}
	if clientCAFile != "" {
		c.files.paths = append(c.files.paths, clientCAFile)
	}
	if err := c.files.load(); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Certificates) use(contents [][]byte) error {
	cert, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return err
	}
	next := &served{cert: &cert, ends: cert.Leaf.NotAfter}
	if len(contents) > 2 {
		if next.authoritiesEnd, err = firstEnd(contents[2]); err != nil {
			return fmt.Errorf("%s: %w", c.files.paths[2], err)
		}
		next.authorities = x509.NewCertPool()
		if !next.authorities.AppendCertsFromPEM(contents[2]) {
			return fmt.Errorf("%s has no PEM certificate", c.files.paths[2])
		}
	}
	c.current.Store(next)
	return nil
}

// firstEnd is when the first of the certificates of a PEM file ends; zero: there is none.
func firstEnd(text []byte) (first time.Time, err error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return first, err
		}
		if first.IsZero() || cert.NotAfter.Before(first) {
			first = cert.NotAfter
		}
	}
	return first, nil
}

// Ends are when the server's certificate ends, and the first of those of the authorities of clients; zero: clients are not asked for
// certificates.
func (c *Certificates) Ends() (own, authorities time.Time) {
	now := c.current.Load()
	return now.ends, now.authoritiesEnd
}

// Run follows the files until ctx ends.
func (c *Certificates) Run(ctx context.Context) { follow(ctx, c.files.look) }

// Config serves these protocols with the newest certificate that could be read.
func (c *Certificates) Config(protocols ...string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := c.current.Load()
		config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*now.cert}, NextProtos: protocols}
		if now.authorities != nil {
			config.ClientAuth, config.ClientCAs = tls.VerifyClientCertIfGiven, now.authorities
		}
		return config, nil
	}}
}

// Credentials prove who calls by what a connection has: its certificate, or its user on a Unix socket.
func Credentials(c credentials.TransportCredentials) credentials.TransportCredentials {
	return &proving{c}
}

type proving struct {
	credentials.TransportCredentials
}

// ServerHandshake makes the handshake.
func (p *proving) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := p.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	switch of := info.(type) {
	case credentials.TLSInfo:
		return conn, ProvenBy(of), nil
	default:
		if wrapper, ok := raw.(interface{ NetConn() net.Conn }); ok {
			raw = wrapper.NetConn()
		}
		if socket, ok := raw.(*net.UnixConn); ok {
			user, err := userOf(socket)
			if err != nil {
				return nil, nil, fmt.Errorf("find the user of a Unix socket: %w", err)
			}
			return conn, &local{AuthInfo: info, user: user}, nil
		}
	}
	return conn, info, nil
}

// ProvenBy is a TLS connection as what proves who calls by it, if its client has sent a certificate.
func ProvenBy(of credentials.TLSInfo) credentials.AuthInfo {
	if len(of.State.PeerCertificates) > 0 {
		return &certified{of}
	}
	return of
}

// Clone copies the credentials.
func (p *proving) Clone() credentials.TransportCredentials {
	return &proving{p.TransportCredentials.Clone()}
}

// local is a connection on a Unix socket.
type local struct {
	credentials.AuthInfo
	user uint32
}

// identify implements proof.
func (l *local) identify(*state) (string, time.Time, error) { //nolint:unparam // of other proofs there is an end
	return fmt.Sprintf("uid:%d", l.user), time.Time{}, nil
}

// certified is a connection with a certificate of its client, which the handshake has verified. It stays so if the authority
// is removed later: a connection lives no longer than MaxConnectionAge, and who must go at once loses the grant.
type certified struct{ credentials.TLSInfo }

// TLS is the connection.
func (c *certified) TLS() credentials.TLSInfo { return c.TLSInfo }

// identify implements proof.
func (c *certified) identify(*state) (string, time.Time, error) {
	leaf := c.State.PeerCertificates[0]
	identity, err := nameOf(leaf)
	return identity, leaf.NotAfter, err
}

// nameOf is the identity of a certificate: its SPIFFE id, which is its only URI, or else its first DNS name.
// https://github.com/spiffe/spiffe/blob/main/standards/X509-SVID.md
func nameOf(cert *x509.Certificate) (string, error) {
	for _, uri := range cert.URIs {
		if uri.Scheme != "spiffe" {
			continue
		}
		if len(cert.URIs) > 1 {
			return "", errors.New("the client certificate has a SPIFFE id and other URIs; it must have one")
		}
		return uri.String(), nil
	}
	if len(cert.DNSNames) > 0 {
		return "dns:" + cert.DNSNames[0], nil
	}
	return "", errors.New("the client certificate has no SPIFFE id and no DNS name")
}
