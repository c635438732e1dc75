"""A lease that a spider works on: its request, what the request has led to, and the outcome."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from inspect import isasyncgen, isawaitable
from typing import Any

from scrapy import Request

from waggle_collector import Outcome, Task, v1
from waggle_scrapy._request import LEASE, PARENT

# How a page has ended, and what it leads to if the report does not carry that.
Ending = tuple[Outcome, Sequence[v1.DiscoveredItem]]


@dataclasses.dataclass(eq=False)
class Lease:
    """All of it belongs to the engine's thread, but for the future, which belongs to the collector's loop."""

    task: Task
    future: asyncio.Future[Ending]
    id: str
    request: Any = None
    since: float = dataclasses.field(default_factory=time.monotonic)  # when it began to wait for the engine
    changes: int = 0  # how often a middleware has put another request in place of its request
    start: bool = False  # the spider's start has yielded it, or a redirect of such a request
    began: float | None = None  # when the request went to the network
    status: int = 0
    bytes: int = 0
    retry_after: str = ""
    queue_delay: float | None = None
    scraping: bool = False  # its callback or errback was called
    failure: BaseException | None = None  # what kept its callback from being called
    network_error: BaseException | None = None  # a middleware may have dealt with it
    error: str = ""  # what failed in callback or pipeline
    retry: str = ""  # why another attempt was asked for
    items: list[dict[str, Any]] = dataclasses.field(default_factory=list)  # its children and hops
    repeats: dict[str, int] = dataclasses.field(default_factory=dict)  # children with dont_filter, by fingerprint

    def change(self, request: Any) -> None:
        """Goes on with a request that a middleware has put in place of the one before."""
        request.meta[LEASE] = self.id
        if not isinstance(request.errback, Errback):
            request.errback = Errback(self, request.errback)
        self.request = request
        self.changes += 1
        self.since = time.monotonic()
        self.status, self.bytes, self.retry_after, self.network_error = 0, 0, "", None

    def discovered(self) -> list[v1.DiscoveredItem]:
        return [v1.DiscoveredItem(**item) for item in self.items]

    def duration(self) -> float | None:
        return None if self.began is None else time.monotonic() - self.began

    def repeated(self, fingerprint: str) -> str:
        """Sets a child with dont_filter apart from earlier ones. Another attempt at the page gives the same name."""
        count = self.repeats[fingerprint] = self.repeats.get(fingerprint, 0) + 1
        return f"{self.task.id}:{self.task.cycle}:{count}"


def mark(output: Any, lease: Lease) -> Any:
    """Notes in a request that a page has yielded whose child it is. A copied lease is not the child's."""
    if isinstance(output, Request):
        output.meta.pop(LEASE, None)
        output.meta[PARENT] = lease.id
    return output


class Errback:
    """Stands before the errback of a request: no signal tells of requests that fail outside the network. What an errback yields passes no
    spider middleware, so it is marked here."""

    def __init__(self, lease: Lease, original: Callable[[Any], Any] | None) -> None:
        self.lease = lease
        self.original = original

    def __call__(self, failure: Any) -> Any:
        self.lease.scraping = True
        self.lease.failure = failure.value
        if self.original is None:
            failure.raiseException()
        assert self.original is not None
        return self._marked(self.original(failure))

    def _marked(self, output: Any) -> Any:
        if isasyncgen(output):
            return self._each_async(output)
        if isawaitable(output):
            return self._later(output)
        if isinstance(output, Request):
            return mark(output, self.lease)
        if isinstance(output, Iterable) and not isinstance(output, (str, bytes, dict)) and hasattr(output, "__next__"):
            return self._each(output)
        if isinstance(output, (list, tuple)):
            return [mark(one, self.lease) for one in output]
        return output

    def _each(self, output: Iterable[Any]) -> Iterable[Any]:
        for one in output:
            yield mark(one, self.lease)

    async def _each_async(self, output: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for one in output:
            yield mark(one, self.lease)

    async def _later(self, output: Any) -> Any:
        return self._marked(await output)
