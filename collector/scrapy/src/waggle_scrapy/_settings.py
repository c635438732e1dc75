"""What the settings of a project name: the source, the dispatchers, and the collector that a crawl is."""

from __future__ import annotations

import itertools
import os
import re
import socket
from collections.abc import Callable
from typing import Any

from waggle_collector import TLS, AsyncClient, AsyncCollector
from waggle_scrapy._version import __version__

STOP_TIMEOUT = 86400.0  # seconds: how long a spider that ends may finish its requests is Scrapy's to decide

_opened = itertools.count(1)  # of this process: two collectors with one id would end each other


class Settings:
    def __init__(self, settings: Any, spider: Any) -> None:
        """ValueError: there is no dispatcher."""
        self._settings = settings
        self._spider = spider
        self.source: str = settings.get("WAGGLE_SOURCE") or spider.name
        self.slots = min(settings.getint("CONCURRENT_REQUESTS"), 1000)
        self._servers = settings.getlist("WAGGLE_SERVERS")
        if not self._servers:
            raise ValueError('WAGGLE_SERVERS: want the addresses of dispatchers, as ["127.0.0.1:7070"]')
        files = {name: settings.get(f"WAGGLE_{name.upper()}") or None for name in ("ca_file", "cert_file", "key_file")}
        self._tls = TLS(**files) if any(files.values()) else None
        self._token_file = settings.get("WAGGLE_TOKEN_FILE") or None

    def client(self) -> AsyncClient:
        return AsyncClient(self._servers, tls=self._tls, token_file=self._token_file)

    def collector(self, discovered: Callable[..., None]) -> AsyncCollector:
        number = next(_opened)
        name = f"{self.source}-{socket.gethostname()}-{os.getpid()}{'' if number == 1 else f'-{number}'}".lower()
        return AsyncCollector(
            self._servers, self._settings.get("WAGGLE_COLLECTOR_ID") or re.sub("[^a-z0-9._-]", "-", name)[-128:],
            slots=self.slots, sources=[self.source], pools=self._settings.getlist("WAGGLE_POOLS"),
            version=f"waggle-scrapy {__version__}", labels={"spider": self._spider.name}, tls=self._tls, token_file=self._token_file,
            stop_timeout=STOP_TIMEOUT, discovered=discovered)
