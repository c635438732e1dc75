"""Connections to dispatchers: one channel for each address, TLS, the token, and which dispatcher the next call goes to."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import ipaddress
import logging
import random
import re
import time
from collections.abc import Sequence
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from waggle_collector._errors import AWAY, Backoff, CallError, call_error
from waggle_collector._version import __version__

Reply = TypeVar("Reply", bound=Message)

log = logging.getLogger("waggle_collector")

CHANNEL_OPTIONS = [
    # All addresses that one name resolves to.
    ("grpc.service_config", '{"loadBalancingConfig":[{"round_robin":{}}]}'),
    # A frozen dispatcher is found within 10 s only by all three: grpc.keepalive_timeout_ms has no effect.
    ("grpc.keepalive_time_ms", 6_000), ("grpc.http2.ping_timeout_ms", 4_000), ("grpc.http2.max_pings_without_data", 0),
    # How long to connect may take, and how long it may last until one that is back is used again.
    ("grpc.min_reconnect_backoff_ms", 4_000), ("grpc.initial_reconnect_backoff_ms", 200), ("grpc.max_reconnect_backoff_ms", 5_000),
    ("grpc.max_receive_message_length", 16 << 20),
]
TOKEN_AGE = 0.5  # seconds after which the file of the token is looked at again
CHECK_TIMEOUT = 3.0  # seconds that a dispatcher has to answer a health check
NOT_SERVING = b"\x08\x02"  # a grpc.health.v1.HealthCheckResponse
RUSH = 0.2  # seconds over which the calls that waited for a dispatcher spread
STORE = {"STORE_UNAVAILABLE"}  # the same everywhere


@dataclasses.dataclass(frozen=True)
class TLS:
    """Encrypts connections. Each dispatcher shows a certificate for the name in its own address. The files are read at the start."""

    ca_file: str | None = None
    """Authorities to trust, instead of the usual ones."""

    cert_file: str | None = None
    """A certificate to show, with key_file."""

    key_file: str | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        def content(path: str | None) -> bytes | None:
            if path is None:
                return None
            with open(path, "rb") as file:
                return file.read()

        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("tls: cert_file and key_file go together")
        return grpc.ssl_channel_credentials(content(self.ca_file), content(self.key_file), content(self.cert_file))


class Token:
    """The token in a file; the last good one while the file cannot be read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._token = ""
        self._looked = time.monotonic()
        self._read()
        if not self._token:
            raise ValueError(f"token_file: {path} is empty")

    def _read(self) -> None:
        with open(self._path) as file:
            self._token = file.read().strip() or self._token

    def latest(self) -> str:
        if time.monotonic() - self._looked >= TOKEN_AGE:
            self._looked = time.monotonic()
            try:
                self._read()
            except (OSError, ValueError) as error:  # gone, or not text
                log.warning("token file not read, the last token is sent: %s", error)
        return self._token


def is_local(server: str) -> bool:
    """Whether an address is on this machine, as far as its name says."""
    host = server.rsplit(":", 1)[0].strip("[]")
    try:
        return server.startswith("unix:") or host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Dispatcher:
    """One address, with a channel that lives as long as its collector or client."""

    def __init__(self, address: str, channel: grpc.aio.Channel) -> None:
        self.address = address
        self.channel = channel
        self.away = False  # it did not serve: a call is made to it only if all are away
        self.warned = False  # that was logged
        self.check: asyncio.Task[None] | None = None  # waits until it serves
        self._calls: dict[str, Any] = {}

    def unary(self, method: str, reply: type[Message]) -> Any:
        if (call := self._calls.get(method)) is None:
            call = self._calls[method] = self.channel.unary_unary(
                method, request_serializer=lambda request: request.SerializeToString(), response_deserializer=reply.FromString)
        return call


SERVER = re.compile(r"unix:.+|(\[[0-9a-fA-F:.]+\]|[^\s/:@\[\]]+):\d{1,5}")


