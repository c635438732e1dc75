"""The request manager that a crawler is given."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta

import crawlee
from crawlee import Request
from crawlee.request_loaders import RequestManager, ThrottlingRequestManager
from crawlee.storage_clients.models import ProcessedRequest
from yarl import URL

from waggle_collector import TLS, AsyncClient, AsyncCollector, Task, v1
from waggle_crawlee._crawl import Crawl
from waggle_crawlee._leased import LeasedRequest
from waggle_crawlee._submit import Submitter
from waggle_crawlee._version import __version__

log = logging.getLogger("waggle_crawlee")


class WaggleRequestManager(ThrottlingRequestManager[RequestManager]):
    """Hands the tasks of a source to a crawler, each to one crawler on one machine, and reports how the work on them ended.

    It is a ThrottlingRequestManager for its interface only, by which a crawler passes on a 429 and a Crawl-delay: it wraps no other
    manager, holds nothing back, and leaves all pacing to Waggle."""

    def __init__(
        self, servers: Sequence[str], source: str, *, collector_id: str | None = None, token_file: str | None = None,
        tls: TLS | None = None, queues: Sequence[str] = (), labels: Mapping[str, str] | None = None, lease_duration: float | None = None,
    ) -> None:
        """Connects to nothing yet.

        servers: addresses of dispatchers, each host:port.
        source: the id of the source whose tasks are crawled, and where requests are added.
        collector_id: names this manager. Default: the source, the host and the process id, and from the second one of a process on a number.
        token_file: holds a token with the roles collector and producer, and viewer for the log to say what holds a crawl; it needs tls unless all
            servers are on this machine.
        tls, queues, labels, lease_duration: as in AsyncCollector of waggle_collector."""
        id = collector_id or name(source)

        def collector(pools: list[str], slots: int) -> AsyncCollector:
            return AsyncCollector(
                servers, id, slots=slots, pools=pools, sources=[source], queues=queues, labels=labels, lease_duration=lease_duration,
                version=f"waggle-crawlee/{__version__} crawlee/{crawlee.__version__}", tls=tls, token_file=token_file, stop_timeout=0)

        collector([], 1)  # to find what is wrong
        self._make = collector
        self._source = source
        self._client = AsyncClient(servers, tls=tls, token_file=token_file)
        self._submitter = Submitter(self._client, source)
        self._crawl: Crawl | None = None
        self._opening: asyncio.Lock | None = None  # made on the loop that uses it
        self._delays: dict[str, float] = {}  # Crawl-delay in seconds, by origin

    async def _opened(self) -> Crawl:
        """The crawl that is under way. One whose crawler was stopped is begun anew."""
        crawl = self._crawl
        if crawl is not None and (not crawl.ended or crawl.finished or crawl.error):
            return crawl
        self._opening = self._opening or asyncio.Lock()
        async with self._opening:
            if self._crawl is crawl:
                if crawl is not None:
                    await crawl.close()  # its collector has the same id
                crawl = Crawl(self._client, self._source, self._make)
                await crawl.begin()
                self._crawl = crawl
        assert self._crawl is not None
        return self._crawl

    # What a crawler asks for.

    async def is_finished(self) -> bool:
        """Whether the source has nothing outstanding. Raises what ended the crawl."""
        crawl = await self._opened()
        crawl.asked()
        crawl.ends = True
        if crawl.error is None and not crawl.finished:
            return False
        self._crawl = None
        await crawl.close()
        if crawl.error is not None:
            raise crawl.error
        self._conclude(crawl)
        return True

    def _conclude(self, crawl: Crawl) -> None:
        """Logs how the crawl ended, and why there was nothing to do."""
        self._submitter.report()
        tasks, after = crawl.status.tasks, crawl.spec.revisit_after.ToSeconds()
        dead = f"; see: waggle task list --source {self._source} --state dead" if tasks.dead else ""
        log.info("source %s is finished: %d DONE, %d DEAD, %d CANCELED%s", self._source, tasks.done, tasks.dead, tasks.canceled, dead)
        if crawl.count == 0 and self._submitter.known and not self._submitter.added:
            log.info(
                "nothing was left to crawl: all requests are known already (DONE %d, DEAD %d). %s; to try what failed again:"
                " waggle task retry --source %s --state dead --yes",
                tasks.done, tasks.dead, f"Pages are crawled again when they are added {after} s after their last crawl" if after else
                f"To crawl pages again when they are added again: waggle source update {self._source} --revisit-after 1d", self._source)
        self._submitter.known = self._submitter.added = 0

    async def is_empty(self) -> bool:
        """False until the crawl has ended: a fetch waits for the next request."""
        crawl = await self._opened()
        crawl.asked()
        return crawl.ended

    async def fetch_next_request(self) -> Request | None:
        """The next request. It waits for one for a second, and returns None then."""
        crawl = await self._opened()
        if not crawl.fetches:
            refuse_throttling(sys._getframe(1).f_locals.get("self"))
        return await crawl.fetch()

    async def add_request(self, request: str | Request, *, forefront: bool = False) -> ProcessedRequest | None:
        """Submits a request. Requests that are known already are not crawled again, unless the source's revisit_after has passed."""
        await self._opened()
        return (await self._submitter.submit([self._transform_request(request)], forefront))[0]

    async def add_requests(
        self, requests: Sequence[str | Request], *, forefront: bool = False, batch_size: int = 1000,
        wait_time_between_batches: timedelta = timedelta(0), wait_for_all_requests_to_be_added: bool = False,
        wait_for_all_requests_to_be_added_timeout: timedelta | None = None,
    ) -> None:
        """Submits requests, up to 1000 a call. They are in the store when it returns."""
        if requests:
            await self._opened()
            await self._submitter.submit([self._transform_request(request) for request in requests], forefront)

    async def mark_request_as_handled(self, request: Request) -> ProcessedRequest | None:
        """Reports the outcome of a request, by its state and its error."""
        return self._settle(request, handled=True)

    async def reclaim_request(self, request: Request, *, forefront: bool = False) -> ProcessedRequest | None:
        """Reports a failure that the crawler would try again: when and where, the dispatcher decides."""
        return self._settle(request, handled=False)

    def _settle(self, request: Request, handled: bool) -> ProcessedRequest | None:
        work = self._crawl.works.get(id(request)) if self._crawl is not None else None
        if work is None or not isinstance(request, LeasedRequest):
            log.info("the lease of %s is over, its outcome is dropped", request.url)
            return None
        work.settle(request.outcome(handled, self._delays.get(str(URL(request.url).origin()))))
        return ProcessedRequest(id=work.task.id, unique_key=request.unique_key, was_already_present=True, was_already_handled=handled)

    async def get_handled_count(self) -> int:
        """How many tasks of the source have settled, as of the last look."""
        tasks = self._counts()
        return int(tasks.done + tasks.dead + tasks.canceled)

    async def get_total_count(self) -> int:
        """How many tasks the source has, as of the last look."""
        tasks = self._counts()
        return int(tasks.scheduled + tasks.ready + tasks.leased + tasks.done + tasks.dead + tasks.canceled)

    def _counts(self) -> v1.TaskCounts:
        return self._crawl.status.tasks if self._crawl is not None else v1.TaskCounts()

    async def drop(self) -> None:
        """Does nothing: a source is deleted by an operator."""

    async def purge(self) -> None:
        """Does nothing: a second run goes on with the source."""

    async def close(self) -> None:
        """Ends the crawl, gives back what is not done, and closes the connections. A process that ends does without."""
        if (crawl := self._crawl) is not None:
            self._crawl = None
            await crawl.close()
        await self._client.close()

    # What a crawler passes on. The error that follows has the status and the Retry-After.

    @property
    def inner(self) -> RequestManager:
        return self

    def record_domain_delay(self, url: str, *, retry_after: timedelta | None = None) -> bool:
        """Logs a 429. The report of the request has it too, so the dispatcher holds the host for all crawlers."""
        after = "none" if retry_after is None else f"{retry_after.total_seconds():.0f} s"
        log.info("%s answers 429, Retry-After: %s; Waggle holds the host", URL(url).authority, after)
        return True

    def is_throttled(self, url: str) -> bool:
        """True: a request with a 429 is given back, which its crawler does not count as a failure of it."""
        return True

    def record_success(self, url: str) -> None:
        """Does nothing: the report of the request has the success."""

    def set_crawl_delay(self, url: str, delay_seconds: int) -> None:
        """Takes in a Crawl-delay of robots.txt, which goes along with each report."""
        self._delays[str(URL(url).origin())] = min(float(delay_seconds), 3600.0)

    async def get_stall_reason(self) -> str | None:
        """None: a host that asks for long pauses is waited for."""
        return None


def refuse_throttling(caller: object) -> None:
    """Raises TypeError if a ThrottlingRequestManager calls."""
    if isinstance(caller, ThrottlingRequestManager):
        raise TypeError(
            "a ThrottlingRequestManager stands above the WaggleRequestManager: it would report pages that it only puts off as done."
            " Give the WaggleRequestManager to the crawler itself; Waggle holds hosts back")


_managers = itertools.count(1)  # of this process: two collectors with one id would end each other


def name(source: str) -> str:
    """An id for a collector that no other one has."""
    n = next(_managers)
    text = f"{source}-{socket.gethostname()}-{os.getpid()}{'' if n == 1 else f'-{n}'}"
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower())[-128:]


def task_of(request: Request) -> Task | None:
    """The task of a request, with id, cycle and fence; None: the request is not one of Waggle."""
    return request.task if isinstance(request, LeasedRequest) else None
