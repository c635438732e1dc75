"""Spiders whose pages fail or are asked for again, or whose requests cannot travel. None of them knows of Waggle."""

import asyncio
import json

import scrapy
from oddspiders import Odd, title
from scrapy.downloadermiddlewares.retry import get_retry_request


class Errback(Odd):
    name = "errback"

    async def start(self):
        yield self.page("status/404", errback=self.failed)
        yield self.page("status/403", errback=self.failed_later)
        yield scrapy.Request("http://127.0.0.1:1/", errback=self.failed)

    def failed(self, failure):
        yield {"failed": type(failure.value).__name__}
        yield self.page("page/3", callback=self.parse_title)

    async def failed_later(self, failure):
        await asyncio.sleep(0.01)
        return [{"failed later": failure.value.response.status}, self.page("page/5", callback=self.parse_title)]


class Retry(Odd):
    name = "retry"
    first = "captcha/1"

    def parse(self, response):
        if response.css("h1::text").get() == "captcha":
            return get_retry_request(response.request, spider=self, reason="captcha")
        return title(response)


class Again(Odd):
    name = "again"
    first = "captcha/2"

    def parse(self, response):
        if response.css("h1::text").get() == "captcha":
            yield response.request.replace(dont_filter=True)
        else:
            yield title(response)


class Lambda(Odd):
    name = "lambda"

    def parse(self, response):
        yield self.page("page/5", callback=lambda response: title(response))


class BadMeta(Odd):
    name = "bad-meta"

    def parse(self, response):
        yield self.page("page/5", meta={"thing": {"deep": object()}})


class BadStart(Odd):
    name = "bad-start"

    async def start(self):
        yield self.page("page/5", cb_kwargs={"numbers": {1: "one"}})


class Break:
    async def process_item(self, item):
        await asyncio.sleep(0.05)
        raise OSError("disk full")


class BreakingPipeline(Odd):
    name = "breaking-pipeline"
    first = "page/5"
    custom_settings = {"ITEM_PIPELINES": {Break: 1}}


class Raising(Odd):
    name = "raising"

    def parse(self, response):
        yield title(response)
        yield self.page("page/5", callback=self.parse_title)
        raise KeyError("price")


class Loop(Odd):
    name = "loop"
    first = "loop/0"
    custom_settings = {"REDIRECT_MAX_TIMES": 3}


class Flaky(Odd):
    name = "flaky"
    first = "flaky/1"


class Throttled(Odd):
    name = "throttled"
    first = "later/1"


class Oddly(Odd):
    name = "oddly"
    first = "oddly/1"


class Change:
    """Puts other requests in place: before the network one with a header, after it one with another header."""

    def process_request(self, request):
        if "stage" not in request.meta:
            return request.replace(meta={**request.meta, "stage": 1}, dont_filter=True)

    def process_response(self, request, response):
        if "X-Test" in request.headers:
            return response
        return request.replace(headers={**request.headers, "X-Test": "changed"}, dont_filter=True)


class Changing(Odd):
    name = "changing"
    first = "echo"
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {Change: 300}}

    def parse(self, response):
        yield {**json.loads(response.text), "stage": response.meta["stage"]}
        if not response.url.endswith("again"):
            yield self.page("echo?again")


class Unchanged:
    def process_response(self, request, response):
        return request.replace(dont_filter=True)


class Endless(Odd):
    name = "endless"
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {Unchanged: 300}}


class Fresh:
    def process_request(self, request):
        if not request.headers.get("X-Test"):
            return scrapy.Request(request.url, headers={"X-Test": "fresh"}, dont_filter=True)


class NoCopy(Odd):
    name = "no-copy"
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {Fresh: 300}}


class FailedLinks(Odd):
    name = "failed-links"

    async def start(self):
        yield self.page("status/404", errback=self.failed)

    def failed(self, failure):
        yield self.page("page/5", callback=self.parse_title)
        yield self.page("status/403")
        yield scrapy.Request("http://127.9.9.9/page/1")


class Circular(Odd):
    name = "circular"

    async def start(self):
        meta = {}
        meta["self"] = meta
        yield scrapy.Request(self.base.replace("http://", "http://ada:secret@"), meta={"thing": meta})


class Elsewhere(Odd):
    name = "elsewhere"
    first = "elsewhere"


class Many(Odd):
    name = "many"
    first = "many"


class Jobdir(Odd):
    name = "jobdir"
    custom_settings = {"JOBDIR": "job"}


class Password(Odd):
    name = "password"

    async def start(self):
        yield scrapy.Request(self.base.replace("http://", "http://ada:secret@"))
