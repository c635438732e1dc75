"""A spider as people have them, for the test of three processes: `scrapy runspider shop.py`. Only its settings know of Waggle.

SERVER: a dispatcher; empty: without Waggle. SOURCE, START_URL; OUT: the file for its items."""

import json
import os

import scrapy


class ToFile:
    """Writes each item at once, so that an item is stored when the report of its page goes."""

    def open_spider(self):
        self.file = open(os.environ["OUT"], "a")

    def process_item(self, item):
        self.file.write(json.dumps(item) + "\n")
        self.file.flush()
        return item


class Shop(scrapy.Spider):
    name = "shop"
    start_urls = [os.environ["START_URL"]]
    custom_settings = {
        "ROBOTSTXT_OBEY": True,
        "LOG_LEVEL": "INFO",
        "ITEM_PIPELINES": {ToFile: 100},
        "TELNETCONSOLE_ENABLED": False,
    }
    if os.environ["SERVER"]:
        custom_settings |= {
            "ADDONS": {"waggle_scrapy.AddOn": 100}, "WAGGLE_SERVERS": [os.environ["SERVER"]], "WAGGLE_SOURCE": os.environ["SOURCE"]}

    def parse(self, response):
        yield {"url": response.url, "title": response.css("h1.title::text").get()}
        yield from response.follow_all(css="a")
        if response.css("form"):
            for q in range(10):
                yield scrapy.FormRequest.from_response(response, formdata={"q": str(q)}, callback=self.parse_found)

    def parse_found(self, response):
        yield {"url": response.url, "title": response.css("h1.title::text").get()}
