"""What a handler works on."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping

from waggle_collector import v1

MAX_CURSOR = 64 << 10  # bytes


class Canceled(Exception):
    """The work on a task must end. Raised by Task.check; a handler lets it pass."""


class Task:
    """A task with its lease. A handler may be tested with a Task made by hand, which has no lease: Task(v1.Task(url=...))."""

    def __init__(self, message: v1.Task, fence: int = 0) -> None:
        self.message = message
        """All that Waggle sent of the task; the properties below are the most used parts of it."""

        self.fence = fence
        """The number of the lease. Store results under (id, cycle); the highest fence wins."""

        self.lease_token = ""
        """What calls under the lease name, as Client.SubmitDiscovered. Reports and heartbeats are the collector's."""

        self.canceled = threading.Event()
        """Set when the work must end; then cancel_reason says why. An asyncio handler is cancelled too."""

        self.cancel_reason = ""
        """LEASE_LOST: somebody else may have the task: stop at once, write nothing. TASK_CANCELED, SOURCE_DELETED, HELD: an operator
        ended it. STOPPING: the collector stops and its time is over. Or why the collector ends, as COLLECTOR_REPLACED. Empty: go on."""

        self.deadline = math.inf
        """When the lease ends unless it is renewed, less a margin, on the clock of time.monotonic(). Heartbeats move it."""

        self.noted: tuple[bytes | None, float | None] = (None, None)  # cursor and progress, for the next heartbeat

    @property
    def id(self) -> str:
        return self.message.id

    @property
    def source_id(self) -> str:
        return self.message.source_id

    @property
    def queue(self) -> str:
        return self.message.queue

    @property
    def url(self) -> str:
        """What to fetch; empty if the task has only a key."""
        return self.message.url

    @property
    def key(self) -> str:
        """What identifies it within scope and queue; by default the canonical URL."""
        return self.message.key

    @property
    def kind(self) -> str:
        return self.message.kind

    @property
    def depth(self) -> int:
        """0 for seeds and submitted tasks, one more for each link."""
        return self.message.depth

    @property
    def cycle(self) -> int:
        """How often it has settled."""
        return self.message.cycle

    @property
    def attempt(self) -> int:
        """The number of this attempt of the cycle, from 1."""
        return self.message.attempt

    @property
    def cursor(self) -> bytes:
        """Where the last attempt of this cycle had got to, as it said by set_cursor; empty: there is none."""
        return self.message.cursor

    @property
    def memo(self) -> bytes:
        """What the last success stored."""
        return self.message.memo

    @property
    def payload(self) -> bytes:
        return self.message.payload

    @property
    def metadata(self) -> Mapping[str, str]:
        return self.message.metadata

    def remaining(self) -> float:
        """Seconds of work left if the lease is not renewed; 0 or less: stop."""
        return 0.0 if self.canceled.is_set() else self.deadline - time.monotonic()

    def check(self) -> None:
        """Raises Canceled if the work must end. Call it before each step that has effects: a frozen process wakes up with old leases."""
        if self.remaining() <= 0:
            raise Canceled(self.cancel_reason or "LEASE_LOST")

    def set_cursor(self, cursor: bytes) -> None:
        """Notes where the work has got to. It goes out with the next heartbeat; the next attempt gets it unless this one succeeds.
        At most 64 KiB; empty forgets an earlier one."""
        if len(cursor) > MAX_CURSOR:
            raise ValueError(f"cursor of task {self.id}: {len(cursor)} bytes, limit {MAX_CURSOR}")
        self.noted = (bytes(cursor), self.noted[1])

    def set_progress(self, progress: float) -> None:
        """Notes how far the work is, 0 to 1, for people. It goes out with the next heartbeat."""
        self.noted = (self.noted[0], min(1.0, max(0.0, progress)))
