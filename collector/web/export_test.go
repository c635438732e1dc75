package web

import (
	"crypto/tls"
	"net/http"
)

// NewTransportForTest is the transport that keeps heads, with TLS settings of the test's.
func NewTransportForTest(config *tls.Config) *http.Transport {
	transport := newTransport(nil, true).direct
	transport.TLSClientConfig = config
	keepHeads(transport)
	return transport
}
