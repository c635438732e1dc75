"""A crawler of a shop, as people have it. With SERVER it crawls the source SOURCE of Waggle, else by itself."""

import asyncio
import json
import os
from datetime import timedelta

from crawlee import ConcurrencySettings, Request
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext


async def main() -> None:
    options = {}
    if server := os.environ["SERVER"]:
        from waggle_crawlee import WaggleRequestManager

        options["request_manager"] = WaggleRequestManager([server], os.environ["SOURCE"])
    crawler = ParselCrawler(
        respect_robots_txt_file=True, concurrency_settings=ConcurrencySettings(min_concurrency=4, desired_concurrency=8, max_concurrency=8),
        request_handler_timeout=timedelta(seconds=30), **options)

    @crawler.router.default_handler
    async def page(context: ParselCrawlingContext) -> None:
        save(context)
        await context.add_requests(context.selector.css("a::attr(href)").getall())
        if context.selector.css("form"):
            await context.add_requests([
                Request.from_url(
                    str(context.request.url).replace("/p/0", "/search"), method="POST", payload=f"q={q}", label="found",
                    headers={"content-type": "application/x-www-form-urlencoded"}, use_extended_unique_key=True)
                for q in range(10)])

    @crawler.router.handler("found")
    async def found(context: ParselCrawlingContext) -> None:
        save(context)

    await crawler.run([os.environ["START_URL"]])


def save(context: ParselCrawlingContext) -> None:
    item = {"url": context.request.loaded_url, "title": context.selector.css("h1.title::text").get()}
    with open(os.environ["OUT"], "a") as out:
        out.write(json.dumps(item) + "\n")


asyncio.run(main())
