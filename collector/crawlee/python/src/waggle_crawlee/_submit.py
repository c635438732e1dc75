"""Submits requests as tasks, and counts those that the dispatcher refuses."""

from __future__ import annotations

import asyncio
import collections
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import grpc
from crawlee import Request
from crawlee.storage_clients.models import ProcessedRequest
from yarl import URL

from waggle_collector import AsyncClient, CallError, v1
from waggle_crawlee._request import item_of

MAX_ITEMS = 1000
MAX_BYTES = 2 << 20
CALL_TIMEOUT = 30.0
WARN_EVERY = 60.0  # seconds from one warning to the next while no dispatcher answers

Reply = TypeVar("Reply")

log = logging.getLogger("waggle_crawlee")


class SourceMissing(Exception):
    """The source does not exist, or was deleted while it was crawled."""


class NotAllowed(Exception):
    """The token lacks a role."""


async def patiently(call: Callable[[], Awaitable[Reply]], source: str, what: str) -> Reply:
    """Makes a call again and again until a dispatcher answers it. Never raises TimeoutError, which Crawlee takes for one of its own."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    warn_at = began + WARN_EVERY
    while True:
        try:
            return await call()
        except CallError as error:
            if error.reason == "SOURCE_NOT_FOUND":
                raise missing(source) from None
            if error.code == grpc.StatusCode.PERMISSION_DENIED:
                raise not_allowed(what, error) from None
            if not error.repeatable and error.code != grpc.StatusCode.UNAUTHENTICATED:
                raise
            if loop.time() >= warn_at:
                warn_at = loop.time() + WARN_EVERY
                log.warning("%s: not answered for %.0f s, will try again: %s", what, loop.time() - began, error)
            await asyncio.sleep(max(1.0, error.retry_after))


def not_allowed(what: str, error: CallError) -> NotAllowed:
    return NotAllowed(f"{what}: {error.message}; the token needs the roles collector and producer")


def missing(source: str) -> SourceMissing:
    return SourceMissing(f"source {source} does not exist; create it by: waggle source create {source}")


class Submitter:
    """Submits requests, and keeps count of what the answers were."""

    def __init__(self, client: AsyncClient, source: str) -> None:
        self._client = client
        self._source = source
        self.known = 0  # requests that were settled before they were added
        self.added = 0
        self._refused: collections.Counter[tuple[str, str]] = collections.Counter()  # by host and why
        self._reported = 0  # of the refused ones

    async def submit(self, requests: Sequence[Request], forefront: bool) -> list[ProcessedRequest]:
        """Submits requests, in as many calls as they need. RequestRefused: one cannot travel; then none is submitted."""
        items = [item_of(request, self._source, forefront or request.forefront) for request in requests]
        processed: list[ProcessedRequest] = []
        batch: list[v1.SubmitItem] = []
        size = 0
        for item in items:
            if len(batch) == MAX_ITEMS or batch and size + item.ByteSize() > MAX_BYTES:
                processed += await self._call(batch, requests[len(processed):])
                batch, size = [], 0
            batch.append(item)
            size += item.ByteSize()
        if batch:
            processed += await self._call(batch, requests[len(processed):])
        return processed

    async def _call(self, items: list[v1.SubmitItem], requests: Sequence[Request]) -> list[ProcessedRequest]:
        message = v1.SubmitTasksRequest(items=items)
        answer = await patiently(lambda: self._client.SubmitTasks(message, timeout=CALL_TIMEOUT), self._source, "submit")
        processed = []
        for request, result in zip(requests, answer.results):
            if result.error_reason == v1.ERROR_REASON_SOURCE_NOT_FOUND:
                raise missing(self._source)
            settled = result.state in (v1.TASK_STATE_DONE, v1.TASK_STATE_DEAD, v1.TASK_STATE_CANCELED)
            if result.code in (v1.SUBMIT_CODE_INVALID, v1.SUBMIT_CODE_LIMITED):
                self._refuse(request.url, result.message)
            self.added += result.code in (v1.SUBMIT_CODE_CREATED, v1.SUBMIT_CODE_REVISIT)
            self.known += result.code == v1.SUBMIT_CODE_EXISTS and settled
            processed.append(ProcessedRequest(
                id=result.task_id or None, unique_key=request.unique_key,
                was_already_present=result.code != v1.SUBMIT_CODE_CREATED, was_already_handled=settled))
        return processed

    def _refuse(self, url: str, why: str) -> None:
        host, shown = URL(url).authority.rpartition("@")[2], URL(url).with_user(None)  # without a password
        if not any(known == host for known, _ in self._refused):
            log.warning("a request to %s was refused and is not crawled: %s: %s", host, shown, why)
        self._refused[host, why] += 1

    def report(self) -> None:
        """Logs what was refused since the last report."""
        if (total := sum(self._refused.values())) > self._reported:
            self._reported = total
            for (host, why), n in self._refused.items():
                log.warning("%d requests to %s were refused and are not crawled: %s", n, host, why)
