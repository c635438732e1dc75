package collector

import (
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const errorDomain = "waggle"

// The causes with which a handler's context ends; test context.Cause(ctx) with errors.Is.
var (
	// ErrLeaseLost means that the lease is no longer held, or could not be renewed in time. Somebody else may have the
	// task already: stop at once, write nothing more. Whatever the handler returns is dropped; a task whose lease could
	// not be renewed is given back once it has returned.
	ErrLeaseLost = errors.New("lease lost")

	// ErrCanceled means that somebody wants the task ended: it was canceled, or its source deleted. The lease stands, and
	// how the handler ends is reported.
	ErrCanceled = errors.New("task canceled")

	// ErrHeld means that a hold ends work in hand. The lease stands but is not renewed any more. A success is reported; a
	// handler that returns an error has its task given back, and no attempt is spent.
	ErrHeld = errors.New("task held")

	// ErrStopping means that the collector stops and Config.StopTimeout is over. A handler that now returns an error
	// has its task given back; no attempt is spent.
	ErrStopping = errors.New("collector stopping")

	// ErrReplaced means that a newer session has taken this collector's id: all leases are gone. Run returns it too.
	ErrReplaced = errors.New("collector replaced by a newer session")
)

// Errors of Run beside ErrReplaced.
var (
	// ErrRunning is returned by a Run that begins while another one of the same Collector goes on.
	ErrRunning = errors.New("collector is running already")

	// ErrRefused is wrapped by what Run returns when dispatchers know this collector, and it may not fetch: its role or its
	// pools do not allow that, its id belongs to another identity, or this version of the library is too old.
	ErrRefused = errors.New("dispatchers refuse this collector")

	// ErrUnclean is wrapped by what Run returns when it had to leave something behind: a handler that did not return
	// after its context had ended, or a report that no dispatcher answered in time. The leases concerned run out by
	// themselves.
	ErrUnclean = errors.New("collector stopped uncleanly")
)

// Errors that are repeated.
var (
	// errSilent is that of a heartbeat.
	errSilent = errors.New("no answer to a heartbeat in time")

	// errStoreFull is the answer to a report that the store has no room for.
	errStoreFull = status.Error(codes.ResourceExhausted, "the store is full")

	// errStoreInPart is the answer to a report when its part of the store is away. It is no outage: others were answered.
	errStoreInPart = status.Error(codes.Aborted, "a part of the store does not answer")
)

// detailOf is the first detail of a type that an error has; the zero value when it has none.
func detailOf[T any](err error) (found T) {
	for _, detail := range status.Convert(err).Details() {
		if found, ok := detail.(T); ok {
			return found
		}
	}
	return found
}

// askedDelay is the RetryInfo of an error.
func askedDelay(err error) time.Duration {
	return min(max(detailOf[*errdetails.RetryInfo](err).GetRetryDelay().AsDuration(), 0), time.Minute)
}

// reasonOf is the ErrorInfo of an error; unspecified when it has none of Waggle's.
func reasonOf(err error) wagglev1.ErrorReason {
	info := detailOf[*errdetails.ErrorInfo](err)
	if info.GetDomain() != errorDomain {
		return wagglev1.ErrorReason_ERROR_REASON_UNSPECIFIED
	}
	return wagglev1.ErrorReason(wagglev1.ErrorReason_value["ERROR_REASON_"+info.GetReason()])
}

// isTooLarge reports whether an error is gRPC's own refusal of a message that is larger than one may be: Waggle's of too
// much at once say why, and when to come again.
func isTooLarge(err error) bool {
	return status.Code(err) == codes.ResourceExhausted && reasonOf(err) == wagglev1.ErrorReason_ERROR_REASON_UNSPECIFIED &&
		askedDelay(err) == 0
}

func isReplaced(err error) bool {
	return reasonOf(err) == wagglev1.ErrorReason_ERROR_REASON_COLLECTOR_REPLACED
}

// isRefusal reports whether an error says that this collector, as it is set up, will never be served. A credential that is not
// accepted is no such error: another one may be in its file soon.
func isRefusal(err error) bool {
	code := status.Code(err)
	return code == codes.Unimplemented || code == codes.PermissionDenied
}

// isDenied reports whether a dispatcher knows who calls, and does not permit the call, or finds this library too old. Proxies
// answer with the same code.
func isDenied(err error) bool {
	return status.Code(err) == codes.PermissionDenied && detailOf[*errdetails.ErrorInfo](err).GetDomain() == errorDomain ||
		reasonOf(err) == wagglev1.ErrorReason_ERROR_REASON_CLIENT_TOO_OLD
}

// isOutage reports whether an error says that nobody could answer, and nothing of what was asked.
func isOutage(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	default:
		return errors.Is(err, errSilent)
	}
}
