"""Crawls the lists of a shop, page by page, and each product behind a proxy: python products.py SITE [PROXY]

SITE/list is the first list. A source "products" is needed (waggle source create products); start as many processes as you like, each with
its own CRAWLEE_STORAGE_DIR.
"""

import asyncio
import os
import sys

from crawlee import Request
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.proxy_configuration import ProxyConfiguration

from waggle_crawlee import WaggleRequestManager, task_of


async def main(site: str, proxy: str | None) -> None:
    async def proxy_for(session_id: str | None = None, request: Request | None = None) -> str | None:
        return proxy if request is not None and request.label == "product" else None

    server = os.environ.get("WAGGLE_SERVER", "127.0.0.1:7070")
    crawler = ParselCrawler(
        request_manager=WaggleRequestManager([server], "products", token_file=os.environ.get("WAGGLE_TOKEN_FILE")),
        proxy_configuration=ProxyConfiguration(new_url_function=proxy_for), respect_robots_txt_file=True)

    @crawler.router.default_handler
    async def products(context: ParselCrawlingContext) -> None:
        await context.enqueue_links(selector="a.product", label="product")
        await context.enqueue_links(selector="a.next")

    @crawler.router.handler("product")
    async def product(context: ParselCrawlingContext) -> None:
        task = task_of(context.request)
        await context.push_data({
            "url": context.request.url, "name": context.selector.css("h1::text").get(), "price": context.selector.css(".price::text").get(),
            "fence": task.fence if task is not None else 0,  # of two items of one URL, the one with the higher fence counts
        }, dataset_name="products")

    await crawler.run([site + "/list"])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None))
