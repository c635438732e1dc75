"""How the work on a task ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from google.protobuf.duration_pb2 import Duration

from waggle_collector import v1

MAX_MESSAGE = 1024  # bytes of a message
MAX_RETRY_AFTER = 366 * 86400.0  # seconds


@dataclasses.dataclass
class Succeeded:
    """The work is done. All fields may be left out."""

    http_status: int = 0
    """100 to 599; 0: none."""

    bytes: int = 0
    """Bytes fetched."""

    fetch_duration: float | None = None
    """Seconds since the request began, 0 to 24 h: with the work after the response. The queue's delay counts from then; without this,
    from the report."""

    changed: bool | None = None
    """Whether the content has changed since the last crawl; None: not known."""

    memo: bytes | None = None  # type: ignore[valid-type]
    """What the next crawl gets as task.memo: an ETag, a digest. At most 4 KiB. None keeps the stored one, empty clears it."""

    discovered: Iterable[str | v1.DiscoveredItem] = ()
    """What the page leads to: URLs of links, or items with more. Any number: what a report cannot carry is submitted before it. The
    dispatcher decides by the source's `follow`."""

    queue_delay: float | None = None
    """Seconds between request starts that the host asks for (Crawl-delay), at most 1 h; 0: it asks for none; None: not known."""

    next_crawl_delay: float | None = None
    """Seconds for which the page declares itself fresh, at most 366 days; None: not known."""

    message: str = ""
    """For people, in the task's history: what of the page could not be read. At most 1 KiB; the rest is cut."""


@dataclasses.dataclass(eq=False)
class Failed(Exception):
    """The work failed. A handler returns it or raises it. The scope of the reason decides what it costs: see the protocol manual."""

    reason: v1.FailureReason | int = v1.FAILURE_REASON_OTHER
    """A FAILURE_REASON_ value of waggle_collector.v1."""

    message: str = ""
    """For people. At most 1 KiB; the rest is cut."""

    http_status: int = 0
    """100 to 599; 0: none."""

    retry_after: float | None = None
    """Seconds of the site's Retry-After; over 366 days counts as 366. Report it and never sleep through it: Waggle keeps the site's queue closed
    for as long, while the lease of a task whose handler sleeps runs on."""

    fetch_duration: float | None = None
    """Seconds from the start of the request to the failure, 0 to 24 h."""

    permanent: bool = False
    """Another attempt would fail the same way. Only with a reason of scope TASK."""

    queue_delay: float | None = None
    """As in Succeeded."""

    def __str__(self) -> str:
        return f"{v1.FailureReason.Name(self.reason) if self.reason in v1.FailureReason.values() else self.reason}: {self.message}"


@dataclasses.dataclass(eq=False)
class Released(Exception):
    """The work was not begun or not finished, through nobody's fault: the task goes back, which costs nothing. A handler returns it or
    raises it."""

    delay: float = 0.0
    """Seconds until the task is due again, at most 24 h."""


Outcome = Succeeded | Failed | Released


def duration(seconds: float | None) -> Duration | None:
    return None if seconds is None else Duration(seconds=int(seconds), nanos=int(seconds % 1 * 1e9))


def message_of(outcome: Outcome | None) -> v1.Outcome:
    """The outcome as it travels. TypeError or ValueError: it is none."""
    if outcome is None:
        return v1.Outcome(succeeded=v1.Succeeded())
    if isinstance(outcome, Succeeded):
        return v1.Outcome(succeeded=v1.Succeeded(
            http_status=outcome.http_status, bytes=outcome.bytes, fetch_duration=duration(outcome.fetch_duration),
            changed=outcome.changed, memo=outcome.memo,  # type: ignore[arg-type]
            queue_delay=duration(outcome.queue_delay),
            next_crawl_delay=duration(outcome.next_crawl_delay), message=cut(outcome.message),
            discovered=[v1.DiscoveredItem(url=item) if isinstance(item, str) else item for item in outcome.discovered]))
    if isinstance(outcome, Failed):
        return v1.Outcome(failed=v1.Failed(
            reason=outcome.reason, message=cut(outcome.message), http_status=outcome.http_status,  # type: ignore[arg-type]
            retry_after=duration(None if outcome.retry_after is None else min(outcome.retry_after, MAX_RETRY_AFTER)), fetch_duration=duration(outcome.fetch_duration),
            permanent=outcome.permanent, queue_delay=duration(outcome.queue_delay)))
    if isinstance(outcome, Released):
        return v1.Outcome(released=v1.Released(delay=duration(outcome.delay)))
    raise TypeError(f"the handler returned {type(outcome).__name__}: want Succeeded, Failed, Released or None")


def cut(text: str) -> str:
    return text.encode("utf-8", "replace")[:MAX_MESSAGE].decode("utf-8", "ignore")
