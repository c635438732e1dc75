"""Sends a form of a shop with each word, and stores what it finds: python search.py SITE WORD...

A source "search" is needed (waggle source create search).
"""

import asyncio
import os
import sys
from urllib.parse import urlencode

from crawlee import Request
from crawlee.crawlers import BeautifulSoupCrawler, BeautifulSoupCrawlingContext

from waggle_crawlee import WaggleRequestManager


async def main(site: str, words: list[str]) -> None:
    server = os.environ.get("WAGGLE_SERVER", "127.0.0.1:7070")
    crawler = BeautifulSoupCrawler(
        request_manager=WaggleRequestManager([server], "search", token_file=os.environ.get("WAGGLE_TOKEN_FILE")), respect_robots_txt_file=True)

    @crawler.router.handler("found")
    async def found(context: BeautifulSoupCrawlingContext) -> None:
        names = [item.get_text() for item in context.soup.select("li")]
        await context.push_data({"word": context.request.user_data["word"], "names": names}, dataset_name="search")

    await crawler.run([
        Request.from_url(
            site + "/search", method="POST", payload=urlencode({"q": word}), headers={"content-type": "application/x-www-form-urlencoded"},
            label="found", user_data={"word": word}, use_extended_unique_key=True)
        for word in words])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
