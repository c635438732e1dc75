"""The scheduler: it hands the engine what Waggle has granted, and settles each lease when its request has left the engine."""

from __future__ import annotations

import asyncio
import collections
import functools
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from scrapy import Request, signals
from scrapy.core.scheduler import BaseScheduler
from scrapy.utils.asyncio import call_later, is_asyncio_available
from twisted.internet.defer import Deferred

from waggle_collector import Failed, Outcome, Released, Task, v1
from waggle_scrapy._connection import Connection
from waggle_scrapy._engine import ScrapyEngine, caller
from waggle_scrapy._lease import Ending, Errback, Lease
from waggle_scrapy._outcome import log_failure, outcome_of
from waggle_scrapy._refusals import Refusals, public
from waggle_scrapy._request import LEASE, PARENT, CannotTravel, Codec
from waggle_scrapy._settings import Settings

OPEN_TIMEOUT = 3.0  # seconds for the first answer of a dispatcher; the spider is opened without it then
MAX_WAIT = 2.0  # seconds that a lease waits for the engine
MOST_CHANGES = 20  # of a request by middlewares of the downloader; then another attempt has its turn
LONG_IDLE = 30.0  # seconds without a task after which the reason is logged
DEFAULT_FINGERPRINTER = "scrapy.utils.request.RequestFingerprinter"

log = logging.getLogger("waggle_scrapy")


class Refused(RuntimeError):
    """Going on is of no use: the crawl ends with this error, and the process with a code other than 0."""


