"""The rules of the protocol: one run of a collector, from its first fetch to its last beat."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import logging
import random
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from waggle_collector import v1
from waggle_collector._dispatchers import Dispatcher, Dispatchers
from waggle_collector._errors import AWAY, Backoff, CallError
from waggle_collector._lease import GRACE, Lease, Report
from waggle_collector._outcome import Failed, Released, duration, message_of
from waggle_collector._stream import Stream
from waggle_collector._task import Task

MAX_ITEMS = 1000  # reports of a call, leases of a beat, items of a report
MAX_BYTES = 2 << 20  # of the reports of a call, of the items of a report, of the cursors of a beat
FETCH_SLACK = 10.0  # seconds that a fetch may take longer than its wait
CALL_TIMEOUT = 10.0
EMPTY_PAUSE = 1.0  # seconds after a fetch that was answered "nothing" at once
IDLE_BEAT = 15.0
BEAT_PAUSE = 0.1  # seconds from one beat to the next, at least
LONGEST_SILENCE = 5.0  # seconds for the answer to a beat, at most
HANDLER_GRACE = 5.0  # seconds in which a handler returns once it is canceled; then it is stuck
SETTLE_TIMEOUT = 2.0  # seconds for the answer what a fetch that was interrupted was granted
GOODBYE_TIMEOUT = 1.0

# Leases that a beat names, each with the cursor and progress that a dispatcher has once it is answered.
Named = list[tuple[Lease, tuple[bytes | None, float | None]]]

Reply = TypeVar("Reply", bound=Message)

SERVICE = "/waggle.v1.DispatchService/"

# Other calls of this session are refused too, and its leases are gone or can be reported by nobody.
GONE = {"COLLECTOR_REPLACED", "CLIENT_TOO_OLD"}

log = logging.getLogger("waggle_collector")


@dataclasses.dataclass(frozen=True)
class Config:
    """What a collector is and how it works; Collector explains the fields."""

    id: str
    slots: int
    wait: float
    lease_duration: float | None
    stop_timeout: float
    report_timeout: float
    pools: Sequence[str]
    sources: Sequence[str]
    queues: Sequence[str]
    labels: Mapping[str, str]
    version: str
    hostname: str
    discovered: Callable[[Task, Sequence[v1.DiscoveredItem], v1.DiscoverSummary], None] | None


@dataclasses.dataclass
class Fetched:
    """The answer of a fetch."""

    answer: v1.FetchTaskResponse
    sent: float
    wait_for: float  # how long the dispatcher was to wait; over a stream it waits as long as that lasts
    repeated: bool  # earlier tries had no answer


class Handlers(Protocol):
    """Runs the user's handlers somewhere else: in threads, or on the user's loop. They call Run.ended when one has returned."""

    def start(self, lease: Lease) -> None: ...

    def cancel(self, lease: Lease) -> None: ...

    def end(self) -> None: ...


def seconds(d: Any) -> float:
    return float(d.ToNanoseconds() / 1e9)


def name_of(enum: Any, number: int, prefix: str) -> str:
    """The name of an enum's value without its prefix; of one that this package does not know, its number."""
    return enum.Name(number).removeprefix(prefix) if number in enum.values() else str(number)


async def wait(event: asyncio.Event, timeout: float | None) -> None:
    """Waits until the event is set, and clears it, or until the time is over. Not wait_for: before Python 3.12 it loses a cancellation that
    comes with the event, and the run would not end."""
    if timeout is None or timeout > 0:
        timer = None if timeout is None else asyncio.get_running_loop().call_later(timeout, event.set)
        try:
            await event.wait()
        finally:
            if timer is not None:
                timer.cancel()
    event.clear()


