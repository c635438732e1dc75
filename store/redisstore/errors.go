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