class Scheduler(BaseScheduler):
    """Everything here runs on the engine's thread. A lease is in `waiting` until the engine takes its request, then in `running`."""

    @classmethod
    def from_crawler(cls, crawler: Any) -> Scheduler:
        return cls(crawler)

    def __init__(self, crawler: Any) -> None:
        settings = crawler.settings
        self._crawler = crawler
        self._settings = settings
        self._retry_codes = {int(code) for code in settings.getlist("RETRY_HTTP_CODES")}
        self.waiting: collections.deque[Lease] = collections.deque()
        self.running: dict[str, Lease] = {}
        self._lost: dict[str, Lease] = {}  # canceled while their requests ran
        self._unsubmitted = 0
        self._activity = 0  # counts what begins and ends, so that a look at the source can be known to be old
        self._granted = 0
        self._settled_starts: collections.Counter[str] = collections.Counter()  # submitted requests that had settled long ago
        self._quiet_looks = 0
        self._idle_since: float | None = None  # None: there is something to do, or it is logged that there is nothing
        self._stalled = False  # the engine has not taken what was leased for it
        self._finished = False
        self._closing = False
        self._fatal: Refused | None = None
        self._held, self._dead = "", 0  # what held the source, and its dead pages, at the last look
        self._incomplete = ""  # a request that could not become a task, and that no page stands for
        self._crawl_delays: dict[str, float] = {}

    # What Scrapy calls.

    def open(self, spider: Any) -> Deferred[None]:
        self._engine = ScrapyEngine(self._crawler.engine, self._error)
        self._spider = spider
        fingerprinter = self._settings.get("REQUEST_FINGERPRINTER_CLASS")
        self._codec = Codec(spider, self._crawler.request_fingerprinter, fingerprinter == DEFAULT_FINGERPRINTER)
        settings = Settings(self._settings, spider)
        self._source, self._slots = settings.source, settings.slots
        self._idle_since = time.monotonic()
        self._refusals = Refusals(self._source)
        self._opened: Deferred[None] | None = Deferred()
        self._closed: Deferred[None] = Deferred()
        connect = self._crawler.signals.connect
        connect(self._spider_error, signals.spider_error)
        connect(self._item_error, signals.item_error)
        if hasattr(signals, "robots_parsed"):
            connect(self._robots_parsed, signals.robots_parsed)
        self._connection = self._connect(settings)
        self._connection.start()
        call_later(OPEN_TIMEOUT, self._open)
        return self._opened

    def has_pending_requests(self) -> bool:
        return not self._finished

    def enqueue_request(self, request: Request) -> bool:
        """Never raises: the engine would drop the request with one line at INFO."""
        lease = None
        try:
            lease = self._parent(request)
            return self._enqueue(request)
        except Exception as error:
            why = str(error) if isinstance(error, CannotTravel) else repr(error)
            message = self._refusals.cannot_travel(f"{request.url} cannot become a task: {why}")
        if lease is None:
            self._incomplete = message
        else:
            lease.error = lease.error or message
        return False

    def next_request(self) -> Request | None:
        if not self._engine.started:
            self.failed("this version of Scrapy does not call engine.start_async once the spider is open: use one that the README lists")
            return None
        self._settle()
        if self._stalled:
            self._stalled = False
            self._connection.set_slots(self._slots)
        if not self.waiting:
            return None
        lease = self.waiting.popleft()
        self.running[lease.id] = lease
        request: Request = lease.request
        return request

    def close(self, reason: str) -> Deferred[None]:
        self._closing = True
        self._settle()
        self._release()
        for lease in list(self.running.values()):
            self._conclude(lease, Released())
        self._connection.stop()
        return self._closed

    # Requests that become tasks.

    def _parent(self, request: Request) -> Lease | None:
        return self.running.get(request.meta.get(PARENT) or request.meta.get(LEASE) or "")

    def _enqueue(self, request: Request) -> bool:
        self._activity += 1
        self._finished = False
        self._connection.idle(None)
        parent, copied = request.meta.pop(PARENT, ""), request.meta.get(LEASE, "")
        if (parent or copied) in self._lost:
            log.debug("%s is dropped: the lease of its page is lost, another collector has the page", public(str(request)))
            return True
        lease = self.running.get(parent or copied)
        if lease is None:
            self._submit(self._codec.item(request, start=True))
        elif parent or lease.scraping:
            self._add_child(lease, request)
        else:
            self._add_hop(lease, request)
        return True

    def _add_child(self, lease: Lease, request: Request) -> None:
        asked_again = lease.failure is not None or request.meta.get("retry_times", 0) > lease.request.meta.get("retry_times", 0)
        if asked_again and self._codec.fingerprint(request) == self._codec.fingerprint(lease.request):
            lease.retry = lease.retry or "the spider asks for another attempt"
            return
        repeated = lease.repeated(self._codec.fingerprint(request)) if request.dont_filter else ""
        lease.items.append(self._codec.item(request, start=False, repeated=repeated))

    def _add_hop(self, lease: Lease, request: Request) -> None:
        """What a middleware of the downloader returns in place of a response."""
        fingerprint = self._codec.fingerprint(request)
        old, new = lease.request.meta, request.meta
        redirects = new.get("redirect_times", 0) > old.get("redirect_times", 0)
        if not redirects and fingerprint == self._codec.fingerprint(lease.request):
            if new.get("retry_times", 0) > old.get("retry_times", 0) or lease.changes == MOST_CHANGES:
                lease.retry = lease.retry or "a middleware asks for another attempt"
                return
            del self.running[lease.id]
            lease.change(request)
            self.waiting.appendleft(lease)
            return
        repeated = lease.repeated(fingerprint) if request.dont_filter and not lease.start else ""
        item = self._codec.item(request, start=lease.start, repeated=repeated, hop=True)
        lease.items.append({**item, "relation": v1.RELATION_REDIRECT})

    def _submit(self, fields: dict[str, Any]) -> None:
        self._unsubmitted += 1
        self._connection.submit(v1.SubmitItem(source_id=self._source, **fields))

    # What the connection calls.

    def connected(self, source: v1.Source) -> None:
        self._refusals.follow(source.spec)
        self._open()

    def granted(self, task: Task, future: asyncio.Future[Ending]) -> None:
        self._activity += 1
        self._granted += 1
        self._idle_since = time.monotonic()
        self._finished = False
        self._connection.idle(None)
        if self._held:
            self._held = ""
            log.info("going on: nothing holds the source any more")
        lease = Lease(task, future, f"{task.id}:{task.fence}")
        if self._is_closing():
            self._connection.settle(future, Released())
            return
        try:
            lease.request, lease.start = self._codec.request(task)
        except Exception as error:
            log.error("task %s (%s) is not for this spider: %s", task.id, task.url, error)
            self._connection.settle(future, Failed(v1.FAILURE_REASON_HANDLER, f"not for the spider {self._spider.name}: {error}"))
            return
        lease.request.meta[LEASE] = lease.id
        lease.request.errback = Errback(lease, lease.request.errback)
        self.waiting.append(lease)
        self._engine.wake()

    def canceled(self, future: asyncio.Future[Ending]) -> None:
        self._activity += 1
        self.waiting = collections.deque(lease for lease in self.waiting if lease.future is not future)
        for lease in list(self.running.values()):
            if lease.future is future:
                self._lost[lease.id] = self.running.pop(lease.id)

    def lease_of(self, request: Any) -> Lease | None:
        """The lease that a request works on. A request to which a spider has copied the meta of another one works on none."""
        name = "" if request is None else request.meta.get(LEASE, "")
        lease = self.running.get(name) or self._lost.get(name)
        return lease if lease is not None and lease.request is request else None

    def submitted(self, item: v1.SubmitItem, result: v1.SubmitResult) -> None:
        if result.code == v1.SUBMIT_CODE_LIMITED:
            self._refusals.limited(result.message)
            return  # it is submitted again
        self._activity += 1
        self._unsubmitted -= 1
        if result.code == v1.SUBMIT_CODE_EXISTS and result.state in (v1.TASK_STATE_DONE, v1.TASK_STATE_DEAD, v1.TASK_STATE_CANCELED):
            self._settled_starts[v1.TaskState.Name(result.state).removeprefix("TASK_STATE_")] += 1
        elif result.code == v1.SUBMIT_CODE_INVALID:
            if v1.ErrorReason.Name(result.error_reason).endswith("SOURCE_NOT_FOUND"):
                self.failed(f"the source {self._source} is deleted")
            self._incomplete = self._refusals.cannot_travel(f"{item.url} cannot become a task: {result.message}")

    def discovered(self, items: Sequence[v1.DiscoveredItem], summary: v1.DiscoverSummary) -> None:
        for item, result in zip(items, summary.results):
            self._refusals.discovered(item, result)

    def looked(self, source: v1.Source, activity: int) -> None:
        """Takes in a look at the source: twice nothing outstanding, and nothing here meanwhile, is the end."""
        self._refusals.follow(source.spec)
        status = source.status
        self._dead = status.tasks.dead
        if activity != self._activity or not self._is_idle():
            self._quiet_looks = 0
            return
        self._log_gates(source)
        if self._idle_since is not None and status.outstanding and time.monotonic() - self._idle_since > LONG_IDLE:
            self._idle_since = None
            log.info("waiting: of %d tasks %d are ready, %d are due later, others work on %d; waggle explain source %s",
                     status.outstanding, status.tasks.ready, status.tasks.scheduled, status.tasks.leased, self._source)
        over = status.outstanding == 0 and (
            not status.HasField("next_due_time") or status.HasField("last_success_time") or status.HasField("last_failure_time")
            or status.tasks.done > 0 or status.tasks.dead > 0)
        self._quiet_looks = self._quiet_looks + 1 if over else 0
        if self._quiet_looks < 2 or self._engine.starting:
            return
        if not self._granted and self._settled_starts:
            known = ", ".join(f"{state} {count}" for state, count in sorted(self._settled_starts.items()))
            log.info(
                "nothing to do: all start requests are known already (%s). To crawl them again: waggle source update %s --revisit-after 1d"
                " (longer than a crawl takes); those that failed: waggle task retry --source %s --state dead --yes", known, self._source, self._source)
        self._finished = True
        self._engine.wake()

    def tick(self) -> None:
        if self._is_closing():
            self._release()
        self._settle()
        self._return_waiting()
        self._connection.idle(self._activity if self._is_idle() else None)

    def failed(self, message: str) -> None:
        """Ends the crawl with an error."""
        if self._fatal is not None:
            return
        self._fatal = Refused(message)
        log.error("%s", message)
        if self._opened is not None:
            self._open()  # an error here would leave the engine half open; its start raises this one
        elif not self._is_closing():
            self._engine.refuse()

    def ended(self) -> None:
        self._refusals.sum_up()
        if self._dead:
            log.warning("%d pages are DEAD: waggle task list --source %s --state dead", self._dead, self._source)
        if not self._closed.called:
            self._closed.callback(None)

    # Leases.

    def _settle(self) -> None:
        """Reports the leases whose requests have left the engine: after callbacks and pipelines."""
        for name in [name for name, lease in self._lost.items() if not self._engine.has(lease.request)]:
            del self._lost[name]
        for lease in [lease for lease in self.running.values() if not self._engine.has(lease.request)]:
            try:
                self._conclude(lease, *self._ending(lease))
            except Exception as error:  # a lease that nothing settles would keep the spider open for ever
                log.error("how %s ended cannot be reported", lease.task.url, exc_info=True)
                self._conclude(lease, Failed(v1.FAILURE_REASON_HANDLER, f"how it ended cannot be reported: {error!r}"))

    def _ending(self, lease: Lease) -> Ending:
        lease.queue_delay = self._crawl_delays.get(urlsplit(lease.request.url).netloc)
        outcome = outcome_of(lease, self._retry_codes)
        if not isinstance(outcome, Failed):
            return outcome, ()
        log_failure(lease, outcome)
        # Only the report of a success carries what was discovered. A plain crawl has these requests too.
        return outcome, lease.discovered()

    def _conclude(self, lease: Lease, outcome: Outcome, items: Sequence[v1.DiscoveredItem] = ()) -> None:
        self._activity += 1
        self.running.pop(lease.id, None)
        self._crawler.stats.inc_value(f"waggle/{type(outcome).__name__.lower()}")
        self._connection.settle(lease.future, outcome, items)

    def _return_waiting(self) -> None:
        """Gives back what the engine has not taken for a while: it is paused, or pipelines are slow. Then one task is leased at a time."""
        late = [lease for lease in self.waiting if time.monotonic() - lease.since > MAX_WAIT]
        for lease in late:
            self.waiting.remove(lease)
            self._connection.settle(lease.future, Released())
        if late and not self._stalled:
            self._stalled = True
            self._connection.set_slots(1)

    def _release(self) -> None:
        """Gives back what the engine will not take any more."""
        self._connection.close()
        while self.waiting:
            self._connection.settle(self.waiting.popleft().future, Released())

    def _is_closing(self) -> bool:
        return self._closing or self._engine.closing

    def _is_idle(self) -> bool:
        return not self.running and not self.waiting and not self._unsubmitted

    def _noted(self, response: Any) -> Lease | None:
        request = getattr(response, "request", None)
        return None if request is None else self.running.get(request.meta.get(LEASE, ""))

    def _spider_error(self, failure: Any, response: Any) -> None:
        if (lease := self._noted(response)) is not None:
            lease.error = lease.error or f"{failure.type.__name__}: {failure.value}"

    def _item_error(self, item: Any, response: Any, failure: Any) -> None:
        if (lease := self._noted(response)) is not None:
            lease.error = lease.error or f"pipeline: {failure.type.__name__}: {failure.value}"

    def _robots_parsed(self, robotparser: Any, request: Any) -> None:
        """Notes a Crawl-delay: the dispatcher keeps it for all processes."""
        agent = self._settings.get("ROBOTSTXT_USER_AGENT") or self._settings.get("USER_AGENT")
        if hasattr(robotparser, "crawl_delay") and (delay := robotparser.crawl_delay(agent)) is not None:
            self._crawl_delays[urlsplit(request.url).netloc] = min(float(delay), 3600.0)

    def _log_gates(self, source: v1.Source) -> None:
        """Logs once what holds the source while there is nothing to do."""
        held = ", ".join(f"{v1.GateKind.Name(gate.kind).removeprefix('GATE_KIND_')} ({gate.reason})" for gate in source.status.gates
                         if gate.kind != v1.GATE_KIND_NO_COLLECTOR) or ", ".join(f"SOURCE_HELD ({hold.reason})" for hold in source.status.holds)
        if held and held != self._held:
            log.info("waiting: %s; waggle explain source %s", held, self._source)
        self._held = held

    # Opening.

    def _guarded(self, function: Callable[..., None], *args: Any) -> None:
        """Calls something for the connection: an error that only the event loop noted would make the spider wait for ever."""
        try:
            function(*args)
        except Exception as error:
            log.error("a defect of waggle_scrapy", exc_info=True)
            self.failed(f"a defect of waggle_scrapy: {error!r}")

    def _error(self) -> Exception | None:
        """What the crawl ends with."""
        if self._fatal is None and self._incomplete:
            self._fatal = Refused(f"the crawl is not complete: {self._incomplete}")
        return self._fatal

    def _connect(self, settings: Settings) -> Connection:
        call = caller()
        collector = settings.collector(lambda task, items, summary: call(self._guarded, self.discovered, items, summary))
        loop = asyncio.get_running_loop() if is_asyncio_available() else None
        soon: Callable[..., Any] = call if loop is None else loop.call_soon
        return Connection(self, functools.partial(soon, self._guarded), self._source, settings.client, collector, loop)

    def _open(self) -> None:
        if self._opened is not None:
            opened, self._opened = self._opened, None
            opened.callback(None)
