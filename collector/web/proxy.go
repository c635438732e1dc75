package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/waggle-crawl/waggle/collector"
)

// proxyRefusal says that a proxy gave no way to a host.
type proxyRefusal struct {
	status int
	text   string
}

func (e *proxyRefusal) Error() string { return "proxy answers " + e.text }

// reason tells a proxy that takes nothing from this collector from one that cannot reach, or may not be asked for, the
// host: that is the host's, since other hosts may do.
func (e *proxyRefusal) reason() collector.Reason {
	switch e.status {
	case http.StatusProxyAuthRequired:
		return collector.ReasonProxy
	case http.StatusGatewayTimeout:
		return collector.ReasonTimeout
	}
	return collector.ReasonConnect
}

// checkConnect looks at a proxy's answer to CONNECT.
func checkConnect(_ context.Context, _ *url.URL, _ *http.Request, response *http.Response) error {
	if response.StatusCode == http.StatusOK {
		return nil
	}
	return &proxyRefusal{status: response.StatusCode, text: fmt.Sprintf("%d to CONNECT", response.StatusCode)}
}

// checkForwarded looks at what came of a request that a proxy was to pass on. 407 is the proxy's own answer: no host has
// one to give. Within a tunnel the proxy says nothing.
func checkForwarded(request *http.Request, response *http.Response) error {
	if request.URL.Scheme != "http" || response.StatusCode != http.StatusProxyAuthRequired {
		return nil
	}
	response.Body.Close()
	return &proxyRefusal{status: response.StatusCode, text: "407: it wants a user and password"}
}

// proxyReason tells what a proxy said that ended an exchange.
func proxyReason(err error) (collector.Reason, bool) {
	if refusal, ok := errors.AsType[*proxyRefusal](err); ok {
		return refusal.reason(), true
	}
	op, ok := errors.AsType[*net.OpError](err)
	wantsPassword := ok && op.Op == "socks connect" && strings.Contains(op.Err.Error(), "authentication") // the library has no type for it
	return collector.ReasonProxy, wantsPassword
}
