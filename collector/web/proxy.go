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

// proxyRefusal is the answer of a proxy that does not connect to a host.
type proxyRefusal struct {
	status int
	text   string
}

func (e *proxyRefusal) Error() string { return "proxy answers " + e.text }

// reason is the collector's fault if the proxy refuses this collector, and the host's if the proxy cannot or may not reach it.
func (e *proxyRefusal) reason() collector.Reason {
	if e.status == http.StatusProxyAuthRequired {
		return collector.ReasonProxy
	}
	return collector.ReasonConnect
}

// checkConnect checks a proxy's answer to CONNECT.
func checkConnect(_ context.Context, _ *url.URL, _ *http.Request, response *http.Response) error {
	if response.StatusCode == http.StatusOK {
		return nil
	}
	return &proxyRefusal{status: response.StatusCode, text: fmt.Sprintf("%d to CONNECT", response.StatusCode)}
}

// checkForwarded checks the answer to a request that a proxy forwards. 407 comes from the proxy, never from a host. Within a
// tunnel the proxy answers nothing.
func checkForwarded(request *http.Request, response *http.Response) error {
	if request.URL.Scheme != "http" || response.StatusCode != http.StatusProxyAuthRequired {
		return nil
	}
	response.Body.Close()
	return &proxyRefusal{status: response.StatusCode, text: "407: it wants a user and password"}
}

// proxyReason classifies an error that came from a proxy.
func proxyReason(err error) (collector.Reason, bool) {
	if refusal, ok := errors.AsType[*proxyRefusal](err); ok {
		return refusal.reason(), true
	}
	op, ok := errors.AsType[*net.OpError](err)
	wantsPassword := ok && op.Op == "socks connect" && strings.Contains(op.Err.Error(), "authentication") // the library has no type for it
	return collector.ReasonProxy, wantsPassword
}
