"""The connection to Waggle: it runs on the event loop of Scrapy, or on a thread where Scrapy has none. The engine never waits for it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from waggle_collector import AsyncClient, AsyncCollector, CallError, Failed, Outcome, Task, v1
from waggle_scrapy._lease import Ending

TICK = 0.1  # seconds between looks at what has left the engine
LOOK = 1.0  # seconds between looks at the source while there is nothing to do
CALL_TIMEOUT = 5.0
FLUSH_TIMEOUT = 10.0  # seconds in which a spider that ends still submits its requests
MAX_ITEMS, MAX_BYTES = 1000, 1 << 20  # of a call that submits
REFUSED = {"INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED", "FAILED_PRECONDITION", "UNIMPLEMENTED"}

FIRST_WARNING, NEXT_WARNING = 8.0, 60.0  # seconds, while no dispatcher answers
LOST = {"LEASE_LOST", "TASK_NOT_FOUND"}

log = logging.getLogger("waggle_scrapy")


def fitting(items: Sequence[v1.SubmitItem | v1.DiscoveredItem]) -> int:
    """How many of the items one call carries."""
    size = count = 0
    for item in items[:MAX_ITEMS]:
        size += item.ByteSize()
        if count and size > MAX_BYTES:
            break
        count += 1
    return count


class Engine(Protocol):
    """What the scheduler does for the connection. All of it is called on the engine's thread."""

    def connected(self, source: v1.Source) -> None: ...
    def granted(self, task: Task, future: asyncio.Future[Ending]) -> None: ...
    def canceled(self, future: asyncio.Future[Ending]) -> None: ...
    def submitted(self, item: v1.SubmitItem, result: v1.SubmitResult) -> None: ...
    def discovered(self, items: Sequence[v1.DiscoveredItem], summary: v1.DiscoverSummary) -> None: ...
    def looked(self, source: v1.Source, activity: int) -> None: ...
    def tick(self) -> None: ...
    def failed(self, message: str) -> None: ...
    def ended(self) -> None: ...