class Run:
    """All its fields belong to the loop of the package; other threads use ended and stop by call_soon_threadsafe."""

    def __init__(self, config: Config, dispatchers: Dispatchers, handlers: Callable[[Run], Handlers]) -> None:
        self.config = config
        self.dispatchers = dispatchers
        self.session = str(uuid.uuid4())  # new at each start
        self.handlers = handlers(self)
        self.leases: dict[str, Lease] = {}  # by lease token: those whose handler works or whose report is not answered
        self.by_task: dict[str, Lease] = {}  # by task id, the latest
        self.outbox: list[Report] = []  # reports that wait; those of a call under way are not in it
        self.fetch_comes = False  # a fetch that is not parked, or comes soon, carries the reports
        self.held = False  # a hold stops this collector: fetch nothing
        self.stopping = False  # fetch no more
        self.abandoned = False  # the session is over: report nothing
        self.error: BaseException | None = None
        self.next_beat = 0.0  # when the next beat is due
        self.last_beat = 0.0
        self.idle_until = 0.0  # when a dispatcher wants the next beat at the latest
        self.stream: Stream | None = None  # that calls go over: a beat was answered on it
        self.stop_event = asyncio.Event()
        self.slot_free = asyncio.Event()
        self.report_due = asyncio.Event()
        self.beat_due = asyncio.Event()
        self.something_ended = asyncio.Event()
        self.background: set[asyncio.Task[None]] = set()

    async def work(self) -> None:
        """Works until it is stopped, or going on is of no use; then finishes, and raises why if it was not stopped."""
        self.dispatchers.open()
        fetching, beating, reporting = (
            asyncio.create_task(self._guard(loop)) for loop in (self._fetches, self._beats, self._reports))
        try:
            await self.stop_event.wait()
            fetching.cancel()
            await asyncio.wait([fetching])
            await self._drain()
        finally:
            for task in fetching, beating, reporting, *self.background:
                task.cancel()
            await asyncio.wait([fetching, beating, reporting, *self.background])
            self.handlers.end()
            if not self.abandoned:
                await self._goodbye()
            await self.dispatchers.close()
        if self.error is not None:
            raise self.error

    async def _guard(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        try:
            await work(*args)
        except Exception as error:
            self.fail(error)

    def _begin(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Begins work that lasts no longer than the run."""
        task = asyncio.create_task(self._guard(work, *args))
        self.background.add(task)
        task.add_done_callback(self.background.discard)

    def stop(self) -> None:
        """Fetches no more; what runs is finished."""
        self.stopping = True
        self.stop_event.set()
        self.report_due.set()  # no fetch carries them any more
        self._beat_now()

    def set_slots(self, slots: int) -> None:
        """Changes how many tasks are worked on at once, from the next fetch on."""
        self.config = dataclasses.replace(self.config, slots=slots)
        self.slot_free.set()

    def fail(self, error: Exception) -> None:
        """Ends the run with an error."""
        self.error = self.error or error
        if isinstance(error, CallError) and error.reason in GONE:
            self.abandoned = True
            for lease in list(self.leases.values()):
                lease.lost = True
                self._cancel(lease, error.reason)
            self.something_ended.set()
        self.stop()

    async def _drain(self) -> None:
        def working() -> list[Lease]:
            return [lease for lease in self.leases.values() if lease.working]

        await self._until(lambda: self.abandoned or not working(), self.config.stop_timeout)
        for lease in working():
            self._cancel(lease, "STOPPING")
        await self._until(lambda: not working(), HANDLER_GRACE)
        if left := working():
            log.error("%d handlers have not returned within %g s of their cancellation; their leases run out", len(left), HANDLER_GRACE)
        if not self.abandoned:
            await self._until(lambda: self.abandoned or not self._owed(), self.config.report_timeout)
            if self._owed():
                log.error("%d reports not answered within %g s; their leases run out", self._owed(), self.config.report_timeout)

    def _owed(self) -> int:
        """The reports that a stopping collector waits for."""
        return sum(not lease.working and not lease.lapsed for lease in self.leases.values())

    async def _until(self, condition: Callable[[], bool], timeout: float) -> None:
        end = time.monotonic() + timeout
        while not condition() and (left := end - time.monotonic()) > 0:
            await wait(self.something_ended, left)

    async def _goodbye(self) -> None:
        """Reports once that this collector has ended, so that nobody waits until it counts as silent."""
        request = v1.RenewLeaseRequest(collector=self._info(ended=True))
        try:
            await self.dispatchers.call(SERVICE + "RenewLease", request, v1.RenewLeaseResponse, GOODBYE_TIMEOUT)
        except CallError as error:
            log.debug("end of the collector not reported: %s", error)

    def _info(self, ended: bool = False) -> v1.CollectorInfo:
        c = self.config
        return v1.CollectorInfo(
            id=c.id, session=self.session, version=c.version, hostname=c.hostname, labels=c.labels, pools=c.pools, sources=c.sources,
            queues=c.queues, slots=c.slots, stopping=self.stopping, ended=ended,
            stuck_slots=sum(lease.stuck for lease in self.leases.values()))

    async def _call(self, kind: str, method: str, request: Message, reply: type[Reply], timeout: float = CALL_TIMEOUT) -> Reply:
        """Makes a call over the stream, or as a plain one if there is none, or if it ends first."""
        if self.stream is not None:
            answer: Reply | None = await self.stream.call(kind, request, timeout)
            if answer is not None:
                return answer
        return await self.dispatchers.call(SERVICE + method, request, reply, timeout)

    # Fetch.

    async def _fetches(self) -> None:
        drained = False
        while True:
            reports = await self._free_slots()
            request = self._fetch_request(reports)
            try:
                fetched = await self._fetch(request, reports)
            except asyncio.CancelledError:
                self._send_directly(reports)
                await self._settle_token(request)
                raise
            self._start(fetched)
            if not fetched.answer.leased_tasks:
                drained = await self._pause(fetched, time.monotonic() - fetched.sent, drained)

    async def _free_slots(self) -> list[Report]:
        """Waits for a free slot, and returns the reports that the next fetch carries. A report that it carries frees its slot."""
        while True:
            if not self.held:
                reports = self._take(lambda report, now: not report.direct and report.not_before <= now)
                if len(self.leases) - len(reports) < self.config.slots:
                    return reports
                self.outbox[:0] = reports
            self._carry(not self.held)
            await wait(self.slot_free, None)

    def _carry(self, soon: bool) -> None:
        """Sets whether a fetch comes soon that carries the reports; if none does, they get a call of their own."""
        self.fetch_comes = soon
        if not soon and self.outbox:
            self.report_due.set()

    def _fetch_request(self, reports: list[Report]) -> v1.FetchTaskRequest:
        c = self.config
        return v1.FetchTaskRequest(
            collector_id=c.id, session=self.session, client_token=str(uuid.uuid4()), pools=c.pools, sources=c.sources,
            queues=c.queues, labels=c.labels, max_tasks=c.slots - len(self.leases) + len(reports),
            lease_duration=duration(c.lease_duration), reports=[report.message for report in reports])

    async def _fetch(self, request: v1.FetchTaskRequest, reports: list[Report]) -> Fetched:
        """Repeats the same fetch until it is answered. Reports that are answered are removed from the list."""
        backoff = Backoff()
        while True:
            try:
                return await self._fetch_once(request, reports, backoff.failures > 0)
            except CallError as error:
                if reports and error.code not in AWAY and error.reason not in GONE:
                    # A report may be what is refused, and failing fetches and failing reports must not delay each other.
                    self._send_directly(reports)
                    reports.clear()
                    request.ClearField("reports")
                elif self._ends(error):
                    raise
                pause = self.dispatchers.pause(backoff, error)
                log.log(loudness(backoff, error), "fetch failed, will be repeated in %.1f s: %s", pause, error)
            self._carry(False)
            await self.dispatchers.rest(pause)

    async def _fetch_once(self, request: v1.FetchTaskRequest, reports: list[Report], repeated: bool) -> Fetched:
        """Makes a fetch over the stream, or as a plain call. Over the stream its reports are answered ahead, and it waits for as long as
        that lasts, unless it is a repetition: an answer soon shows that the trouble is over."""
        def settle(results: Sequence[v1.ReportResult]) -> None:
            self._settle(reports, results)
            reports.clear()
            request.ClearField("reports")

        sent, wait_for = time.monotonic(), self.config.wait
        if (stream := self.stream) is not None:
            self._carry(False)
            request.ClearField("wait")
            if repeated:
                request.wait.FromNanoseconds(round(wait_for * 1e9))
            answer = await stream.call("fetch", request, wait_for + FETCH_SLACK if repeated else None, settle)
            if answer is not None:
                if answer.empty_reason == v1.EMPTY_REASON_DISPATCHER_DRAINING:
                    self._leave(stream)
                return Fetched(answer, sent, wait_for, repeated)
        # Collectors that started together do not poll together forever. A fetch with reports that others follow is not parked.
        sent, wait_for = time.monotonic(), 0.0 if reports and self.config.slots > 1 else wait_for * random.uniform(0.8, 1)
        request.wait.FromNanoseconds(round(wait_for * 1e9))
        self._carry(wait_for == 0)
        answer = await self.dispatchers.call(SERVICE + "FetchTask", request, v1.FetchTaskResponse, wait_for + FETCH_SLACK)
        settle(answer.report_results)
        return Fetched(answer, sent, wait_for, repeated)

    async def _settle_token(self, request: v1.FetchTaskRequest) -> None:
        """Asks what a fetch on the stream was granted that is interrupted, and gives it back. A plain one ends with its call."""
        if self.stream is None or self.error is not None:
            return
        request.ClearField("reports")
        request.max_tasks = 1
        request.wait.FromNanoseconds(0)
        sent = time.monotonic()
        try:
            answer = await self._call("fetch", "FetchTask", request, v1.FetchTaskResponse, SETTLE_TIMEOUT)
            self._start(Fetched(answer, sent, 0.0, True))
        except CallError as error:
            log.debug("tasks of an interrupted fetch are unknown: %s", error)

    def _ends(self, error: CallError) -> bool:
        """Whether an error of a fetch or a beat means that this collector will never be served."""
        if error.code == grpc.StatusCode.PERMISSION_DENIED and not error.reason or error.code == grpc.StatusCode.UNIMPLEMENTED:
            return self.dispatchers.answers == 0  # later it is a proxy that answers
        return error.code in {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.PERMISSION_DENIED}

    def _start(self, fetched: Fetched) -> None:
        """Starts what was granted, or once the collector stops, gives it back."""
        begin = fetched.sent + max(seconds(fetched.answer.waited), 0.0)
        for granted in fetched.answer.leased_tasks:
            if granted.lease.lease_token in self.leases:
                continue  # a repeated call returned it again
            lease = Lease(granted, begin)
            if stale := self.by_task.get(lease.task.id):
                stale.lost = True
                self._cancel(stale, "LEASE_LOST")
            self.leases[lease.token] = self.by_task[lease.task.id] = lease
            if self.stopping:
                lease.working = False
                self._report(Report(lease, message_of(Released())))
                continue
            if lease.lapse():  # the answer came very late
                self._returned(lease)
                continue
            lease.timer = asyncio.get_running_loop().call_at(lease.stop_at, self._watch, lease)
            self.handlers.start(lease)
            if lease.beat_at < self.next_beat:
                self.beat_due.set()
        if fetched.repeated and fetched.answer.leased_tasks:
            self._beat_now()  # their clocks may have run for a while

    async def _pause(self, fetched: Fetched, took: float, drained: bool) -> bool:
        """Waits after a fetch that got nothing. drained is what it returned last: whether a dispatcher drains and the next was asked."""
        reason, asked = fetched.answer.empty_reason, min(seconds(fetched.answer.retry_after), 60.0)
        if reason == v1.EMPTY_REASON_COLLECTOR_HELD:
            # Whoever answers heartbeats may learn of the hold later, or never if it is lifted soon: it must be asked.
            self._set_held(True)
            self._later(asked or EMPTY_PAUSE, self._beat_now)
            return False
        if reason == v1.EMPTY_REASON_DISPATCHER_DRAINING:
            if not drained and len(self.dispatchers.servers) > 1:
                return True  # the next fetch goes to another dispatcher
            asked = asked or EMPTY_PAUSE
        elif fetched.wait_for == 0:
            return False  # the next fetch is parked
        elif reason == v1.EMPTY_REASON_TOKEN_USED:
            asked = BEAT_PAUSE
        elif not asked and took < min(EMPTY_PAUSE, fetched.wait_for) / 2:
            asked = EMPTY_PAUSE
        if asked:
            self._carry(False)
            await asyncio.sleep(asked * random.uniform(1, 1.1))
        return False

    def _set_held(self, held: bool) -> None:
        if held != self.held:
            self.held = held
            log.info("a hold stops this collector" if held else "no hold stops this collector any more")
            self.slot_free.set()

    # Handlers.

    def _watch(self, lease: Lease) -> None:
        """Stops the work on a lease that was not renewed in time."""
        if not lease.working or lease.lost:
            return
        if lease.lapse():
            self._cancel(lease, "LEASE_LOST")
        else:
            lease.timer = asyncio.get_running_loop().call_at(lease.stop_at, self._watch, lease)

    def _cancel(self, lease: Lease, reason: str) -> None:
        """Ends the work on a lease, once."""
        if not lease.working or lease.task.canceled.is_set():
            return
        lease.task.cancel_reason = reason
        lease.task.canceled.set()
        self.handlers.cancel(lease)
        self._later(HANDLER_GRACE, self._stuck, lease)

    def _stuck(self, lease: Lease) -> None:
        if lease.working and not lease.stuck:
            lease.stuck = True
            log.warning("handler of task %s goes on %g s after its cancellation; its slot takes no other task", lease.task.id, HANDLER_GRACE)
            self._beat_now()

    def _later(self, delay: float, callback: Callable[..., None], *args: Any) -> None:
        asyncio.get_running_loop().call_later(delay, callback, *args)

    def ended(self, lease: Lease, outcome: v1.Outcome) -> None:
        """Takes in how a handler ended."""
        lease.working = False
        if lease.timer is not None:
            lease.timer.cancel()
        if lease.stuck:
            lease.stuck = False
            self._beat_now()
        self.something_ended.set()
        if lease.lost or lease.lapse():
            self._returned(lease)
            return
        rest = split(outcome)
        if rest or lease.task.noted[0] != lease.acked[0] and not outcome.HasField("succeeded"):
            self._begin(self._conclude, lease, outcome, rest)
        else:
            self._report(Report(lease, outcome))

    def _returned(self, lease: Lease) -> None:
        """Drops the result of a handler whose lease is over; one that has lapsed is given back: the store may still hold it."""
        lease.working = False
        if lease.lost:
            log.info("lease of task %s lost, its outcome is dropped", lease.task.id)
            self._drop(lease)
        else:
            log.info("lease of task %s not renewed in time, it is given back", lease.task.id)
            self._report(Report(lease, message_of(Released()), late=True))

    async def _conclude(self, lease: Lease, outcome: v1.Outcome, rest: list[list[v1.DiscoveredItem]]) -> None:
        """Sends what goes before a report: items that it cannot carry, and the last cursor, which the next attempt gets."""
        backoff = Backoff()
        for items in rest:
            request = v1.SubmitDiscoveredRequest(task_id=lease.task.id, lease_token=lease.token, items=items)
            while True:
                try:
                    answer = await self._call("discovered", "SubmitDiscovered", request, v1.SubmitDiscoveredResponse)
                    self._discovered(lease, items, answer.summary)
                    break
                except CallError as error:
                    pause = self.dispatchers.pause(backoff, error)
                    if error.reason in GONE:
                        raise
                    lease.lost = lease.lost or error.reason in {"LEASE_LOST", "TASK_NOT_FOUND"}
                    if lease.lost or time.monotonic() + pause > lease.deadline:
                        lease.lapsed = True
                        self._returned(lease)
                        return
                    if not error.repeatable:
                        self._report(Report(lease, failure(f"discovered items refused: {error.message}")))
                        return
                await self.dispatchers.rest(pause)
        if not outcome.HasField("succeeded") and lease.task.noted != lease.acked:
            beat = lease.beat()
            noted = self._note(lease, beat)
            request_beat = v1.RenewLeaseRequest(collector=self._info(), leases=[beat])
            try:
                await self.dispatchers.call(SERVICE + "RenewLease", request_beat, v1.RenewLeaseResponse, CALL_TIMEOUT / 2)
                lease.acked = noted
            except CallError as error:
                log.debug("last cursor of task %s not sent: %s", lease.task.id, error)
        self._report(Report(lease, outcome))

    # Report.

    def _report(self, report: Report) -> None:
        self.outbox.append(report)
        if self._fetch_carries() and not report.direct:
            self.slot_free.set()
        else:
            self.report_due.set()

    def _take(self, fits: Callable[[Report, float], bool]) -> list[Report]:
        """Takes the reports that fit a call, the oldest first."""
        now, size = time.monotonic(), 0
        taken: list[Report] = []
        left: list[Report] = []
        for report in self.outbox:
            if (len(taken) < MAX_ITEMS and (not taken or size + report.bytes <= MAX_BYTES and not (report.alone or taken[0].alone))
                    and fits(report, now)):
                taken.append(report)
                size += report.bytes
            else:
                left.append(report)
        self.outbox = left
        return taken

    def _send_directly(self, reports: Iterable[Report]) -> None:
        for report in reports:
            report.direct = True
            self.outbox.append(report)
        self.report_due.set()

    async def _reports(self) -> None:
        """Sends the reports that no fetch carries soon, many in one call, one call at a time."""
        backoff = Backoff()
        while True:
            batch = self._take(lambda report, now: (report.direct or not self._fetch_carries()) and report.not_before <= now)
            if not batch:
                times = [report.not_before for report in self.outbox if report.direct or not self._fetch_carries()]
                await wait(self.report_due, max(min(times) - time.monotonic(), 0.001) if times else None)
                continue
            request = v1.ReportTaskRequest(
                collector_id=self.config.id, session=self.session, reports=[report.message for report in batch])
            try:
                answer = await self._call("report", "ReportTask", request, v1.ReportTaskResponse)
            except CallError as error:
                if error.reason in GONE:
                    raise
                if error.code == grpc.StatusCode.INVALID_ARGUMENT or error.code == grpc.StatusCode.RESOURCE_EXHAUSTED and not error.repeatable:
                    self._refused(batch, error)
                    continue
                now = time.monotonic()
                for report in batch:
                    if now > report.lease.deadline + GRACE:
                        log.warning("report of task %s dropped, no dispatcher took it: %s", report.lease.task.id, error)
                        self._drop(report.lease)
                self._send_directly(report for report in batch if now <= report.lease.deadline + GRACE)
                pause = self.dispatchers.pause(backoff, error)
                log.log(loudness(backoff, error), "reports failed, will be repeated in %.1f s: %s", pause, error)
                shortest = min(report.lease.interval for report in batch)  # soon after an outage, while the lease still runs
                await asyncio.sleep(min(pause, max(shortest, BEAT_PAUSE, error.retry_after)))
            else:
                backoff = Backoff()
                self._settle(batch, answer.results)

    def _fetch_carries(self) -> bool:
        return self.fetch_comes and not self.stopping

    def _settle(self, reports: list[Report], results: Sequence[v1.ReportResult]) -> None:
        """Takes in the results of reports."""
        for i, report in enumerate(reports):
            result = results[i] if len(results) == len(reports) else v1.ReportResult(code=v1.REPORT_CODE_STORE_UNAVAILABLE)
            if result.code in (v1.REPORT_CODE_STORE_FULL, v1.REPORT_CODE_STORE_UNAVAILABLE):
                report.not_before = time.monotonic() + report.backoff.next(min(seconds(result.retry_after), 60.0))
                self._send_directly([report])
                continue
            if result.code not in (v1.REPORT_CODE_OK, v1.REPORT_CODE_ALREADY_REPORTED):
                log.info("report of task %s came too late: %s", report.lease.task.id, name_of(v1.ReportCode, result.code, "REPORT_CODE_"))
            elif result.discovered.results:
                self._discovered(report.lease, report.message.outcome.succeeded.discovered, result.discovered)
            self._drop(report.lease)

    def _discovered(self, lease: Lease, items: Sequence[v1.DiscoveredItem], summary: v1.DiscoverSummary) -> None:
        """Passes on what became of the items of a report."""
        if self.config.discovered is not None:
            try:
                self.config.discovered(lease.task, items, summary)
            except Exception:
                log.exception("discovered failed for task %s", lease.task.id)

    def _refused(self, batch: list[Report], error: CallError) -> None:
        """Sends the reports of a refused call one by one, so that a bad one delays no other; one that is refused alone becomes a failure."""
        for report in batch:
            if len(batch) == 1 and report.alone:
                log.error("report of task %s dropped, it is refused: %s", report.lease.task.id, error.message)
                self._drop(report.lease)
                continue
            if len(batch) == 1:
                log.error("report of task %s refused, a failure is reported: %s", report.lease.task.id, error.message)
                report.message.outcome.CopyFrom(failure(f"report refused: {error.message}"))
                report.bytes = report.message.ByteSize()
            report.alone = True
            self._send_directly([report])

    def _drop(self, lease: Lease) -> None:
        """Ends a lease, and frees its slot."""
        self.leases.pop(lease.token, None)
        if self.by_task.get(lease.task.id) is lease:
            del self.by_task[lease.task.id]
        self.slot_free.set()
        self.something_ended.set()

    # Heartbeat.

    def _beat_now(self) -> None:
        self.idle_until = 0.0
        self.beat_due.set()

    def _interval(self) -> float:
        """The shortest time from one beat to the next."""
        return min((lease.interval for lease in self.leases.values() if lease.beaten), default=IDLE_BEAT)

    async def _beats(self) -> None:
        """Keeps a stream open, which beats and all calls share. While there is none, beats go by RenewLease."""
        streams, beats = Backoff(), Backoff()
        while True:
            dispatcher = self.dispatchers.next()
            try:
                await self._beat_on_stream(dispatcher, streams)
                reopen = time.monotonic() + random.uniform(0, BEAT_PAUSE)
            except CallError as error:
                self.dispatchers.failed(dispatcher, error)
                if error.reason in GONE:
                    raise
                log.debug("no stream, calls are plain ones: %s", error)
                reopen = time.monotonic() + self.dispatchers.pause(streams, error)
            retry = 0.0  # when a beat that failed goes again
            while (now := time.monotonic()) < reopen:
                due = max(self._next_beat(), retry)
                if due > now:
                    await wait(self.beat_due, min(due, reopen) - now)
                    continue
                beat, named = self._beat()
                sent = self.last_beat
                try:
                    answer = await self.dispatchers.call(SERVICE + "RenewLease", v1.RenewLeaseRequest(
                        collector=beat.collector, leases=beat.leases), v1.RenewLeaseResponse, self._patience())
                    beats = Backoff()
                    self._answered(answer.status, sent, named)
                except CallError as error:
                    if self._ends(error):
                        raise
                    log.debug("heartbeat failed: %s", error)
                    retry = time.monotonic() + min(self.dispatchers.pause(beats, error), max(self._interval(), BEAT_PAUSE))

    async def _beat_on_stream(self, dispatcher: Dispatcher, backoff: Backoff) -> None:
        """Beats on one stream until it ends, or is left: the first at once, the others when they are due and the one before is answered."""
        await asyncio.sleep(self.last_beat + BEAT_PAUSE - time.monotonic())
        stream = Stream(dispatcher, self.dispatchers.metadata())
        asked: collections.deque[tuple[float, Named]] = collections.deque()
        self._begin(self._read, stream, asked, backoff)
        try:
            while not stream.over:
                beat, named = self._beat()
                sent = self.last_beat
                asked.append((sent, named))
                stream.beat(beat)
                while asked and not stream.over:
                    if (left := sent + self._patience() - time.monotonic()) <= 0:
                        raise CallError(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer to a heartbeat in time")
                    await wait(self.beat_due, left)
                while not stream.over and (left := self._next_beat() - time.monotonic()) > 0:
                    await wait(self.beat_due, left)
            if stream.error is not None:
                raise stream.error
        finally:
            self.stream = None
            if asked:
                self._beat_now()  # by RenewLease
            if not stream.over:
                stream.close()

    async def _read(self, stream: Stream, asked: collections.deque[tuple[float, Named]], backoff: Backoff) -> None:
        """Takes in the answers to beats, and what is pushed. Once a beat is answered, calls use the stream."""
        async for message in stream.read():
            if message.status.HasField("next_heartbeat") and asked:
                self.dispatchers.answered(stream.dispatcher)
                backoff.failures = 0
                self.stream = stream
                self._answered(message.status, *asked.popleft())
            else:
                self._act(message.status)
            if message.reconnect:
                self._leave(stream)
        self.beat_due.set()

    def _leave(self, stream: Stream) -> None:
        """Leaves a stream whose dispatcher stops: until there is another one, calls are plain ones to others."""
        if not stream.over:
            self.stream = None
            stream.leave()
            self.dispatchers.leave(stream.dispatcher)
            self.beat_due.set()

    def _patience(self) -> float:
        """How long a beat may go unanswered: a second try still comes in time."""
        return min(max(self._interval() / 2, 2.5 * BEAT_PAUSE), LONGEST_SILENCE)

    def _next_beat(self) -> float:
        """When the next beat is due."""
        soonest = min((lease.beat_at for lease in self.leases.values() if lease.beaten), default=self.idle_until)
        self.next_beat = max(min(soonest, self.idle_until), self.last_beat + BEAT_PAUSE)
        return self.next_beat

    def _beat(self) -> tuple[v1.HeartbeatRequest, Named]:
        """A beat with what is acknowledged when it is answered. It names all leases, or those that must be renewed first: reports that
        a fetch carries leave room for more leases than a beat may name."""
        beats: list[v1.LeaseBeat] = []
        named: Named = []
        size = 0
        leases = [lease for lease in self.leases.values() if lease.beaten]
        if len(leases) > MAX_ITEMS:
            leases = sorted(leases, key=lambda lease: lease.beat_at)[:MAX_ITEMS]
        for lease in leases:
            beat, noted = lease.beat(), lease.acked
            if lease.task.noted != lease.acked and size < MAX_BYTES:  # else with the next beat
                noted = self._note(lease, beat)
                size += beat.ByteSize()
            beats.append(beat)
            named.append((lease, noted))
        self.beat_due.clear()
        self.last_beat = time.monotonic()  # never later than the true renewal
        self.idle_until = self.last_beat + IDLE_BEAT
        return v1.HeartbeatRequest(collector=self._info(), leases=beats), named

    def _answered(self, status: v1.LeaseStatus, sent: float, named: Named) -> None:
        """Takes in the answer to a beat."""
        self._renewed(status, sent, named)
        self.idle_until = time.monotonic() + max(seconds(status.next_heartbeat), BEAT_PAUSE)
        self.beat_due.set()
        self._act(status)

    def _note(self, lease: Lease, beat: v1.LeaseBeat) -> tuple[bytes | None, float | None]:
        """Puts cursor and progress into a beat, and returns what is acknowledged with its answer."""
        cursor, progress = lease.task.noted
        if cursor is not None:
            beat.cursor = cursor
        if progress is not None:
            beat.progress = progress
        return cursor, progress

    def _renewed(self, status: v1.LeaseStatus, sent: float, named: Named) -> None:
        """Moves the deadlines of the leases that a beat has named."""
        lost = {lease.lease_token for lease in status.lost}
        limited = {lease.task_id: seconds(lease.duration) for lease in status.limited}
        given = seconds(status.lease_duration)
        for lease, noted in named:
            if lease.token in lost:
                continue
            is_limited = lease.task.id in limited
            duration = limited.get(lease.task.id, given)
            if duration > 0:
                lease.renew(sent, duration, is_limited)
                lease.acked = noted
            else:  # the part of the store that has it did not answer: the deadline stays, the cursor goes again
                lease.beat_at = sent + max((lease.deadline - sent) / 3, BEAT_PAUSE)

    def _act(self, status: v1.LeaseStatus) -> None:
        """Acts on a message, be it an answer or pushed. Each has the current value of held."""
        for lost in status.lost:
            lease = self.leases.get(lost.lease_token)
            if lease is not None and lease.working:
                log.info("lease of task %s lost: %s", lost.task_id, name_of(v1.LostReason, lost.reason, "LOST_REASON_"))
                lease.lost = True
                self._cancel(lease, "LEASE_LOST")
        for notice in status.cancel:
            if (lease := self.by_task.get(notice.task_id)) is not None:
                self._cancel(lease, name_of(v1.CancelReason, notice.reason, "CANCEL_REASON_"))
        self._set_held(status.held)


def loudness(backoff: Backoff, error: CallError) -> int:
    """The level of the log for an error that is repeated: a lasting one is worth a warning, unless dispatchers are known to be away."""
    return logging.WARNING if backoff.failures == 3 and error.code not in AWAY else logging.DEBUG


def failure(message: str) -> v1.Outcome:
    return message_of(Failed(v1.FAILURE_REASON_HANDLER, message))


def split(outcome: v1.Outcome) -> list[list[v1.DiscoveredItem]]:
    """Takes the items out of an outcome that a report cannot carry, as parts that one call can."""
    if not outcome.HasField("succeeded"):
        return []
    discovered = outcome.succeeded.discovered
    if len(discovered) <= MAX_ITEMS and outcome.ByteSize() <= MAX_BYTES:
        return []
    parts: list[list[v1.DiscoveredItem]] = [[]]
    size = 0
    for item in discovered:
        if len(parts[-1]) == MAX_ITEMS or parts[-1] and size + item.ByteSize() > MAX_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(item)
        size += item.ByteSize()
    kept = v1.Outcome()
    kept.CopyFrom(outcome)
    del kept.succeeded.discovered[:]
    last = parts.pop()
    kept.succeeded.discovered.extend(last)
    outcome.CopyFrom(kept)
    return parts
