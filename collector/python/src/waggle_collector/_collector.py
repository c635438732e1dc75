"""The two front ends of a run: handlers that are functions in threads, and handlers that are coroutines on the user's loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import functools
import logging
import queue
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence

from waggle_collector import v1
from waggle_collector._dispatchers import TLS, Dispatchers
from waggle_collector._lease import Lease
from waggle_collector._loop import loop
from waggle_collector._outcome import Failed, Outcome, Released, message_of
from waggle_collector._run import Config, Handlers, Run
from waggle_collector._task import Task

Handler = Callable[[Task], Outcome | None]
AsyncHandler = Callable[[Task], Awaitable[Outcome | None]]

NAME = re.compile(r"[a-z0-9._-]{1,128}")
QUEUE = re.compile(r"[a-z0-9._:\[\]-]{1,261}")

log = logging.getLogger("waggle_collector")


class _Collector:
    """What both collectors share: the configuration, and the run that is under way."""

    def __init__(
        self, servers: Sequence[str], id: str, *, slots: int = 1, pools: Sequence[str] = (), sources: Sequence[str] = (),
        queues: Sequence[str] = (), labels: Mapping[str, str] | None = None, version: str = "", hostname: str | None = None,
        wait: float = 10.0, lease_duration: float | None = None, stop_timeout: float = 20.0, report_timeout: float = 20.0,
        tls: TLS | None = None, token_file: str | None = None,
        discovered: Callable[[Task, Sequence[v1.DiscoveredItem], v1.DiscoverSummary], None] | None = None,
    ) -> None:
        """Checks the configuration, and reads the files that it names; connects to nothing. ValueError names the field that is wrong.

        servers: addresses of dispatchers, each host:port. All are equal; a call that one does not answer goes to the next.
        id: names the collector, the same over restarts: 1 to 128 of [a-z0-9._-]. A second process with this id replaces the first.
        slots: how many tasks are worked on at once, 1 to 1000.
        pools, sources, queues: take only their tasks, at most 16 each. Default: the pool "default", all sources, all queues.
        labels: operators hold collectors by label; at most 64, keys and values at most 128 bytes.
        version, hostname: shown to operators; at most 128 and 253 bytes.
        wait: seconds that a fetch waits for a task, 0.1 to 30, as a plain call: over a stream it waits as long as that lasts. Shorter than
            the idle timeout of any proxy on the way.
        lease_duration: seconds that a lease runs between renewals, 1 to 3600. Default: the source's.
        stop_timeout: seconds that running handlers may go on after stop; then they are canceled.
        report_timeout: seconds that a collector which stops waits for its last reports to be answered.
        tls: encrypts connections. Default: plain text.
        token_file: holds the token that each call sends, and each stream at its beginning. It is read again when half a second has
            passed, and needs tls unless all servers are on this machine.
        discovered: is called with what became of the items that a task has led to, on the thread of the package: it must not block. Not
            called for a report whose first answer was lost.
        """
        checks = [
            ("id", id, bool(NAME.fullmatch(id)), "1 to 128 of [a-z0-9._-]"),
            ("slots", slots, 1 <= slots <= 1000, "1 to 1000"),
            ("wait", wait, 0.1 <= wait <= 30, "0.1 to 30 s"),
            ("lease_duration", lease_duration, lease_duration is None or 1 <= lease_duration <= 3600, "1 to 3600 s"),
            ("stop_timeout", stop_timeout, stop_timeout >= 0, "0 s or more"),
            ("report_timeout", report_timeout, report_timeout >= 0, "0 s or more"),
            ("labels", labels, len(labels or {}) <= 64, "at most 64"),
        ]
        for field, names, form in ("pools", pools, NAME), ("sources", sources, NAME), ("queues", queues, QUEUE):
            well = not isinstance(names, str) and len(names) <= 16 and all(form.fullmatch(name) for name in names)
            checks.append((field, names, well, f"a list of at most 16, each {form.pattern}"))
        hostname = socket.gethostname()[:253] if hostname is None else hostname
        texts = [("version", version, 128), ("hostname", hostname, 253)]
        texts += [(f"labels[{key!r}]", text, 128) for key, value in (labels or {}).items() for text in (key, value)]
        checks += [(field, text, len(text.encode()) <= limit, f"at most {limit} bytes") for field, text, limit in texts]
        for field, value, well, want in checks:
            if not well:
                raise ValueError(f"{field}: {value!r}: want {want}")
        self._config = Config(
            id=id, slots=slots, wait=wait, lease_duration=lease_duration, stop_timeout=stop_timeout, report_timeout=report_timeout,
            pools=list(pools), sources=list(sources), queues=list(queues), labels=dict(labels or {}), version=version, hostname=hostname,
            discovered=discovered)
        self._connect = functools.partial(Dispatchers, servers, tls, token_file)
        self._connect()  # to find what is wrong
        self._lock = threading.Lock()  # guards what follows
        self._current: Run | None = None
        self._stopped = False

    def stop(self) -> None:
        """Fetches no more. Handlers that run may finish within stop_timeout, everything is reported, and run returns. Any thread and
        any signal handler may call it."""
        self._stopped = True
        if (run := self._current) is not None:
            loop().call_soon_threadsafe(run.stop)

    def set_slots(self, slots: int) -> None:
        """Changes how many tasks are worked on at once, 1 to 1000, for programs whose concurrency changes. Nothing that runs is stopped;
        a fetch that waits already, be it for hours, may still bring as many tasks as it asked for, and no more."""
        if not 1 <= slots <= 1000:
            raise ValueError(f"slots: {slots!r}: want 1 to 1000")
        with self._lock:
            self._config = dataclasses.replace(self._config, slots=slots)
            if (run := self._current) is not None:
                loop().call_soon_threadsafe(run.set_slots, slots)

    def _start(self, handlers: Callable[[Run], Handlers]) -> concurrent.futures.Future[None]:
        where = loop()
        with self._lock:
            if self._current is not None:
                raise RuntimeError("the collector runs already")
            self._current = run = Run(self._config, self._connect(), handlers)
        if self._stopped:
            where.call_soon_threadsafe(run.stop)
        return asyncio.run_coroutine_threadsafe(self._work(run), where)

    async def _work(self, run: Run) -> None:
        try:
            await run.work()
        finally:
            self._current = None
            self._stopped = False


class Collector(_Collector):
    """Fetches tasks, runs a handler on each in a thread, keeps the leases by heartbeats, and reports how the work ended.

    A handler that blocks takes only its own slot. It learns of its cancellation by task.canceled and task.check()."""

    def run(self, handler: Handler) -> None:
        """Works until stop is called, then finishes and returns. CallError: going on is of no use, as another process uses the id
        (COLLECTOR_REPLACED), this package is too old (CLIENT_TOO_OLD), or its identity may not fetch. That no dispatcher can be reached, or
        none takes the token, is no such reason. KeyboardInterrupt stops it as well, and is raised again once it has finished.

        What the handler returns is reported; None counts as Succeeded(). An exception other than Failed and Released is reported as
        a failure with the reason HANDLER; after a cancellation the task is given back instead."""
        future = self._start(lambda run: _Threads(run, handler))
        try:
            future.result()
        except KeyboardInterrupt:
            self.stop()
            future.result()
            raise


class AsyncCollector(_Collector):
    """Fetches tasks, runs a coroutine on each, keeps the leases by heartbeats, and reports how the work ended.

    Handlers run on the loop that calls run. Everything else has a loop and a thread of its own, so that leases are kept where a handler
    blocks. Where the work on a task must end, its coroutine is cancelled."""

    async def run(self, handler: AsyncHandler) -> None:
        """As Collector.run. When it is cancelled, it stops as by stop, and ends as cancelled once it has finished."""
        caller = asyncio.get_running_loop()
        future = asyncio.wrap_future(self._start(lambda run: _Coroutines(run, handler, caller)))
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:
            self.stop()
            while not future.done():  # a second cancellation does not leave what runs behind either
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.shield(future)
            raise


def _outcome(lease: Lease, outcome: Outcome | None, error: BaseException | None) -> v1.Outcome:
    """The outcome to report for what a handler returned or raised."""
    try:
        if isinstance(error, (Failed, Released)):
            outcome = error
        elif error is not None and lease.task.remaining() <= 0 or isinstance(error, asyncio.CancelledError):
            outcome = Released()  # interrupted: the error does not describe the task
        elif error is not None:
            log.error("handler of task %s failed", lease.task.id, exc_info=error)
            outcome = Failed(v1.FAILURE_REASON_HANDLER, f"{type(error).__name__}: {error}")
        if isinstance(outcome, Failed) and lease.task.canceled.is_set():
            outcome = Released()
        return message_of(outcome)
    except BaseException as wrong:  # no outcome, or with values of wrong types; or items that are made as they are read raised it
        log.error("outcome of task %s is not valid", lease.task.id, exc_info=wrong)
        return message_of(Failed(v1.FAILURE_REASON_HANDLER, f"outcome is not valid: {wrong}"))


class _Threads:
    """Runs functions in threads, as many as work at once. They do not keep the process from ending."""

    def __init__(self, run: Run, handler: Handler) -> None:
        self._run = run
        self._handler = handler
        self._waiting: queue.SimpleQueue[Lease | None] = queue.SimpleQueue()
        self._threads = 0
        self._busy = 0  # of the loop, as _threads

    def start(self, lease: Lease) -> None:
        self._busy += 1
        if self._busy > self._threads:
            self._threads += 1
            threading.Thread(target=self._work, name=f"waggle-handler-{self._threads}", daemon=True).start()
        self._waiting.put(lease)

    def cancel(self, lease: Lease) -> None:
        pass  # task.canceled is set

    def end(self) -> None:
        for _ in range(self._threads):
            self._waiting.put(None)

    def _work(self) -> None:
        while (lease := self._waiting.get()) is not None:
            result, error = None, None
            try:
                lease.task.check()
                result = self._handler(lease.task)
            except BaseException as raised:
                error = raised
            loop().call_soon_threadsafe(self._ended, lease, _outcome(lease, result, error))

    def _ended(self, lease: Lease, outcome: v1.Outcome) -> None:
        self._busy -= 1
        self._run.ended(lease, outcome)


class _Coroutines:
    """Runs coroutines on the loop of the user."""

    def __init__(self, run: Run, handler: AsyncHandler, caller: asyncio.AbstractEventLoop) -> None:
        self._run = run
        self._handler = handler
        self._caller = caller
        self._tasks: dict[Lease, asyncio.Task[None]] = {}  # of the user's loop

    def start(self, lease: Lease) -> None:
        self._caller.call_soon_threadsafe(self._begin, lease)

    def cancel(self, lease: Lease) -> None:
        self._caller.call_soon_threadsafe(self._interrupt, lease)

    def _begin(self, lease: Lease) -> None:
        self._tasks[lease] = self._caller.create_task(self._work(lease))

    def _interrupt(self, lease: Lease) -> None:
        if (task := self._tasks.get(lease)) is not None:
            task.cancel(lease.task.cancel_reason)

    def end(self) -> None:
        pass  # each ends with its handler

    async def _work(self, lease: Lease) -> None:
        result, error = None, None
        try:
            lease.task.check()
            result = await self._handler(lease.task)
        except BaseException as raised:
            error = raised
        finally:
            del self._tasks[lease]
        loop().call_soon_threadsafe(self._run.ended, lease, _outcome(lease, result, error))
