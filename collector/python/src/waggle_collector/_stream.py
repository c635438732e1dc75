"""The Work stream: the beats and all calls of a collector, each a message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from waggle_collector import v1
from waggle_collector._dispatchers import Dispatcher
from waggle_collector._errors import CallError, call_error, work_error

LINGER = 10.0  # seconds that calls of a stream that was left have for their answers

Settle = Callable[[Sequence[v1.ReportResult]], None]


class Stream:
    """An open stream. All its methods belong to the loop of the package, and one task reads it."""

    def __init__(self, dispatcher: Dispatcher, metadata: tuple[tuple[str, str], ...]) -> None:
        self.dispatcher = dispatcher
        self.over = False  # it has ended, or was left: nothing is sent any more
        self.error: CallError | None = None  # why it has ended
        self._last = 0  # id of a request
        self._waiting: dict[int, tuple[asyncio.Future[v1.WorkResponse | None], Settle | None]] = {}  # by id
        self._requests: asyncio.Queue[v1.WorkRequest | None] = asyncio.Queue()
        self._call = dispatcher.channel.stream_stream(
            "/waggle.v1.DispatchService/Work", request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=v1.WorkResponse.FromString)(self._sent(), metadata=metadata)

    async def _sent(self) -> AsyncIterator[v1.WorkRequest]:
        while (request := await self._requests.get()) is not None:
            yield request

    def beat(self, beat: v1.HeartbeatRequest) -> None:
        self._requests.put_nowait(v1.WorkRequest(heartbeat=beat))

    async def call(self, kind: str, request: Message, timeout: float | None, settle: Settle | None = None) -> Any:
        """Makes a call, a field of WorkRequest, and returns its answer; None: the stream ended before that came. settle gets the
        results of the reports of a fetch, ahead of its answer."""
        if self.over:
            return None
        self._last += 1
        message = v1.WorkRequest(id=self._last)
        getattr(message, kind).CopyFrom(request)
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[v1.WorkResponse | None] = loop.create_future()
        timer = None if timeout is None else loop.call_later(timeout, expire, answered)
        self._waiting[message.id] = answered, settle
        self._requests.put_nowait(message)
        try:
            answer = await answered
        finally:
            del self._waiting[message.id]
            if timer is not None:
                timer.cancel()
        if answer is None or answer.error.code == grpc.StatusCode.CANCELLED.value[0]:  # a fetch that waited when the stream was left
            return None
        if answer.HasField("error"):
            raise work_error(answer.error)
        return getattr(answer, kind)

    async def read(self) -> AsyncIterator[v1.HeartbeatResponse]:
        """Passes answers on to the calls, and yields the answers to beats and what is pushed, until the stream is over."""
        error = CallError(grpc.StatusCode.UNAVAILABLE, "the stream has ended")
        try:
            async for response in self._call:
                if response.HasField("heartbeat"):
                    if not self.over:
                        yield response.heartbeat
                elif (waiting := self._waiting.get(response.id)) is not None:
                    answered, settle = waiting
                    if settle is not None and response.HasField("report"):
                        settle(response.report.results)
                    elif not answered.done():
                        answered.set_result(response)
        except grpc.aio.AioRpcError as raised:
            error = call_error(raised)
        except asyncio.CancelledError:
            pass  # it was closed
        self.error = error
        self.close()
        for answered, _ in self._waiting.values():
            if not answered.done():
                answered.set_result(None)

    def leave(self) -> None:
        """Ends the stream once its calls are answered, for which they have a while. A fetch that waits is given up."""
        self.over = True
        self._requests.put_nowait(None)
        asyncio.get_running_loop().call_later(LINGER, self._call.cancel)

    def close(self) -> None:
        """Ends the stream."""
        self.over = True
        self._requests.put_nowait(None)
        self._call.cancel()


def expire(answered: asyncio.Future[v1.WorkResponse | None]) -> None:
    if not answered.done():
        answered.set_exception(CallError(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer over the stream in time"))
