"""The event loop of the package, on a thread of its own: what users block holds up no heartbeat, and grpc.aio sees one loop only."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

_lock = threading.Lock()
_started: asyncio.AbstractEventLoop | None = None


def loop() -> asyncio.AbstractEventLoop:
    """The loop; its thread starts with the first use and lasts as long as the process."""
    global _started
    with _lock:
        if _started is None:
            _started = asyncio.SelectorEventLoop()
            _started.set_exception_handler(_unexpected)
            threading.Thread(target=_started.run_forever, name="waggle-collector", daemon=True).start()
        return _started


def _unexpected(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # Where a program uses grpc.aio on a loop of its own too, each event wakes both loops, and one of them comes too late.
    if not isinstance(context.get("exception"), BlockingIOError):
        loop.default_exception_handler(context)
