package web

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/http2"
)

const (
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 30 * time.Second

	// maxHeaderBytes bounds the head of an answer.
	maxHeaderBytes = 256 << 10

	// maxIdle is how many idle connections are kept: the most slots that a collector may have, since all may be at one host.
	maxIdle = 1000
)

// transport is the Handler's own, for HTTP/1.1 and 2. Requests through a proxy have connections of their own, since a proxy may be
// in a private network and a page's host may not.
type transport struct {
	proxy   func(*http.Request) (*url.URL, error)
	direct  *http.Transport
	proxied *http.Transport
	http1   *transport // for what a server refuses by HTTP/2; nil: this one speaks HTTP/1.1 only
}

// newTransport makes a transport. proxy nil means the environment's.
func newTransport(proxy *url.URL, allowPrivate bool) *transport {
	t := newVersions(proxy, allowPrivate)
	t.http1 = newVersions(proxy, allowPrivate)
	only := new(http.Protocols)
	only.SetHTTP1(true)
	t.http1.direct.Protocols, t.http1.proxied.Protocols = only, only
	return t
}

func newVersions(proxy *url.URL, allowPrivate bool) *transport {
	t := &transport{proxy: http.ProxyFromEnvironment}
	if proxy != nil {
		t.proxy = http.ProxyURL(proxy)
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	t.proxied = baseTransport(dialer)
	t.proxied.Proxy = t.proxy
	t.proxied.OnProxyConnectResponse = checkConnect
	guarded := &net.Dialer{Timeout: dialTimeout}
	if !allowPrivate {
		guarded.Control = RefusePrivate
	}
	t.direct = baseTransport(guarded)
	return t
}

// baseTransport does not decompress, so that sizes are limited before and after.
func baseTransport(dialer *net.Dialer) *http.Transport {
	return &http.Transport{
		DialContext:            dialer.DialContext,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTimeout,
		TLSHandshakeTimeout:    handshakeTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
}

// RoundTrip sends a request through the proxy that is meant for it, or directly; by HTTP/1.1 if the server wants that.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.send(request)
	if refused, ok := errors.AsType[http2.StreamError](err); ok && refused.Code == http2.ErrCodeHTTP11Required && t.http1 != nil {
		return t.http1.send(request)
	}
	return response, err
}

func (t *transport) send(request *http.Request) (*http.Response, error) {
	proxy, err := t.proxy(request)
	if err != nil {
		return nil, &net.OpError{Op: "proxyconnect", Net: "tcp", Err: err}
	}
	if proxy == nil {
		return t.direct.RoundTrip(request)
	}
	response, err := t.proxied.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if err := checkForwarded(request, response); err != nil {
		return nil, err
	}
	return response, nil
}

// parts are all transports that have connections.
func (t *transport) parts() []*http.Transport {
	return []*http.Transport{t.direct, t.proxied, t.http1.direct, t.http1.proxied}
}

// closeIdle closes the connections that wait for a next request.
func (t *transport) closeIdle() {
	for _, part := range t.parts() {
		part.CloseIdleConnections()
	}
}
