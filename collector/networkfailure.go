package collector

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
)

// FailureOf makes a *Failed of an error that Go's net, crypto/tls or net/http returned for a request; nil for any other
// error. A timeout or a lost connection counts against one URL, the failure of a proxy against the collector, and all
// others against the host, also a timeout before there is a connection.
func FailureOf(err error) *Failed {
	if reason := networkReason(err); reason != 0 {
		return &Failed{Reason: reason, Message: err.Error()}
	}
	return nil
}

// networkReason tells the ways apart in which a request breaks; 0 for what is no failure of the network.
func networkReason(err error) Reason {
	op, isOp := errors.AsType[*net.OpError](err)
	switch {
	case isOp && op.Op == "proxyconnect":
		return ReasonProxy
	case is[*net.DNSError](err):
		return ReasonDNS
	case isTLS(err), isOp && op.Op == "remote error": // how crypto/tls marks an alert of the other side
		return ReasonTLS
	case isOp && (op.Op == "dial" || op.Op == "socks connect"):
		return ReasonConnect
	case isTimeout(err):
		return ReasonTimeout
	case isOp, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return ReasonConnectionLost
	}
	return 0
}

func isTLS(err error) bool {
	return is[*tls.CertificateVerificationError](err) || is[tls.RecordHeaderError](err) || is[tls.AlertError](err) ||
		is[x509.UnknownAuthorityError](err) || is[x509.HostnameError](err) || errors.Is(err, http.ErrSchemeMismatch) ||
		isTimeout(err) && strings.Contains(err.Error(), "TLS handshake timeout") // net/http has no type for it
}

// is reports whether an error is one of a type, or wraps one.
func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded)
}
