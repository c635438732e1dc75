"""The add-on: what it sets in a project, and what it refuses."""

from __future__ import annotations

import logging
from typing import Any

from scrapy import signals

from waggle_scrapy._middlewares import DownloaderMiddleware, SpiderMiddleware
from waggle_scrapy._scheduler import Scheduler

PRIORITY = 50  # above a project's settings, a spider's custom_settings, and the command line

# Whatever must not be done twice is off in Scrapy, since Waggle does it for all processes together.
FIXED = {
    "SCHEDULER": Scheduler,
    "DOWNLOAD_DELAY": 0,
    "CONCURRENT_REQUESTS_PER_IP": 0,
    "DOWNLOAD_SLOTS": {},
    "AUTOTHROTTLE_ENABLED": False,
    "RETRY_ENABLED": False,
}

log = logging.getLogger("waggle_scrapy")


class AddOn:
    """Puts the spiders of a project on Waggle: ADDONS = {"waggle_scrapy.AddOn": 100}."""

    def __init__(self, crawler: Any) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Any) -> AddOn:
        return cls(crawler)

    def update_settings(self, settings: Any) -> None:
        """Changes the settings of a crawler before they are frozen. ValueError: a setting does not go with Waggle."""
        if settings.get("JOBDIR"):
            raise ValueError("JOBDIR: the state of the crawl is in Waggle, where all processes have it: remove this setting")
        self._unused = [name for name, value in FIXED.items() if settings.getpriority(name) and settings.get(name) != value]
        for name, value in FIXED.items():
            settings.set(name, value, priority=PRIORITY)
        settings.set("CONCURRENT_REQUESTS_PER_DOMAIN", settings.getint("CONCURRENT_REQUESTS"), priority=PRIORITY)
        if settings.get("LOG_LEVEL") == "DEBUG":
            logging.getLogger("grpc").setLevel(logging.INFO)  # it logs each loop that it watches
        # The first sees what the spider and all other middlewares yield, the second what the network answers.
        self._add(settings, "SPIDER_MIDDLEWARES", SpiderMiddleware, 0)
        self._add(settings, "DOWNLOADER_MIDDLEWARES", DownloaderMiddleware, 10_000)
        self.crawler.signals.connect(self._spider_opened, signals.spider_opened)

    def _add(self, settings: Any, name: str, middleware: type, position: int) -> None:
        middlewares = settings.getdict(name)
        middlewares[middleware] = position
        settings.set(name, middlewares, priority=PRIORITY)

    def _spider_opened(self, spider: Any) -> None:
        if not isinstance(self.crawler.engine._slot.scheduler, Scheduler):
            message = "SCHEDULER: another add-on has replaced waggle_scrapy.Scheduler: nothing of this crawl is on Waggle"
            raise RuntimeError(message)
        if self._unused:
            log.info("not used on Waggle: %s; see: waggle queue rule, waggle source update", ", ".join(self._unused))
