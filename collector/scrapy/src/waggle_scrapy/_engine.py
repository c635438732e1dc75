"""What the scheduler uses of Scrapy's engine. Most of it is not documented: all of it is checked when the spider opens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from scrapy.utils.asyncio import is_asyncio_available
from scrapy.utils.defer import deferred_from_coro

REFUSED = "waggle_refused"  # why the spider is closed


class ScrapyEngine:
    def __init__(self, engine: Any, error: Callable[[], Exception | None]) -> None:
        """error is what the crawl ends with, if any: `scrapy crawl` ends with 1 then. Scrapy has no other way once the spider is open.
        RuntimeError: this version of Scrapy is another one inside."""
        slot: Any = getattr(engine, "_slot", None)
        found = {
            "_slot.inprogress": isinstance(getattr(slot, "inprogress", None), set),
            "_slot.nextcall": callable(getattr(getattr(slot, "nextcall", None), "schedule", None)),
            "_slot.closing": getattr(slot, "closing", self) is None,
            "_start": getattr(engine, "_start", None) is not None,
            "start_async": iscoroutinefunction(getattr(engine, "start_async", None)),
            "spider": hasattr(engine, "spider"),
            "close_spider_async": iscoroutinefunction(getattr(engine, "close_spider_async", None)),
        }
        if missing := [name for name, ok in found.items() if not ok]:
            raise RuntimeError(f"this version of Scrapy has no engine.{missing[0]}: use one that the README lists")
        self._engine = engine
        self._slot = slot
        self._error = error
        self.started = False  # else the crawl could not end with an error
        self._start_async = engine.start_async
        engine.start_async = self._start_and_raise

    async def _start_and_raise(self, *args: Any, **kwargs: Any) -> None:
        self.started = True
        if self._error() is None:
            await self._start_async(*args, **kwargs)
        if (error := self._error()) is not None:
            if self._engine.spider is not None:
                await self._engine.close_spider_async(reason=REFUSED)
            raise error

    def has(self, request: Any) -> bool:
        """Whether it works on a request: until callbacks and pipelines are through."""
        return bool(request in self._slot.inprogress)

    @property
    def closing(self) -> bool:
        return bool(self._slot.closing)

    @property
    def starting(self) -> bool:
        """Whether the spider's start may yield more."""
        return bool(self._engine._start is not None)

    def wake(self) -> None:
        """Makes it ask for a request, soon."""
        self._slot.nextcall.schedule()

    def refuse(self) -> None:
        """Closes the spider, which error explains."""
        deferred_from_coro(self._engine.close_spider_async(reason=REFUSED))


def caller() -> Callable[..., None]:
    """How another thread calls on the engine's."""
    if is_asyncio_available():
        loop = asyncio.get_running_loop()

        def call(function: Callable[..., None], *args: Any) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(function, *args)
        return call
    from twisted.internet import reactor
    return lambda function, *args: reactor.callFromThread(function, *args)