class Connection:
    """What runs beside the engine: one collector, the client that submits, and the looks at the source."""

    def __init__(self, engine: Engine, call: Callable[..., Any], source: str, connect: Callable[[], AsyncClient],
                 collector: AsyncCollector, loop: asyncio.AbstractEventLoop | None) -> None:
        """call runs a function on the engine's thread, soon. loop is that of this thread: with it, each page costs two changes of thread
        less. None: the engine's reactor is none of asyncio."""
        self._engine = engine
        self._call = call
        self._source = source
        self._connect = connect
        self._collector = collector
        self._own = loop
        self._task: asyncio.Task[None] | None = None
        self._lock = threading.Lock()  # guards what follows
        self._items: list[v1.SubmitItem] = []
        self._settled: list[tuple[asyncio.Future[Ending], Ending]] = []
        self._idle: int | None = 0  # the engine's activity, if it has nothing to do
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: asyncio.Event  # of the loop: there are items or settled leases, or the end is near
        self._unanswered = 0.0  # when a look at the source first failed
        self._warned = -NEXT_WARNING
        self._stopping = False
        self._closed = False  # no more leases

    def start(self) -> None:
        if self._own is not None:
            self._task = self._own.create_task(self._run())
        else:
            threading.Thread(target=lambda: asyncio.run(self._run()), name="waggle-scrapy", daemon=True).start()

    # The engine's thread.

    def submit(self, item: v1.SubmitItem) -> None:
        with self._lock:
            self._items.append(item)
        self._wake()

    def settle(self, future: asyncio.Future[Ending], outcome: Outcome, items: Sequence[v1.DiscoveredItem] = ()) -> None:
        """Reports a lease, and before that submits items that the report does not carry."""
        with self._lock:
            self._settled.append((future, (outcome, items)))
            first = len(self._settled) == 1
            loop = self._loop
        if first and loop is not None:
            self._post(loop, self._settle)

    def idle(self, activity: int | None) -> None:
        """Notes whether the engine has nothing to do: the source is looked at meanwhile."""
        with self._lock:
            self._idle = activity

    def set_slots(self, slots: int) -> None:
        self._collector.set_slots(slots)

    def close(self) -> None:
        """Takes no more tasks."""
        if not self._closed:
            self._closed = True
            self._collector.stop()

    def stop(self) -> None:
        """Submits and reports what is left; then ended is called."""
        self.close()
        with self._lock:
            self._stopping = True
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            loop = self._loop
        if loop is not None:
            self._post(loop, self._work.set)

    def _post(self, loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
        """Runs a function on the loop, soon."""
        if self._own is not None:
            loop.call_soon(function)
        else:
            loop.call_soon_threadsafe(function)

    # The loop.

    async def _run(self) -> None:
        try:
            await self._main()
        except BaseException as error:
            self._broken(error)
        finally:
            self._call(self._engine.ended)

    async def _main(self) -> None:
        self._work = asyncio.Event()
        with self._lock:
            self._loop = asyncio.get_running_loop()
            self._work.set()
        try:
            async with self._connect() as client:
                if (source := await self._opened(client)) is not None:
                    self._call(self._engine.connected, source)
                    await self._serve(client)
        except CallError as error:
            self._failed(error)
        finally:
            with self._lock:
                self._loop = None

    async def _serve(self, client: AsyncClient) -> None:
        """Works until the spider ends; what fails for good ends the spider."""
        collecting, *others = (asyncio.create_task(self._guard(part)) for part in (
            self._collect(client), self._look(client), self._ticks(), self._submit(client)))
        while not self._ends():
            await asyncio.sleep(TICK)
        await asyncio.wait([collecting, others[-1]])
        for task in others:
            task.cancel()
        await asyncio.wait(others)

    async def _guard(self, part: Coroutine[Any, Any, None]) -> None:
        try:
            await part
        except CallError as error:
            self._failed(error)
        except Exception as error:
            self._broken(error)

    def _broken(self, error: BaseException) -> None:
        """Ends the crawl for a defect: a spider that waits for ever would be worse."""
        log.error("the connection to Waggle has ended", exc_info=error)
        self._call(self._engine.failed, f"the connection to Waggle has ended: {error!r}")

    async def _opened(self, client: AsyncClient) -> v1.Source | None:
        """Waits until a dispatcher has answered for the source. None: the spider ends before."""
        while not self._ends():
            if (source := await self._get_source(client)) is not None:
                return source
            await self._pause(LOOK)
        return None

    def _ends(self) -> bool:
        with self._lock:
            return self._stopping

    async def _pause(self, seconds: float) -> None:
        """Waits, but not beyond the beginning of the end."""
        end = time.monotonic() + seconds
        while not self._ends() and time.monotonic() < end:
            await asyncio.sleep(TICK)

    async def _get_source(self, client: AsyncClient) -> v1.Source | None:
        """The source with its status. None: nobody answers; the package logs that."""
        try:
            source = (await client.GetSource(v1.GetSourceRequest(id=self._source), timeout=CALL_TIMEOUT)).source
        except CallError as error:
            if error.code.name in REFUSED:
                raise
            now = time.monotonic()
            self._unanswered = self._unanswered or now
            if now >= max(self._unanswered + FIRST_WARNING, self._warned + NEXT_WARNING):
                self._warned = now
                hint = "; a dispatcher with TLS needs WAGGLE_CA_FILE" if "closed" in error.message else ""
                log.warning("no dispatcher has answered for %d s: %s%s", now - self._unanswered, error, hint)
            return None
        self._unanswered = 0.0
        return source

    def _failed(self, error: CallError) -> None:
        message = error.message
        if error.reason == "SOURCE_NOT_FOUND" or error.code.name == "NOT_FOUND":
            message = f"there is no source {self._source}: waggle source create {self._source} --follow-host HOST:PORT"
        elif error.code.name == "PERMISSION_DENIED":
            message = f"{message} (a spider needs the roles collector, producer and viewer)"
        self._call(self._engine.failed, message)

    async def _collect(self, client: AsyncClient) -> None:
        await self._collector.run(lambda task: self._handle(client, task))

    async def _handle(self, client: AsyncClient, task: Task) -> Outcome:
        future: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._call(self._engine.granted, task, future)
        try:
            outcome, items = await future
            while items:
                count = fitting(items)
                await self._discover(client, task, items[:count])
                items = items[count:]
            return outcome
        except asyncio.CancelledError:
            self._call(self._engine.canceled, future)
            raise

    async def _discover(self, client: AsyncClient, task: Task, items: Sequence[v1.DiscoveredItem]) -> None:
        """Submits what a page leads to while its lease stands. Failed: it is refused."""
        request = v1.SubmitDiscoveredRequest(task_id=task.id, lease_token=task.lease_token, items=items)
        while True:
            try:
                answer = await client.SubmitDiscovered(request, timeout=CALL_TIMEOUT)
                self._call(self._engine.discovered, items, answer.summary)
                return
            except CallError as error:
                if error.reason in LOST:
                    return  # the collector drops the outcome
                if not error.repeatable:
                    raise Failed(v1.FAILURE_REASON_HANDLER, f"links refused: {error.message}") from None
                log.debug("links of %s are not submitted yet: %s", task.url, error)
            await asyncio.sleep(LOOK)

    def _settle(self) -> None:
        with self._lock:
            settled, self._settled = self._settled, []
        for future, ending in settled:
            if not future.done():
                future.set_result(ending)

    async def _ticks(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            self._call(self._engine.tick)

    async def _look(self, client: AsyncClient) -> None:
        """Looks at the source while the engine has nothing to do."""
        while not self._ends():
            with self._lock:
                activity = self._idle
            if activity is not None and (source := await self._get_source(client)) is not None:
                self._call(self._engine.looked, source, activity)
            await self._pause(LOOK)

    async def _submit(self, client: AsyncClient) -> None:
        """Submits in batches, until the spider ends."""
        deadline: float | None = None
        while True:
            ends = self._ends()
            batch = self._batch()
            if ends and deadline is None:
                deadline = time.monotonic() + FLUSH_TIMEOUT
            if not batch:
                if ends:
                    return
                await self._work.wait()
                self._work.clear()
                continue
            if deadline is not None and time.monotonic() > deadline:
                log.error("%d requests were not submitted: no dispatcher takes them", len(batch) + len(self._items))
                return
            await self._submit_batch(client, batch)

    def _batch(self) -> list[v1.SubmitItem]:
        with self._lock:
            count = fitting(self._items)
            batch, self._items = self._items[:count], self._items[count:]
        return batch

    async def _submit_batch(self, client: AsyncClient, batch: list[v1.SubmitItem]) -> None:
        try:
            results: Sequence[v1.SubmitResult] = (await client.SubmitTasks(v1.SubmitTasksRequest(items=batch), timeout=CALL_TIMEOUT)).results
        except CallError as error:
            if error.code.name in REFUSED:
                raise
            log.debug("requests are not submitted yet: %s", error)
            results = [v1.SubmitResult(code=v1.SUBMIT_CODE_UNSPECIFIED) for _ in batch]
        again = []
        for item, result in zip(batch, results):
            if result.code in (v1.SUBMIT_CODE_UNSPECIFIED, v1.SUBMIT_CODE_LIMITED):
                again.append(item)
            if result.code != v1.SUBMIT_CODE_UNSPECIFIED:
                self._call(self._engine.submitted, item, result)
        if again:
            with self._lock:
                self._items[:0] = again
            await asyncio.sleep(LOOK)