class Dispatchers:
    """All dispatchers. Each call goes to the next one that serves; where one was away, its health shows when it serves again.
    Everything but the construction happens on the loop of the package."""

    def __init__(self, servers: Sequence[str], tls: TLS | None, token_file: str | None) -> None:
        if isinstance(servers, str) or not servers or not all(map(SERVER.fullmatch, servers)):
            raise ValueError(f"servers: {servers!r}: want a list of at least one, each HOST:PORT or unix:PATH")
        if token_file is not None and tls is None and not all(map(is_local, servers)):
            raise ValueError("token_file: a token is sent to other machines over TLS only: want tls")
        self.servers = list(servers)
        self._credentials = tls.credentials() if tls is not None else None
        self._token = Token(token_file) if token_file is not None else None
        self._ring: collections.deque[Dispatcher] = collections.deque()
        self._unauthenticated = False
        self._back = asyncio.Event()  # one serves
        self.answers = 0  # calls that were answered

    def open(self) -> None:
        """Makes the channels, and checks each address at once, so that one that does not serve is logged."""
        for server in self.servers:
            channel = (grpc.aio.insecure_channel(server, CHANNEL_OPTIONS) if self._credentials is None
                       else grpc.aio.secure_channel(server, self._credentials, CHANNEL_OPTIONS))
            dispatcher = Dispatcher(server, channel)
            dispatcher.check = asyncio.create_task(self._check(dispatcher))
            self._ring.append(dispatcher)
        self._ring.rotate(random.randrange(len(self._ring)))

    async def close(self) -> None:
        for dispatcher in self._ring:
            if dispatcher.check is not None:
                dispatcher.check.cancel()
            await dispatcher.channel.close()

    async def _check(self, dispatcher: Dispatcher) -> None:
        """Asks a dispatcher whether it serves until it does."""
        health = dispatcher.channel.unary_unary("/grpc.health.v1.Health/Check")
        backoff = Backoff()
        while True:
            try:
                if await health(b"", timeout=CHECK_TIMEOUT) != NOT_SERVING:
                    break
                why = "it stops, or its store does not answer"
            except grpc.aio.AioRpcError as error:
                if error.code() not in AWAY:
                    break  # it has no health, but is there
                why = "no answer in time" if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED else error.details() or error.code().name
            dispatcher.away = True
            if not dispatcher.warned:
                dispatcher.warned = True
                log.warning("dispatcher %s does not serve, will try again: %s", dispatcher.address, why)
            await asyncio.sleep(backoff.next())
        self._serves(dispatcher)

    def next(self) -> Dispatcher:
        """The dispatcher for the next call."""
        for _ in range(len(self._ring)):
            self._ring.rotate(-1)
            if not self._ring[0].away:
                break
        else:
            self._ring.rotate(-1)
        return self._ring[0]

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What each call carries. The token is no call credential of gRPC: grpc.aio leaks those with each call."""
        client = ("waggle-client", f"waggle-python/{__version__}")
        return (client,) if self._token is None else (client, ("authorization", "Bearer " + self._token.latest()))

    def leave(self, dispatcher: Dispatcher) -> None:
        """Calls go to other dispatchers until this one serves again. If its health shows that it does not, that is logged once."""
        dispatcher.away = True
        self._back.clear()
        if dispatcher.check is None or dispatcher.check.done():
            dispatcher.check = asyncio.create_task(self._check(dispatcher))

    def answered(self, dispatcher: Dispatcher) -> None:
        """Takes in that a dispatcher has answered a call."""
        self.answers += 1
        self._unauthenticated = False
        self._serves(dispatcher)

    def _serves(self, dispatcher: Dispatcher) -> None:
        dispatcher.away = False
        self._back.set()
        if dispatcher.warned:
            dispatcher.warned = False
            log.info("dispatcher %s serves", dispatcher.address)

    def failed(self, dispatcher: Dispatcher, error: CallError) -> CallError:
        """Takes in the error of a call, and returns it."""
        if error.code in AWAY and error.reason not in STORE:
            self.leave(dispatcher)
        elif error.code == grpc.StatusCode.UNAUTHENTICATED and not self._unauthenticated:
            self._unauthenticated = True
            without = "" if self._token is not None else "; no token_file is set"
            log.warning("credentials refused, will try again: %s%s", error.message, without)
        return error

    async def call(self, method: str, request: Message, reply: type[Reply], timeout: float) -> Reply:
        """Makes a call once."""
        dispatcher = self.next()
        try:
            answer: Reply = await dispatcher.unary(method, reply)(request, timeout=timeout, metadata=self.metadata())
        except grpc.aio.AioRpcError as error:
            raise self.failed(dispatcher, call_error(error)) from None
        self.answered(dispatcher)
        return answer

    def pause(self, backoff: Backoff, error: CallError) -> float:
        """How long to wait before a call is repeated: hardly while a dispatcher is left that was not tried."""
        pause = backoff.next(error.retry_after)
        is_other = error.code in AWAY and error.reason not in STORE and backoff.failures < len(self._ring)
        return random.uniform(0, 0.05) if is_other else pause

    async def rest(self, pause: float) -> None:
        """Waits before a call is repeated: if no dispatcher serves, no longer than until one does."""
        if not all(dispatcher.away for dispatcher in self._ring):
            await asyncio.sleep(pause)
            return
        back = asyncio.ensure_future(self._back.wait())
        try:
            await asyncio.wait([back], timeout=pause)
            if back.done():
                await asyncio.sleep(random.uniform(0, RUSH))
        finally:
            back.cancel()

    async def repeat(self, method: str, request: Message, reply: type[Reply], timeout: float) -> Reply:
        """Makes a call, and repeats it until it is answered, or the time is over, or a repetition is of no use."""
        backoff, end = Backoff(), time.monotonic() + timeout
        while True:
            try:
                return await self.call(method, request, reply, max(end - time.monotonic(), 0.001))
            except CallError as error:
                pause = self.pause(backoff, error)
                if not error.repeatable or error.code == grpc.StatusCode.UNAUTHENTICATED or time.monotonic() + pause >= end:
                    raise
            await self.rest(pause)
