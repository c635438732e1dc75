"""Crawlee on Waggle: one crawl by crawlers on many machines.

    from crawlee.crawlers import ParselCrawler
    from waggle_crawlee import WaggleRequestManager

    crawler = ParselCrawler(request_manager=WaggleRequestManager(["127.0.0.1:7070"], "shop"))

What operators need to know is logged by the loggers "waggle_crawlee" and "waggle_collector".
"""

from waggle_crawlee._manager import WaggleRequestManager, task_of
from waggle_crawlee._request import RequestRefused
from waggle_crawlee._submit import NotAllowed, SourceMissing
from waggle_crawlee._version import __version__

__all__ = ["NotAllowed", "RequestRefused", "SourceMissing", "WaggleRequestManager", "__version__", "task_of"]
