package web

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net/http"

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

// StartTag is a start tag as a tagReader reads it.
type StartTag struct {
	Element    atom.Atom
	Attributes map[string]string
}

// StartTags are those of a document.
func StartTags(text string) []StartTag {
	var list []StartTag
	tags := tagReader{text: []byte(text)}
	for {
		element, ok := tags.next()
		if !ok {
			return list
		}
		tag := StartTag{Element: element, Attributes: map[string]string{}}
		for _, a := range tags.attrs {
			lower := bytes.Clone(a.name)
			for i, c := range lower {
				if 'A' <= c && c <= 'Z' {
					lower[i] = c | 0x20
				}
			}
			name := string(bytes.ReplaceAll(lower, []byte{0}, []byte("\ufffd")))
			if _, dup := tag.Attributes[name]; !dup {
				tag.Attributes[name] = string(decodeValue(a.value))
			}
		}
		list = append(list, tag)
	}
}
