"""Collectors, producers and operators of Waggle.

    from waggle_collector import Collector, Failed, Succeeded, Task, v1

    def handle(task: Task) -> Succeeded:
        ...  # fetch task.url, store what it has
        return Succeeded(http_status=200)

    Collector(["127.0.0.1:7070"], "paris-1", slots=8).run(handle)

AsyncCollector is the same for `async def handle`. Client and AsyncClient make every other call. v1 has the messages of the protocol.
What operators need to know is logged by the logger "waggle_collector".
"""

from waggle_collector import v1
from waggle_collector._client import AsyncClient, Client
from waggle_collector._collector import AsyncCollector, Collector
from waggle_collector._dispatchers import TLS
from waggle_collector._errors import CallError
from waggle_collector._outcome import Failed, Outcome, Released, Succeeded
from waggle_collector._task import Canceled, Task
from waggle_collector._version import __version__

__all__ = [
    "AsyncClient", "AsyncCollector", "CallError", "Canceled", "Client", "Collector", "Failed", "Outcome", "Released", "Succeeded",
    "TLS", "Task", "__version__", "v1",
]
