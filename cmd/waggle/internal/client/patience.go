package client

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// RestartPatience is how long a call is repeated while the dispatcher, or its store, cannot take it.
	RestartPatience = time.Minute
	longestPause    = 5 * time.Second
)

// Patiently makes a call, and repeats it while it may still be taken, for as long as patience, or for ever if that is 0.
// unanswered is called each time that it was not taken.
func Patiently(ctx context.Context, patience time.Duration, call func() error, unanswered func(error)) error {
	deadline := time.Now().Add(patience)
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, longestPause) {
		err := call()
		if err == nil {
			return nil
		}
		wait, again := Repeatable(err)
		if wait = max(wait, pause/2+rand.N(pause/2)); !again || patience > 0 && time.Now().Add(wait).After(deadline) {
			return err
		}
		unanswered(err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Repeatable reports whether a call that failed may be taken later, and how long its answer asks to wait.
func Repeatable(err error) (wait time.Duration, again bool) {
	st, ok := status.FromError(err)
	if !ok {
		return 0, false
	}
	for _, detail := range st.Details() {
		if retry, is := detail.(*errdetails.RetryInfo); is {
			wait = retry.GetRetryDelay().AsDuration()
		}
	}
	switch st.Code() {
	case codes.Unavailable, codes.DeadlineExceeded:
		return wait, true
	case codes.ResourceExhausted:
		return wait, wait > 0
	default:
		return 0, false
	}
}
