"""The two middlewares: one sees what the network answers, the other what pages yield."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

from waggle_scrapy._lease import Lease, mark
from waggle_scrapy._scheduler import Scheduler


class _Middleware:
    def __init__(self, crawler: Any) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Any) -> Any:
        return cls(crawler)

    def _lease(self, request: Any) -> Lease | None:
        slot = self._crawler.engine._slot
        return slot.scheduler.lease_of(request) if slot is not None and isinstance(slot.scheduler, Scheduler) else None


class DownloaderMiddleware(_Middleware):
    """Nearest to the network: notes when a request begins, and what is answered."""

    def process_request(self, request: Any) -> None:
        if (lease := self._lease(request)) is not None:
            lease.began = time.monotonic()

    def process_response(self, request: Any, response: Any) -> Any:
        if (lease := self._lease(request)) is not None:
            lease.status, lease.bytes = response.status, len(response.body)
            lease.retry_after = response.headers.get("Retry-After", b"").decode("latin-1")
        return response

    def process_exception(self, request: Any, exception: BaseException) -> None:
        if (lease := self._lease(request)) is not None:
            lease.network_error = exception


class SpiderMiddleware(_Middleware):
    """Nearest to the engine: marks the children of each page."""

    def process_spider_input(self, response: Any) -> None:
        if (lease := self._lease(response.request)) is not None:
            lease.scraping = True

    def process_spider_output(self, response: Any, result: Iterable[Any]) -> Iterable[Any]:
        lease = self._lease(response.request)
        for output in result:
            yield output if lease is None else mark(output, lease)

    async def process_spider_output_async(self, response: Any, result: AsyncIterator[Any]) -> AsyncIterator[Any]:
        lease = self._lease(response.request)
        async for output in result:
            yield output if lease is None else mark(output, lease)
