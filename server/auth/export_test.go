package auth

import (
	"crypto/tls"
	"crypto/x509"

	"google.golang.org/grpc/credentials"
)

// NewCertified is what a connection with a certificate has.
func NewCertified(cert *x509.Certificate) credentials.AuthInfo {
	return &certified{credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}}}
}
