"""How a request has ended, in the words of the protocol."""

from __future__ import annotations

import email.utils
import logging
import re
import time
from typing import Any
from urllib.parse import urlsplit

from waggle_collector import Failed, Outcome, Succeeded, v1
from waggle_scrapy._lease import Lease

STATUSES = {
    401: v1.FAILURE_REASON_FORBIDDEN, 403: v1.FAILURE_REASON_FORBIDDEN, 404: v1.FAILURE_REASON_NOT_FOUND,
    410: v1.FAILURE_REASON_GONE, 429: v1.FAILURE_REASON_THROTTLED, 451: v1.FAILURE_REASON_FORBIDDEN,
}

# By the names of classes: Scrapy has its own since 2.15, the handlers of some schemes and proxies raise those of Twisted. The first of the
# classes of an exception that is here counts.
EXCEPTIONS = {
    "CannotResolveHostError": v1.FAILURE_REASON_DNS,
    "DNSLookupError": v1.FAILURE_REASON_DNS,
    "DownloadConnectionRefusedError": v1.FAILURE_REASON_CONNECT,
    "TunnelError": v1.FAILURE_REASON_PROXY,
    "DownloadTimeoutError": v1.FAILURE_REASON_TIMEOUT,
    "TimeoutError": v1.FAILURE_REASON_TIMEOUT,
    "TCPTimedOutError": v1.FAILURE_REASON_TIMEOUT,
    "ConnectError": v1.FAILURE_REASON_CONNECT,
    "DownloadCancelledError": v1.FAILURE_REASON_TOO_LARGE,
    "ResponseDataLossError": v1.FAILURE_REASON_CONNECTION_LOST,
    "DownloadFailedError": v1.FAILURE_REASON_CONNECTION_LOST,
    "ConnectionDone": v1.FAILURE_REASON_CONNECTION_LOST,
    "ConnectionLost": v1.FAILURE_REASON_CONNECTION_LOST,
    "ResponseFailed": v1.FAILURE_REASON_CONNECTION_LOST,
    "ConnectionError": v1.FAILURE_REASON_CONNECT,
    "UnsupportedURLSchemeError": v1.FAILURE_REASON_BAD_REQUEST,
    "NotSupported": v1.FAILURE_REASON_BAD_REQUEST,
}
PERMANENT = {v1.FAILURE_REASON_TOO_LARGE, v1.FAILURE_REASON_BAD_REQUEST}  # another attempt would end the same way

log = logging.getLogger("waggle_scrapy")


def outcome_of(lease: Lease, retry_codes: set[int]) -> Outcome:
    """The outcome of a lease whose request has left the engine. retry_codes: statuses for which the project wants another attempt."""
    if lease.error:
        return _failed(lease, v1.FAILURE_REASON_HANDLER, lease.error)
    if lease.retry or lease.failure is not None:
        outcome = _failure(lease, retry_codes)
        if lease.retry:
            outcome.permanent = False
        return outcome
    if not lease.scraping and not lease.items:  # a request that is no copy of this one knows of no lease
        message = "neither callback nor errback was called: a middleware that returns another request must return a copy, as of replace()"
        return _failed(lease, v1.FAILURE_REASON_OTHER, message, permanent=True)
    return Succeeded(http_status=_status(lease), bytes=lease.bytes, fetch_duration=lease.duration(), queue_delay=lease.queue_delay,
                     discovered=lease.discovered())


def _failure(lease: Lease, retry_codes: set[int]) -> Failed:
    error = lease.failure or lease.network_error
    names = [cls.__name__ for cls in type(error).__mro__]
    if error is not None and "IgnoreRequest" in names and "HttpError" not in names:
        return _ignored(lease, str(error))
    if error is not None and "HttpError" not in names:
        text = f"{names[0]}: {error}"
        if "SSL" in text or "certificate" in text:
            return _failed(lease, v1.FAILURE_REASON_TLS, text)
        reason = next((EXCEPTIONS[name] for name in names if name in EXCEPTIONS), v1.FAILURE_REASON_OTHER)
        return _failed(lease, reason, text, permanent=reason in PERMANENT)
    wait = seconds(lease.retry_after)
    message = lease.retry or f"HTTP status {lease.status}"
    if lease.status == 503 and wait is not None:
        return _failed(lease, v1.FAILURE_REASON_THROTTLED, message, retry_after=wait)
    if lease.status >= 500:
        return _failed(lease, v1.FAILURE_REASON_SERVER_ERROR, message, retry_after=wait)
    if lease.status < 400:
        return _failed(lease, v1.FAILURE_REASON_OTHER, message, permanent=True)
    reason = STATUSES.get(lease.status, v1.FAILURE_REASON_CLIENT_ERROR)
    permanent = wait is None and lease.status not in retry_codes and reason != v1.FAILURE_REASON_THROTTLED
    return _failed(lease, reason, message, retry_after=wait, permanent=permanent)


def _ignored(lease: Lease, text: str) -> Failed:
    """What a middleware of the downloader has refused. Scrapy has one exception for all of them."""
    if "robots.txt" in text:
        return _failed(lease, v1.FAILURE_REASON_ROBOTS_DENIED, text, permanent=True)
    if "redirection" in text:
        return _failed(lease, v1.FAILURE_REASON_REDIRECT, text, permanent=True)
    return _failed(lease, v1.FAILURE_REASON_OTHER, text or "a middleware ignores the request", permanent=True)


def _failed(lease: Lease, reason: Any, message: str, *, retry_after: float | None = None, permanent: bool = False) -> Failed:
    return Failed(reason, message, _status(lease), retry_after=retry_after, fetch_duration=lease.duration(),
                  permanent=permanent, queue_delay=lease.queue_delay)


def log_failure(lease: Lease, outcome: Failed) -> None:
    again = "" if outcome.permanent else "; it is tried again if the source has attempts left"
    log.info("%s failed at attempt %d: %s%s", lease.task.url, lease.task.attempt, str(outcome).removeprefix("FAILURE_REASON_"), again)
    if outcome.reason == v1.FAILURE_REASON_THROTTLED:
        wait = f"Retry-After: {lease.retry_after}" if outcome.retry_after is not None else "without a Retry-After"
        log.info("%s asks for less (%d, %s): its queue waits", urlsplit(lease.task.url).netloc, lease.status, wait)


def _status(lease: Lease) -> int:
    return lease.status if 100 <= lease.status <= 599 else 0


def seconds(retry_after: str) -> float | None:
    """What a Retry-After asks for: seconds, or a date. None: nothing, or nothing that can be read."""
    if re.fullmatch("[0-9]+", retry_after.strip()):
        return float(retry_after)
    try:
        return max(email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return None
