package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Middleware makes a Handler that does something around another: it may look at the task first, end the context sooner,
// and look at or change how the work ended.
type Middleware func(next Handler) Handler

// Wrap puts middleware around a handler. The first is the outermost: it sees a task before the others do, and its end
// after them.
func Wrap(handler Handler, middleware ...Middleware) Handler {
	for _, m := range slices.Backward(middleware) {
		handler = m(handler)
	}
	return handler
}

// Timeout ends the context of a task that takes longer than limit, which must be over 0; the handler's error then counts
// as a failure for the reason given, as ReasonTimeout where a host is slow. A lease alone sets no such limit: it is
// renewed for as long as the handler runs, up to the source's max_hold.
func Timeout(limit time.Duration, reason Reason) Middleware {
	tooLong := fmt.Errorf("the handler took longer than %s", limit)
	return func(next Handler) Handler {
		return HandlerFunc(func(ctx context.Context, t *Task) (Succeeded, error) {
			limited, cancel := context.WithTimeoutCause(ctx, limit, tooLong)
			defer cancel()
			done, err := next.Handle(limited, t)
			// What ended for another reason in the same moment stays what it is.
			if err != nil && ctx.Err() == nil && errors.Is(context.Cause(limited), tooLong) && !explained(err) {
				return done, &Failed{Reason: reason, Message: tooLong.Error() + ": " + err.Error()}
			}
			return done, err
		})
	}
}

// Classify asks rule what a plain error of the handler means; a nil answer leaves it to count as ReasonHandler. A *Failed,
// a *Released and what came of the end of the context are left as they are. FailureOf is a rule for what Go's network
// packages return.
func Classify(rule func(error) *Failed) Middleware {
	return func(next Handler) Handler {
		return HandlerFunc(func(ctx context.Context, t *Task) (Succeeded, error) {
			done, err := next.Handle(ctx, t)
			if err != nil && ctx.Err() == nil && !explained(err) {
				if failed := rule(err); failed != nil {
					return done, failed
				}
			}
			return done, err
		})
	}
}

// explained reports whether a handler's error says by itself how the task ended.
func explained(err error) bool { return is[*Failed](err) || is[*Released](err) }

// Ended is what an observer gets to see of a task that a handler has finished with.
type Ended struct {
	Task *Task
	// Took is from the call of the handler to its return.
	Took time.Duration
	// Succeeded and Err are what the handler returned. That is not yet what the dispatcher took: the lease may be lost by
	// then (Stats counts those).
	Succeeded Succeeded
	Err       error
}

// Observe tells observer of every task when its handler has returned, for metrics and logs. The observer is called on the
// handler's goroutine and should be quick.
func Observe(observer func(ctx context.Context, e Ended)) Middleware {
	return func(next Handler) Handler {
		return HandlerFunc(func(ctx context.Context, t *Task) (Succeeded, error) {
			began := time.Now()
			done, err := next.Handle(ctx, t)
			observer(ctx, Ended{Task: t, Took: time.Since(began), Succeeded: done, Err: err})
			return done, err
		})
	}
}
