package collector

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The causes with which a handler's context ends; test context.Cause(ctx) with errors.Is.
var (
	// ErrLeaseLost means that the lease is no longer held, or could not be renewed in time. Somebody else may have the
	// task already: stop at once, write nothing more. Whatever the handler returns is dropped; a task whose lease could
	// not be renewed is given back once it has returned.
	ErrLeaseLost = errors.New("lease lost")

	// ErrCanceled means that somebody wants the task ended: it was canceled, its source deleted, or its queue denied.
	// The lease stands, and how the handler ends is reported.
	ErrCanceled = errors.New("task canceled")

	// ErrDraining means that the collector stops and Config.DrainTimeout is over. A handler that now returns an error
	// has its task given back; no attempt is spent.
	ErrDraining = errors.New("collector draining")

	// ErrReplaced means that a newer session has taken this collector's id: all leases are gone. Run returns it too.
	ErrReplaced = errors.New("collector replaced by a newer session")
)

// errStoreFull is the answer to a report that the store has no room for.
var errStoreFull = status.Error(codes.ResourceExhausted, "the store is full")

// errStoreInPart is the answer to a report of which the store has not told. It is no outage: others were answered.
var errStoreInPart = status.Error(codes.Aborted, "a part of the store does not answer")

// Errors of Run beside ErrReplaced.
var (
	// ErrRunning is returned by a Run that begins while another one of the same Collector goes on.
	ErrRunning = errors.New("collector is running already")

	// ErrUnclean is wrapped by what Run returns when it had to leave something behind: a handler that did not return
	// after its context had ended, or a report that no dispatcher answered in time. The leases concerned run out by
	// themselves.
	ErrUnclean = errors.New("collector stopped uncleanly")
)
