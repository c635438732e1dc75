"""Crawls a site with Crawlee: by a request manager over the dispatcher that is named, or by itself. Arguments: URL [dispatcher]"""

import asyncio
import logging
import sys

from crawlee import ConcurrencySettings
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext


async def main() -> None:
    options = {}
    if len(sys.argv) > 2:
        from waggle_crawlee import WaggleRequestManager

        options["request_manager"] = WaggleRequestManager([sys.argv[2]], "site")
    crawler = ParselCrawler(concurrency_settings=ConcurrencySettings(min_concurrency=16, desired_concurrency=16, max_concurrency=16), **options)

    @crawler.router.default_handler
    async def page(context: ParselCrawlingContext) -> None:
        await context.enqueue_links()

    await crawler.run([sys.argv[1]])


logging.basicConfig(level=logging.WARNING)
asyncio.run(main())
