package web

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"

	"golang.org/x/net/html/atom"
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
	own := h.fetcher.transport.(*transport)
	own.direct.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	own.proxied.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

// Resolve makes a reference absolute in both ways there are.
func Resolve(base *url.URL, ref string) (absolute, parsed string) {
	r := resolver{base: base}
	absolute, _ = r.resolve(ref)
	parsed, _ = r.parse(ref)
	return absolute, parsed
}

// IsUTF8 tells whether a document that begins so is in UTF-8.
func IsUTF8(begin, contentType string) bool { return isUTF8([]byte(begin), contentType) }

// ElementOf is the element of a start tag as it is written.
func ElementOf(tag []byte) atom.Atom { return elementOf(tag) }
