"""A crawl with a PlaywrightCrawler: python browser.py SERVER. Fails unless each page has the outcome that it is to have."""

import asyncio
import logging
import sys

from case import FAST, Case, equal, true
from crawlee.crawlers import PlaywrightCrawler
from testsite import page

from waggle_collector import AsyncClient, v1


async def main(server):
    logging.disable(logging.WARNING)
    async with AsyncClient([server]) as client:
        c = Case(server, client, "browser")
        await c.begin({
            "/": page("a", "/b", "/gone", "/empty", "/busy", "/down", "/away"), "/b": page("b"), "/gone": (404, {}, "no such page"), "/empty": (404, {}, ""),
            "/busy": lambda n: (429, {"Retry-After": "1"}, "wait") if n == 1 else page("busy"),
            "/down": lambda n: (503, {"Retry-After": "2"}, "wait") if n == 1 else page("down"),
            "/away": (302, {"Location": "http://localhost:1/"}, "")}, retry=v1.RetryPolicy(
                max_throttled=5, min_backoff=FAST.min_backoff, max_backoff=FAST.max_backoff))
        crawler = c.crawler(PlaywrightCrawler, links=True, browser_launch_options={
            "executable_path": "/usr/bin/chromium", "chromium_sandbox": False, "args": ["--no-sandbox"]})
        await crawler.run([c.site.url + "/"])
        done = "DONE", ""
        for path, want in {"/": done, "/b": done, "/busy": done, "/down": done, "/gone": ("DEAD", "NOT_FOUND"), "/empty": ("DEAD", "OTHER")}.items():
            equal((path, await c.state(path)), (path, want))
        true((await c.state("/away"))[0] == "DEAD", "a page that cannot be reached is not DEAD")
        for path, least in ("/busy", 1), ("/down", 2):
            first, second = c.site.times(path)
            true(second - first >= least, f"{path} again after {second - first} s")
    print("crawled by a browser")


asyncio.run(main(sys.argv[1]))
