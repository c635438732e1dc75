"""The event loop of the package, on a thread of its own: what users block holds up no heartbeat, and grpc.aio sees one loop only."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

_lock = threading.RLock()  # a signal handler may come while its thread has it
_started: asyncio.AbstractEventLoop | None = None
_process = 0  # that has its thread


def loop() -> asyncio.AbstractEventLoop:
    """The loop; its thread starts with the first use and lasts as long as the process. RuntimeError: the process was forked since."""
    global _started, _process
    if _started is not None and _process != os.getpid():
        raise RuntimeError("waggle_collector was used before this process was forked, which no thread survives: "
                           "use it after the fork only, or multiprocessing with the start method spawn")
    with _lock:
        if _started is None:
            _process = os.getpid()
            _started = asyncio.SelectorEventLoop()
            _started.set_exception_handler(_unexpected)
            threading.Thread(target=_started.run_forever, name="waggle-collector", daemon=True).start()
        return _started


def _unexpected(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # Where a program uses grpc.aio on a loop of its own too, each event wakes both loops, and one of them comes too late.
    if not isinstance(context.get("exception"), BlockingIOError):
        loop.default_exception_handler(context)
