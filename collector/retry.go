package collector

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second

	errorDomain = "waggle"
)

// retryDelay counts failures in a row and says how long to wait after each. The zero value is ready.
type retryDelay struct {
	failures int
}

// next is the wait after one more failure: doubling from 100 ms to 5 s, with jitter, and no less than the server asked.
func (b *retryDelay) next(err error) time.Duration { return b.nextWithin(maxBackoff, err) }

// nextWithin is next for a wait that doubles to less, unless the server asked for more.
func (b *retryDelay) nextWithin(most time.Duration, err error) time.Duration {
	delay := most
	if b.failures < 6 {
		delay = min(minBackoff<<b.failures, most)
	}
	b.failures++
	return max(jitter(delay), askedDelay(err))
}

// repeated reports whether what failed last was a repetition itself.
func (b *retryDelay) repeated() bool { return b.failures > 1 }

func (b *retryDelay) reset() { b.failures = 0 }

// jitter is a time between half of d and d, so that collectors that failed together do not come back together.
func jitter(d time.Duration) time.Duration {
	if d <= 1 {
		return d
	}
	return d/2 + rand.N(d/2)
}

// askedDelay is the RetryInfo of an error, with up to a tenth more.
func askedDelay(err error) time.Duration {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			asked := min(max(info.GetRetryDelay().AsDuration(), 0), time.Minute)
			return asked + jitter(asked/10)
		}
	}
	return 0
}

// reasonOf is the ErrorInfo of an error; unspecified when it has none of Waggle's.
func reasonOf(err error) wagglev1.ErrorReason {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == errorDomain {
			return wagglev1.ErrorReason(wagglev1.ErrorReason_value["ERROR_REASON_"+info.GetReason()])
		}
	}
	return wagglev1.ErrorReason_ERROR_REASON_UNSPECIFIED
}

// isTooLarge reports whether an error is gRPC's own refusal of a message that is larger than one may be: Waggle's of too
// much at once say why, and when to come again.
func isTooLarge(err error) bool {
	if status.Code(err) != codes.ResourceExhausted || reasonOf(err) != wagglev1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		return false
	}
	return askedDelay(err) == 0
}

func isReplaced(err error) bool {
	return reasonOf(err) == wagglev1.ErrorReason_ERROR_REASON_COLLECTOR_REPLACED
}

// isRefusal reports whether an error says that this collector, as it is set up, will never be served.
func isRefusal(err error) bool {
	code := status.Code(err)
	return code == codes.Unimplemented || code == codes.PermissionDenied || code == codes.Unauthenticated
}

// sleep waits for d, or until the context ends; then it returns false.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
