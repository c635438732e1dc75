package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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
	next := &served{cert: &cert}
	if len(contents) > 2 {
		next.authorities = x509.NewCertPool()
		if !next.authorities.AppendCertsFromPEM(contents[2]) {
			return fmt.Errorf("%s has no PEM certificate", c.files.paths[2])
		}
		if old := c.current.Load(); old != nil && old.authorities.Equal(next.authorities) {
			next.authorities = old.authorities // so that what was verified stays so
		}
	}
	c.current.Store(next)
	return nil
}

// Run follows the files until ctx ends.
func (c *Certificates) Run(ctx context.Context) { follow(ctx, c.files.look) }

// Config serves with the newest certificate that could be read.
func (c *Certificates) Config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := c.current.Load()
		config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*now.cert}, NextProtos: []string{"h2"}}
		if now.authorities != nil {
			config.ClientAuth, config.ClientCAs = tls.VerifyClientCertIfGiven, now.authorities
		}
		return config, nil
	}}
}

// authorities are those of clients' certificates; nil for a server without.
func (c *Certificates) authorities() *x509.CertPool {
	if c == nil {
		return nil
	}
	return c.current.Load().authorities
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
		if len(of.State.PeerCertificates) > 0 {
			return conn, &certified{TLSInfo: of}, nil
		}
	default:
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
func (l *local) identify(*Guard, *state) (string, time.Time, error) { //nolint:unparam // of other proofs there is an end
	return fmt.Sprintf("uid:%d", l.user), time.Time{}, nil
}

// certified is a connection with a certificate of its client.
type certified struct {
	credentials.TLSInfo
	last atomic.Pointer[verdict]
}

// verdict is whether a certificate is one of the authorities.
type verdict struct {
	by  *x509.CertPool
	err error
}

// identify implements proof. The certificate is verified again when the authorities have changed.
func (c *certified) identify(g *Guard, _ *state) (string, time.Time, error) {
	chain, by := c.State.PeerCertificates, g.certificates.authorities()
	leaf := chain[0]
	last := c.last.Load()
	if last == nil || last.by != by {
		last = &verdict{by: by, err: verify(leaf, chain[1:], by)}
		c.last.Store(last)
	}
	if last.err != nil {
		return "", time.Time{}, last.err
	}
	identity, err := nameOf(leaf)
	return identity, leaf.NotAfter, err
}

func verify(leaf *x509.Certificate, others []*x509.Certificate, by *x509.CertPool) error {
	if by == nil {
		return errors.New("client certificates are not accepted")
	}
	between := x509.NewCertPool()
	for _, cert := range others {
		between.AddCert(cert)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: by, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return errors.New("no authority that is trusted has signed the client certificate, or it has expired")
	}
	return nil
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
