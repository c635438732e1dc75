"""What Crawlee's HTTP clients raise, and the outcomes that it is taken for. Prints a line for each difference, and fails if there is one."""

import asyncio
import logging
import socket
import struct
import sys
import threading
import time
from datetime import timedelta

from crawlee.crawlers import ParselCrawler
from crawlee.http_clients import CurlImpersonateHttpClient, HttpxHttpClient, ImpitHttpClient

from waggle_collector import v1
from waggle_crawlee import WaggleRequestManager
from waggle_crawlee._leased import LeasedRequest


class One(WaggleRequestManager):
    """Hands out one request, and keeps its outcome."""

    def __init__(self, url):
        self.request = LeasedRequest(url=url, unique_key=url)
        self.left, self.outcome = 1, None

    async def is_finished(self):
        return self.outcome is not None

    async def is_empty(self):
        return not self.left

    async def fetch_next_request(self):
        taken, self.left = self.left, 0
        return self.request if taken else None

    async def mark_request_as_handled(self, request):
        self.outcome = request.outcome(True, None)

    async def reclaim_request(self, request, *, forefront=False):
        self.outcome = request.outcome(False, None)


def serve(answer):
    """A server that lets a function answer each connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept():
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return f"127.0.0.1:{listener.getsockname()[1]}"


def text(data):
    def answer(connection):
        connection.recv(9999)
        connection.sendall(data.encode())
        connection.close()

    return serve(answer)


def status(code, *headers):
    lines = [f"HTTP/1.1 {code} X", *headers, "Content-Length: 2", "Content-Type: text/html", "Connection: close", "", "hi"]
    return text("\r\n".join(lines))


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.recv(10)
    connection.close()


def silent(connection):
    connection.recv(9999)
    time.sleep(60)


def closed():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


async def boom(context):
    raise KeyError("boom")


async def slow(context):
    await asyncio.sleep(9)


async def nothing(context):
    pass


LATER = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 3600))
CASES = [  # URL, handler, reason (None: success), status, Retry-After, permanent
    ("http://" + status(200), nothing, None, 0, None, False),
    ("http://" + status(404), nothing, v1.FAILURE_REASON_NOT_FOUND, 404, None, True),
    ("http://" + status(410), nothing, v1.FAILURE_REASON_GONE, 410, None, True),
    ("http://" + status(401), nothing, v1.FAILURE_REASON_FORBIDDEN, 401, None, False),
    ("http://" + status(403), nothing, v1.FAILURE_REASON_FORBIDDEN, 403, None, False),
    ("http://" + status(451), nothing, v1.FAILURE_REASON_FORBIDDEN, 451, None, True),
    ("http://" + status(418), nothing, v1.FAILURE_REASON_CLIENT_ERROR, 418, None, True),
    ("http://" + status(429), nothing, v1.FAILURE_REASON_THROTTLED, 429, None, False),
    ("http://" + status(429, "Retry-After: 7"), nothing, v1.FAILURE_REASON_THROTTLED, 429, 7, False),
    ("http://" + status(429, "Retry-After: " + LATER), nothing, v1.FAILURE_REASON_THROTTLED, 429, 3600, False),
    ("http://" + status(503), nothing, v1.FAILURE_REASON_SERVER_ERROR, 503, None, False),
    ("http://" + status(503, "Retry-After: 7"), nothing, v1.FAILURE_REASON_THROTTLED, 503, 7, False),
    ("http://" + status(500), nothing, v1.FAILURE_REASON_SERVER_ERROR, 500, None, False),
    ("http://" + closed(), nothing, v1.FAILURE_REASON_CONNECT, 0, None, False),
    ("http://nosuch.invalid", nothing, v1.FAILURE_REASON_DNS, 0, None, False),
    ("https://" + status(200), nothing, v1.FAILURE_REASON_TLS, 0, None, False),
    ("http://" + serve(silent), nothing, v1.FAILURE_REASON_TIMEOUT, 0, None, False),
    ("http://" + serve(reset), nothing, v1.FAILURE_REASON_CONNECTION_LOST, 0, None, False),
    ("http://" + text(""), nothing, v1.FAILURE_REASON_CONNECTION_LOST, 0, None, False),
    ("http://" + text("hello there"), nothing, v1.FAILURE_REASON_CONNECTION_LOST, 0, None, False),
    ("http://" + status(302, "Location: /"), nothing, v1.FAILURE_REASON_REDIRECT, 0, None, False),
    ("http://" + status(200), boom, v1.FAILURE_REASON_HANDLER, 200, None, False),
    ("http://" + status(200), slow, v1.FAILURE_REASON_HANDLER, 200, None, False),
]


async def main():
    logging.disable(logging.CRITICAL)
    wrong = 0
    for client in ImpitHttpClient, HttpxHttpClient, CurlImpersonateHttpClient:
        for url, handler, *want in CASES:
            manager = One(url + "/")
            crawler = ParselCrawler(
                request_manager=manager, http_client=client(), request_handler=handler, configure_logging=False,
                navigation_timeout=timedelta(seconds=2), request_handler_timeout=timedelta(seconds=1))
            await crawler.run()
            got = manager.outcome
            reason, retry_after = getattr(got, "reason", None), getattr(got, "retry_after", None)
            after = None if retry_after is None else round(retry_after, -2) if retry_after > 3000 else retry_after
            if [reason, got.http_status, after, getattr(got, "permanent", False)] != want or "\n" in got.message:
                wrong += 1
                print(f"{client.__name__} {url}: got {got!r}, want {want}")
    print(f"{3 * len(CASES)} outcomes, {wrong} wrong")
    sys.exit(wrong > 0)


asyncio.run(main())
