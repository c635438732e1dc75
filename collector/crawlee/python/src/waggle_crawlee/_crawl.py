"""One run of a crawler: its collector, the requests that wait for the crawler, and when the source has nothing left."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

import grpc

from waggle_collector import AsyncClient, AsyncCollector, CallError, Failed, Outcome, Released, Task, v1
from waggle_crawlee._leased import LeasedRequest
from waggle_crawlee._submit import CALL_TIMEOUT, NotAllowed, SourceMissing, not_allowed, patiently

TICK = 1.0  # seconds from one look to the next
PATIENCE = 1.0  # seconds that a fetch waits; a crawler that is stopped waits for it
PICKUP = 2.0  # seconds in which a leased request is taken by the crawler; then it is given back
GATHER = 0.05  # seconds in which a crawler starts its first workers
QUIET = 3  # looks without work before it is asked what holds the source
REPEAT_MIN, REPEAT_MAX = 10.0, 300.0  # seconds until the same is logged again, if it lasts
REFRESH = 10.0  # seconds after which the counts are read again while there is work
RUN = "autoscaled pool worker task orchestrator"  # Crawlee's name of the asyncio task that lives as long as a run

# They open by themselves within seconds: that is how a crawl goes.
USUAL = (v1.GATE_KIND_MIN_DELAY, v1.GATE_KIND_MAX_IN_FLIGHT, v1.GATE_KIND_NO_SEEDS, v1.GATE_KIND_LEASED, v1.GATE_KIND_SETTLED)

HOLDS = ("EVERYTHING_HELD", "POOL_HELD", "SOURCE_HELD")  # no task of the source is leased while one is set

log = logging.getLogger("waggle_crawlee")


class Work:
    """A task that is leased, its request, and the outcome that its crawler gives it."""

    def __init__(self, task: Task, request: LeasedRequest) -> None:
        self.task = task
        self.request = request
        self.taken = False  # by the crawler
        self.run: asyncio.Task[object] | None = None  # of the crawler that took it
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def settle(self, outcome: Outcome) -> None:
        """Ends the lease. Of a lease that is lost or was settled already, nothing more is reported."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class Crawl:
    """Begins with the first call of a crawler's run. It ends when the source has nothing left, by an error, or when the crawler
    fetches no more."""

    def __init__(self, client: AsyncClient, source: str, collector: Callable[[list[str], int], AsyncCollector]) -> None:
        self._client = client
        self._source = source
        self._make = collector
        self.works: dict[int, Work] = {}  # by the id of their request
        self._ready: collections.deque[Work] = collections.deque()  # leased, not yet taken
        self._fetchers: collections.deque[asyncio.Future[None]] = collections.deque()
        self._peak = 1  # of fetchers and taken requests since the last look
        self._fetched_at = time.monotonic()
        self._collector: AsyncCollector | None = None
        self._watching: asyncio.Task[None] | None = None
        self._running: asyncio.Task[None] | None = None  # the collector
        self._run: asyncio.Task[object] | None = None  # of the crawler; None: not known
        self._idle_looks = 0  # in a row, without work here
        self._was_idle = False  # nothing was outstanding at the last of them
        self._log_after: dict[str, float] = {}  # when it is logged again that a kind of gate holds the crawl
        self._looked_at = 0.0
        self.spec, self.status = v1.SourceSpec(), v1.SourceStatus()
        self._budgets = (4, 20)  # max_attempts and max_throttled
        self.count = 0  # tasks that were handed to the crawler
        self.fetches = False  # the crawler has asked for requests
        self.ends = False  # the crawler asks whether the source is finished
        self.finished = False
        self.ended = False
        self.error: Exception | None = None

    async def begin(self) -> None:
        """Reads the source, waiting for a dispatcher if there is none. SourceMissing, NotAllowed: it is of no use to go on."""
        await self._read()
        self._watching = asyncio.create_task(self._guard(self._watch))

    async def _read(self) -> v1.Source:
        request = v1.GetSourceRequest(id=self._source)
        source = (await patiently(lambda: self._client.GetSource(request, timeout=CALL_TIMEOUT), self._source, "read the source")).source
        self.spec, policy = source.spec, source.spec.retry
        self._budgets = (policy.max_attempts or 4, policy.max_throttled or 20)
        self.status, self._looked_at = source.status, time.monotonic()
        return source

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Ends the crawl with an error, which the crawler's run raises."""
        self.error = self.error or error
        self._end()

    def _end(self) -> None:
        self.ended = True
        if self._collector is not None:
            self._collector.stop()
        for fetcher in self._fetchers:
            if not fetcher.done():
                fetcher.set_result(None)

    async def close(self) -> None:
        """Waits until everything is reported."""
        self._end()
        if self._watching is not None:
            self._watching.cancel()
        if self._running is not None:
            await asyncio.wait((self._running,))

    # The crawler's side.

    def asked(self) -> None:
        """Notes the crawler's run, which asks for as long as it lasts whether there is more."""
        if (task := asyncio.current_task()) is not None and task.get_name() == RUN:
            self._run = task

    async def fetch(self) -> LeasedRequest | None:
        """The next request; None: there is none now, or the crawl has ended."""
        self.fetches, self._fetched_at = True, time.monotonic()
        self._demand(1)
        if not self._ready and not self.ended:
            if self._collector is None:
                self._collect()
            fetcher = asyncio.get_running_loop().create_future()
            self._fetchers.append(fetcher)
            try:
                await asyncio.wait((fetcher,), timeout=PATIENCE)
            finally:
                self._fetchers.remove(fetcher)
                if fetcher.done() and len(self._ready) > 1:
                    self._wake()
        if self.ended or not self._ready:
            return None
        work = self._ready.popleft()
        work.taken, work.run = True, self._run
        self.count += 1
        return work.request

    def _demand(self, more: int = 0) -> None:
        self._peak = max(self._peak, len(self._fetchers) + sum(work.taken for work in self.works.values()) + more)

    def _wake(self) -> None:
        for fetcher in self._fetchers:
            if not fetcher.done():
                fetcher.set_result(None)
                return

    # The dispatcher's side.

    def _collect(self) -> None:
        self._collector = self._make([self.spec.pool] if self.spec.pool else [], self._peak)
        self._running = asyncio.create_task(self._guard(self._lease))

    async def _lease(self) -> None:
        assert self._collector is not None
        await asyncio.sleep(GATHER)
        self._collector.set_slots(min(self._peak, 1000))
        if self.ended:
            return
        try:
            await self._collector.run(self._handle)
        except CallError as error:
            raise not_allowed("fetch", error) if error.code == grpc.StatusCode.PERMISSION_DENIED else error from None

    async def _handle(self, task: Task) -> Outcome:
        try:
            request = LeasedRequest.of(task, self._budgets)
        except (ValueError, TypeError, KeyError) as error:
            return Failed(v1.FAILURE_REASON_BAD_REQUEST, f"no request of Crawlee: {error}", permanent=True)
        work = self.works[id(request)] = Work(task, request)
        self._ready.append(work)
        self._idle_looks, self._was_idle = 0, False
        if [self._log_after.pop(kind) for kind in HOLDS if kind in self._log_after]:
            log.info("the hold is lifted, the crawl goes on")
        self._wake()
        timer = asyncio.get_running_loop().call_later(PICKUP, self._give_back, work)
        try:
            return await work.outcome
        except asyncio.CancelledError:
            if task.cancel_reason == "SOURCE_DELETED":
                self.fail(SourceMissing(f"source {self._source} was deleted"))
            raise
        finally:
            timer.cancel()
            del self.works[id(request)]
            with contextlib.suppress(ValueError):
                self._ready.remove(work)

    def _give_back(self, work: Work) -> None:
        """Releases a request that no worker of the crawler took: it has stopped, or it lowered its concurrency."""
        if not work.taken:
            work.settle(Released())

    # Looks at the source.

    async def _watch(self) -> None:
        while not self.ended:
            await asyncio.sleep(TICK)
            if self.ended:
                return
            for work in self.works.values():
                if work.run is not None and work.run.done():  # by an error, or it was canceled: nobody reports it
                    work.settle(Released())
            if self._abandoned():
                self._end()
                return
            self._demand()
            if self._collector is not None:
                self._collector.set_slots(min(self._peak, 1000))
            self._peak = 1
            self._demand()
            if not self.works:
                await self._look()
            elif time.monotonic() - self._looked_at > REFRESH:
                await self._read()

    def _abandoned(self) -> bool:
        """Whether the crawler's run has ended. Requests that no crawler took are no work."""
        if self._fetchers or any(work.taken for work in self.works.values()):
            return False
        return self._run.done() if self._run is not None else time.monotonic() - self._fetched_at > PICKUP

    async def _look(self) -> None:
        """Ends the crawl when the source has had nothing outstanding at two looks, as `waggle source wait` does."""
        self._idle_looks += 1
        status = (await self._read()).status
        if self.works or not self._idle_looks:
            return  # meanwhile there was work
        if status.outstanding > 0 or not begun(status):
            if self._idle_looks % QUIET == 0:
                await self._explain(status)
        elif self._was_idle and self.ends:
            self.finished = True
            self._end()
        self._was_idle = status.outstanding == 0 and begun(status)

    async def _explain(self, status: v1.SourceStatus) -> None:
        """Logs what holds the tasks that are left: when it begins, and again if it lasts longer than it was to."""
        request = v1.ExplainRequest(source_id=self._source)
        try:
            answer = await patiently(lambda: self._client.Explain(request, timeout=CALL_TIMEOUT), self._source, "explain the source")
        except NotAllowed:
            answer = v1.ExplainResponse(notes=["the reason is for the role viewer"])
        held = next((gate for gate in answer.gates if gate.gate.kind not in USUAL), None)
        if held is None and status.tasks.ready > 0:
            return  # they wait for their turn, or another process has taken as many as it may
        kind, why, repeat = "", "; ".join(answer.notes[:2]), REPEAT_MAX
        if held is not None:
            gate = held.gate
            kind = v1.GateKind.Name(gate.kind).removeprefix("GATE_KIND_") if gate.kind in v1.GateKind.values() else str(gate.kind)
            why = " ".join(filter(None, (kind, held.name, gate.by and f"by {gate.by}", gate.reason and f"({gate.reason})")))
            if gate.HasField("until"):
                repeat = min(max(gate.until.ToNanoseconds() / 1e9 - time.time(), REPEAT_MIN), REPEAT_MAX)
                why += f", until {gate.until.ToDatetime():%Y-%m-%d %H:%M:%SZ}"
        if why and time.monotonic() >= self._log_after.get(kind, 0.0):
            self._log_after[kind] = time.monotonic() + repeat
            log.info("nothing to crawl now, %d tasks wait: %s; see: waggle explain source %s", status.outstanding, why, self._source)


def begun(status: v1.SourceStatus) -> bool:
    """Whether anything of the source was ever crawled or is outstanding, or no seed of it will be."""
    tasks = status.tasks
    return bool(
        status.outstanding or not status.HasField("next_due_time") or status.HasField("last_success_time")
        or status.HasField("last_failure_time") or tasks.done or tasks.dead)
