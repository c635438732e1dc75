"""Fetches pages with the Python package, by functions or by coroutines: python collect.py threads|asyncio SERVER"""

import asyncio
import signal
import sys
import urllib.request

from waggle_collector import AsyncCollector, Collector, Succeeded, Task

SLOTS = 8


def handle(task: Task) -> Succeeded:
    with urllib.request.urlopen(task.url, timeout=10) as page:
        return Succeeded(http_status=page.status, bytes=len(page.read()))


async def handle_async(task: Task) -> Succeeded:
    return await asyncio.to_thread(handle, task)


async def collect_async(server: str) -> None:
    collector = AsyncCollector([server], "python-asyncio", slots=SLOTS)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, collector.stop)
    await collector.run(handle_async)


kind, server = sys.argv[1:]
if kind == "asyncio":
    asyncio.run(collect_async(server))
else:
    threads = Collector([server], "python-threads", slots=SLOTS)
    signal.signal(signal.SIGTERM, lambda *_: threads.stop())
    threads.run(handle)
