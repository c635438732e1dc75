package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
)

// fault is what kind of trouble an error of Redis is.
type fault uint8

const (
	faultOther       fault = iota
	faultUnavailable       // no answer, or an answer that says "later"
	faultReadOnly
	faultFull
	faultNoFunction
	faultCaller // the caller's context ended
)

// laterPrefixes begin the errors of a server that cannot answer now.
var laterPrefixes = [...]string{
	"LOADING ", "CLUSTERDOWN ", "TRYAGAIN ", "MASTERDOWN ", "BUSY ", "MOVED ", "ASK ", "UNBLOCKED ", "ERR max number of clients reached",
}

// readOnlyPrefixes begin the errors of a server that takes no writes now: a
// replica, one whose replicas are too few or too far behind, one that cannot write
// to its disk.
var readOnlyPrefixes = [...]string{"READONLY ", "NOREPLICAS ", "MISCONF "}

// faultOf sorts an error of the client.
func faultOf(ctx context.Context, err error) fault {
	text := err.Error()
	switch {
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		return faultCaller
	case redis.IsOOMError(err) || strings.HasPrefix(text, "OOM "):
		return faultFull
	case strings.HasPrefix(text, "ERR Function not found"):
		return faultNoFunction
	case redis.IsReadOnlyError(err) || beginsAny(text, readOnlyPrefixes[:]):
		return faultReadOnly
	case isNetwork(err) || beginsAny(text, laterPrefixes[:]):
		return faultUnavailable
	}
	return faultOther
}

func beginsAny(text string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(text, prefix) })
}

func isNetwork(err error) bool {
	var network net.Error
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) ||
		errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) || errors.As(err, &op)
}

// openError is an error of the first calls to a Redis, as [Open] returns it. Three kinds
// are retried once a store is open, but are mistakes in the URL before: its one server is a
// replica, its one server is a node of a Cluster, none of its hosts exists.
func openError(ctx context.Context, to *target, err error) error {
	follows := to.cluster || to.sentinel
	_, moved := redis.IsMovedError(err)
	switch {
	case errors.Is(err, errReplica) && follows:
		return fmt.Errorf("%w: %w", dispatch.ErrStoreReadOnly, err)
	case errors.Is(err, errReplica):
		return fmt.Errorf("%w: %w; give the address of the primary", dispatch.ErrStoreMismatch, err)
	case moved && !follows:
		return fmt.Errorf("%w: this redis is a node of a Cluster; give a URL that begins with redis+cluster://", dispatch.ErrStoreMismatch)
	case errors.Is(err, dispatch.ErrStoreUnavailable):
		if unknown := to.unknown(ctx); unknown != nil {
			return fmt.Errorf("%s: %w", opConnect, unknown)
		}
	}
	return err
}

// unknown is an error if no host of the URL exists; nil if one does, or if a name server
// does not answer.
func (t *target) unknown(ctx context.Context) error {
	var failed error
	for _, addr := range t.addrs {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil
		}
		_, err = net.DefaultResolver.LookupHost(ctx, host)
		var lookup *net.DNSError
		if !errors.As(err, &lookup) || !lookup.IsNotFound {
			return nil
		}
		failed = err
	}
	return failed
}

// wrap turns an error of the client into one of dispatch, with the operation.
func wrap(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	switch faultOf(ctx, err) {
	case faultFull:
		return fmt.Errorf("%w: %s: %w", dispatch.ErrStoreFull, op, err)
	case faultReadOnly:
		return fmt.Errorf("%w: %s: %w", dispatch.ErrStoreReadOnly, op, err)
	case faultUnavailable:
		return fmt.Errorf("%w: %s: %w", dispatch.ErrStoreUnavailable, op, err)
	default:
		return fmt.Errorf("%s: %w", op, err)
	}
}
