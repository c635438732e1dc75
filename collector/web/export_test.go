package web

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
)

// NewTransportForTest is the transport that keeps heads, with TLS settings of the test's.
func NewTransportForTest(config *tls.Config) *http.Transport {
	transport := newTransport(nil, true).direct
	transport.TLSClientConfig = config
	keepHeads(transport)
	return transport
}

// Trust makes a handler's own transport trust certificates.
func Trust(h *Handler, roots *x509.CertPool) {
	for _, part := range h.fetcher.transport.(*transport).parts() {
		part.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
}
