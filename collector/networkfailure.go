package collector

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
)

// FailureOf makes a *Failed of an error that Go's net, crypto/tls or net/http returned for a request; nil for any other
// error. All such failures are the host's, but for those of a proxy.
func FailureOf(err error) *Failed {
	reason := networkReason(err)
	if reason == 0 {
		return nil
	}
	return &Failed{Reason: reason, Message: err.Error()}
}

// networkReason tells the ways apart in which a request breaks; 0 for what is no failure of the network.
func networkReason(err error) Reason {
	var dns *net.DNSError
	var op *net.OpError
	isOp := errors.As(err, &op)
	switch {
	case isOp && op.Op == "proxyconnect":
		return ReasonProxy
	case errors.As(err, &dns):
		return ReasonDNS
	case isTLS(err):
		return ReasonTLS
	case isTimeout(err):
		return ReasonTimeout
	case isOp && (op.Op == "dial" || op.Op == "socks connect"):
		return ReasonConnect
	case isOp, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return ReasonConnectionLost
	}
	return 0
}

func isTLS(err error) bool {
	var verification *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var op *net.OpError
	return errors.As(err, &verification) || errors.As(err, &record) || errors.As(err, &alert) ||
		errors.As(err, &authority) || errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, &host) ||
		errors.As(err, &op) && op.Op == "remote error" // how crypto/tls marks an alert of the other side
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || (errors.As(err, &timeout) && timeout.Timeout())
}
