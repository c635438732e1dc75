"""A lease that a collector holds, and the report of how its task ended."""

from __future__ import annotations

import asyncio
import time

from waggle_collector import v1
from waggle_collector._errors import Backoff
from waggle_collector._task import Task

MARGIN = 2.0  # seconds before the deadline at which work stops, at most
GRACE = 30.0  # seconds after the deadline in which a report is repeated


class Lease:
    """A lease and until when it may be trusted, on the monotonic clock. It is kept until its report is answered."""

    def __init__(self, granted: v1.LeasedTask, begin: float) -> None:
        lease = granted.lease
        self.task = Task(granted.task, lease.fence)
        self.token = self.task.lease_token = lease.lease_token
        self.duration = lease.duration.ToNanoseconds() / 1e9
        self.deadline = begin + self.duration
        self.stop_at = self.deadline - min(MARGIN, self.duration / 10)
        self.interval = self.duration / 3  # from one beat to the next
        self.beat_at = begin + self.interval  # when to beat at the latest
        self.working = True  # the handler has not returned
        self.lost = False  # a dispatcher said so
        self.lapsed = False  # stop_at passed while the handler worked
        self.stuck = False  # the handler goes on long after its cancellation
        self.acked: tuple[bytes | None, float | None] = (None, None)  # cursor and progress that a dispatcher has
        self.timer: asyncio.TimerHandle | None = None
        self.task.deadline = self.stop_at

    @property
    def beaten(self) -> bool:
        """Whether beats name it."""
        return not self.lost and not self.lapsed

    def renew(self, sent: float, duration: float, limited: bool) -> None:
        """Moves the deadline, never to an earlier time. A lease that has lapsed stays so: its work was stopped."""
        if not limited:
            self.interval = duration / 3
        self.beat_at = sent + self.interval
        if sent + duration > self.deadline and self.beaten:
            self.deadline = sent + duration
            self.stop_at = self.task.deadline = self.deadline - min(MARGIN, self.duration / 10)

    def lapse(self) -> bool:
        """Whether the lease is not to be trusted any more; then it stays so."""
        self.lapsed = self.lapsed or time.monotonic() >= self.stop_at
        return self.lapsed

    def beat(self) -> v1.LeaseBeat:
        return v1.LeaseBeat(task_id=self.task.id, lease_token=self.token)


class Report:
    """The outcome of one lease, repeated until a dispatcher has answered it."""

    def __init__(self, lease: Lease, outcome: v1.Outcome, late: bool = False) -> None:
        self.lease = lease
        self.message = v1.TaskReport(task_id=lease.task.id, lease_token=lease.token, outcome=outcome)
        self.bytes = self.message.ByteSize()
        self.late = late  # it gives a lease back that has lapsed: a stopping collector does not wait for it
        self.direct = late  # it is sent by a call of its own, not by a fetch
        self.alone = False  # a call that it was in was refused
        self.not_before = 0.0
        self.backoff = Backoff()
