"""Scrapy spiders on many machines, by Waggle.

    ADDONS = {"waggle_scrapy.AddOn": 100}
    WAGGLE_SERVERS = ["127.0.0.1:7070"]

The add-on replaces Scrapy's scheduler: requests become tasks of a source, and every process that runs the spider works on them.
Delays, retries and duplicates are Waggle's; robots.txt, redirects, callbacks and pipelines stay Scrapy's.
"""

from waggle_scrapy._addon import AddOn
from waggle_scrapy._middlewares import DownloaderMiddleware, SpiderMiddleware
from waggle_scrapy._scheduler import Scheduler
from waggle_scrapy._version import __version__

__all__ = ["AddOn", "DownloaderMiddleware", "Scheduler", "SpiderMiddleware", "__version__"]
