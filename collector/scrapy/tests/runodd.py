"""Runs one of the odd spiders: runodd.py NAME BASE ITEMS [SETTINGS]. The last argument has more settings as JSON."""

import json
import sys

import oddspiders
import wrongspiders
from scrapy.crawler import CrawlerProcess
from scrapy.utils.spider import iter_spider_classes

name, base, items, *more = sys.argv[1:]
spider = next(cls for module in (oddspiders, wrongspiders) for cls in iter_spider_classes(module) if cls.name == name)
process = CrawlerProcess({
    "FEEDS": {items: {"format": "jsonlines"}}, "TELNETCONSOLE_ENABLED": False, "LOG_LEVEL": "INFO", **json.loads(more[0] if more else "{}")})
process.crawl(spider, base=base)
process.start()
sys.exit(process.bootstrap_failed)
