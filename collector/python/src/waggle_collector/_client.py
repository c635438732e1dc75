"""Clients of all services, for producers and operators."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, TypeVar

from google.protobuf.message import Message

from waggle_collector import v1
from waggle_collector._dispatchers import TLS, Dispatchers
from waggle_collector._loop import loop
from waggle_collector._methods import AsyncMethods, Methods

Reply = TypeVar("Reply", bound=Message)
Result = TypeVar("Result")


class _Connection:
    """The dispatchers of a client; they are opened with its first call."""

    def __init__(self, servers: Sequence[str], *, tls: TLS | None = None, token_file: str | None = None) -> None:
        """servers, tls and token_file are those of Collector."""
        self._dispatchers = Dispatchers(servers, tls, token_file)
        self._opened = False
        self._closed = False

    async def _repeat(self, method: str, request: Message, reply: type[Reply], timeout: float) -> Reply:
        if self._closed:
            raise RuntimeError("the client is closed")
        if not self._opened:
            self._opened = True
            self._dispatchers.open()
        if isinstance(request, v1.FetchTaskRequest) and not request.client_token:
            # Its repetitions are to get what the first one was granted.
            request = v1.FetchTaskRequest.FromString(request.SerializeToString())
            request.client_token = str(uuid.uuid4())
        return await self._dispatchers.repeat(method, request, reply, timeout)

    async def _end(self) -> None:
        self._closed = True
        await self._dispatchers.close()


class Client(_Connection, Methods):
    """Calls the services of Waggle, each by the name of the protocol: client.CreateSource(v1.CreateSourceRequest(...)).

    A call that finds a dispatcher away is repeated, at the next one, for `timeout` seconds; then, or if a repetition is of no use, it
    raises CallError. Give FetchTask a timeout 5 s longer than its wait. Threads may share a client."""

    def _call(self, method: str, request: Message, reply: type[Reply], timeout: float) -> Reply:
        return _result(self._repeat(method, request, reply, timeout))

    def close(self) -> None:
        """Closes the connections."""
        _result(self._end())

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class AsyncClient(_Connection, AsyncMethods):
    """Client for asyncio: await client.CreateSource(v1.CreateSourceRequest(...))."""

    async def _call(self, method: str, request: Message, reply: type[Reply], timeout: float) -> Reply:
        return await _awaited(self._repeat(method, request, reply, timeout))

    async def close(self) -> None:
        """Closes the connections."""
        await _awaited(self._end())

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


def _result(call: Coroutine[Any, Any, Result]) -> Result:
    future = asyncio.run_coroutine_threadsafe(call, loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def _awaited(call: Coroutine[Any, Any, Result]) -> Result:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, loop()))
