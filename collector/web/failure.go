package web

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web/robots"
)

// failureOf classifies the error of a fetch without an answer.
func failureOf(err error, took time.Duration) *collector.Failed {
	failed := &collector.Failed{Message: err.Error(), FetchDuration: took}
	_, denied := errors.AsType[*robots.DeniedError](err)
	unavailable, ok := errors.AsType[*robots.UnavailableError](err)
	switch {
	case denied:
		failed.Reason, failed.Permanent = collector.ReasonRobotsDenied, true
	case errors.Is(err, errRedirects), errors.Is(err, errBadRedirect):
		failed.Reason = collector.ReasonRedirect
	case ok: // after redirects: one may have led to a robots.txt that is refused
		return robotsFailure(unavailable, took)
	case errors.Is(err, errInvalidAddress):
		failed.Reason, failed.Permanent = collector.ReasonBadRequest, true
	case errors.Is(err, errTooLarge):
		failed.Reason, failed.Permanent = collector.ReasonTooLarge, true
	case errors.Is(err, errContentCoding):
		failed.Reason = collector.ReasonUnsupportedContent
	default:
		failed.Reason = networkReason(err)
	}
	return failed
}

// robotsFailure reports why a robots.txt could not be fetched. Without it no page of the host may be, so that the queue is
// blocked.
func robotsFailure(err *robots.UnavailableError, took time.Duration) *collector.Failed {
	failed := &collector.Failed{
		Reason: collector.ReasonRobotsUnavailable, Message: err.Error(), HTTPStatus: err.Status,
		RetryAfter: err.RetryAfter, FetchDuration: took,
	}
	switch {
	case err.Cause != nil:
		if reason := networkReason(err.Cause); reason != collector.ReasonTimeout && reason != collector.ReasonConnectionLost {
			failed.Reason = reason
		}
	case isThrottled(err.Status, err.RetryAfter):
		failed.Reason = collector.ReasonThrottled
	}
	return failed
}

// networkReason classifies an error of an exchange.
func networkReason(err error) collector.Reason {
	if reason, ok := proxyReason(err); ok {
		return reason
	}
	if failed := collector.FailureOf(err); failed != nil {
		return failed.Reason
	}
	return collector.ReasonConnectionLost
}

func isThrottled(status int, retryAfter time.Duration) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable && retryAfter > 0
}

// statusFailure says what an HTTP status means; nil for one that is a success.
// A seed that is gone for good is given up; the dispatcher knows how often other pages are asked for again.
func statusFailure(answer *fetched, recurring bool, took time.Duration, now time.Time) *collector.Failed {
	status := answer.status
	if status >= 200 && status < 300 {
		return nil
	}
	failed := &collector.Failed{
		Message:    fmt.Sprintf("%s answered %d %s", answer.url, status, http.StatusText(status)),
		HTTPStatus: status, RetryAfter: retryAfter(answer.header, now), FetchDuration: took,
	}
	switch {
	case status < 200:
		failed.Reason = collector.ReasonUnsupportedContent
	case isThrottled(status, failed.RetryAfter):
		failed.Reason = collector.ReasonThrottled
	case status >= 500:
		failed.Reason = collector.ReasonServerError
	case status == http.StatusNotFound:
		failed.Reason = collector.ReasonNotFound
	case status == http.StatusGone:
		failed.Reason, failed.Permanent = collector.ReasonGone, recurring
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusUnavailableForLegalReasons:
		failed.Reason = collector.ReasonForbidden
	case status >= 400:
		failed.Reason = collector.ReasonClientError
	default: // a 3xx that is no redirect, or a 304 that nobody asked for
		failed.Reason = collector.ReasonRedirect
	}
	return failed
}

// refusal judges a task whose own address is in a private network. Of a seed, whose name or address an operator wrote, the fault is
// this collector's: another one may be allowed to fetch it. Any other task pays for the failure: a link may lead anywhere.
func refusal(t *collector.Task, err error, took time.Duration) *collector.Failed {
	failed := &collector.Failed{Reason: collector.ReasonBadRequest, Message: err.Error(), FetchDuration: took}
	if t.Recurring {
		failed.Reason = collector.ReasonInternal
	}
	return failed
}

// isRefusal reports whether a fetch failed because of the address of the task itself.
func isRefusal(err error) bool { return errors.Is(err, errPrivate) && !errors.Is(err, errBadRedirect) }
