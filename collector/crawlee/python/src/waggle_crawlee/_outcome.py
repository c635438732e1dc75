"""Which failure an error of a crawler is."""

from __future__ import annotations

import asyncio
import email.utils
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from crawlee.errors import (
    ContextPipelineInitializationError,
    HttpStatusCodeError,
    ProxyError,
    RequestHandlerError,
    RequestThrottledError,
    SessionError,
)

from waggle_collector import Failed, v1

STATUSES = {
    401: v1.FAILURE_REASON_FORBIDDEN, 403: v1.FAILURE_REASON_FORBIDDEN, 451: v1.FAILURE_REASON_FORBIDDEN,
    404: v1.FAILURE_REASON_NOT_FOUND, 410: v1.FAILURE_REASON_GONE, 429: v1.FAILURE_REASON_THROTTLED,
}

# What HTTP clients and browsers write of a fetch without an answer, the first that matches: they have no common classes. Any other
# error of them is a connection that broke.
MESSAGES = [
    (re.compile(pattern, re.IGNORECASE), reason) for pattern, reason in (
        (r"err_http_response_code_failure", v1.FAILURE_REASON_OTHER),  # Chromium, for an error without a body: the status is not known
        (r"name_not_resolved|name or service not known|name resolution|getaddrinfo|nodename|dns|lookup address", v1.FAILURE_REASON_DNS),
        (r"proxy|tunnel", v1.FAILURE_REASON_PROXY),
        (r"certificate|\bssl|\btls|err_cert|handshake|invalidmessage", v1.FAILURE_REASON_TLS),
        (r"timeout|timed.?out", v1.FAILURE_REASON_TIMEOUT),
        (r"toomanyredirects|too_many_redirects", v1.FAILURE_REASON_REDIRECT),
        (r"unsupportedprotocol|invalidurl", v1.FAILURE_REASON_BAD_REQUEST),
        (r"decodingerror", v1.FAILURE_REASON_UNSUPPORTED_CONTENT),
        (r"connecterror|refused|unreachable|err_connection_failed|couldn't connect|failed to connect|connection attempts failed",
         v1.FAILURE_REASON_CONNECT),
        (r"browser has been closed|browser closed|target.*(crash|closed)|executable doesn't exist", v1.FAILURE_REASON_BROWSER),
    )
]

CLIENTS = ("impit", "httpx", "httpx2", "httpcore", "curl_cffi", "playwright")


def failed_of(error: BaseException) -> Failed:
    """The failure that an error of a crawler stands for."""
    response = answer_in(error)
    in_handler = isinstance(error, RequestHandlerError)
    while isinstance(error, (RequestHandlerError, ContextPipelineInitializationError)):
        error = error.wrapped_exception
    if isinstance(error, Failed):  # of the user's handler
        return error
    status, headers = response if response is not None else (0, {})
    if isinstance(error, HttpStatusCodeError):
        status = error.status_code
    message = f"{type(error).__name__}: {' '.join(str(error).split())}"
    if isinstance(error, ProxyError):
        return Failed(v1.FAILURE_REASON_PROXY, f"ProxyError: {' '.join(str(error.__cause__ or error).split())}")
    if isinstance(error, (HttpStatusCodeError, RequestThrottledError)) or isinstance(error, SessionError) and status >= 400:
        reason, after = reason_of(status, headers)
        return Failed(reason, message, status, retry_after=after)
    if isinstance(error, SessionError):
        return Failed(v1.FAILURE_REASON_FORBIDDEN, message, status)
    if in_handler:
        return Failed(v1.FAILURE_REASON_HANDLER, message, status)
    if isinstance(error, (asyncio.TimeoutError, TimeoutError)):
        return Failed(v1.FAILURE_REASON_TIMEOUT, "no complete answer in time")
    if response is not None:
        return Failed(v1.FAILURE_REASON_PARSE, message, status)
    if isinstance(error, OSError) or type(error).__module__.partition(".")[0] in CLIENTS:
        text = " ".join(f"{type(e).__name__}: {e}" for e in causes(error))
        reason = next((reason for pattern, reason in MESSAGES if pattern.search(text)), v1.FAILURE_REASON_CONNECTION_LOST)
        return Failed(reason, message)
    return Failed(v1.FAILURE_REASON_HANDLER, message)


def reason_of(status: int, headers: Mapping[str, str]) -> tuple[v1.FailureReason, float | None]:
    """The reason for a status that is an error, and the pause in seconds that the site asks for."""
    after = retry_after(headers)
    if reason := STATUSES.get(status):
        return reason, after
    if status == 503 and after is not None:
        return v1.FAILURE_REASON_THROTTLED, after
    return v1.FAILURE_REASON_SERVER_ERROR if status >= 500 else v1.FAILURE_REASON_CLIENT_ERROR, after


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds of a Retry-After, which has a number or a date."""
    value = next((value for name, value in headers.items() if name.lower() == "retry-after"), "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


def answer_in(error: BaseException) -> tuple[int, Mapping[str, str]] | None:
    """Status and headers of the page whose check raised an error. The errors have no headers, but a crawler's check has the context of
    the page, and the traceback has that."""
    for each in causes(error):
        place = each.__traceback__
        while place is not None:
            context: Any = place.tb_frame.f_locals.get("context")
            if (response := getattr(context, "http_response", None)) is not None:
                return int(response.status_code), dict(response.headers)
            if (response := getattr(context, "response", None)) is not None:
                return int(response.status), dict(response.headers)
            place = place.tb_next
    return None


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it came from."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        wrapped = getattr(each, "wrapped_exception", None)
        each = wrapped if isinstance(wrapped, BaseException) else each.__cause__ or each.__context__
