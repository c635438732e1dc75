"""Spiders that use what Scrapy offers, each in its own way. None of them knows of Waggle."""

import asyncio
import json

import scrapy
from scrapy import signals
from scrapy.exceptions import CloseSpider, DontCloseSpider, DropItem
from scrapy.http import JsonRequest
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule, SitemapSpider


def title(response):
    return {"title": response.css("h1::text").get(), "path": response.url.split("/", 3)[3]}


class Odd(scrapy.Spider):
    first = "page/4"

    def __init__(self, base, **kwargs):
        super().__init__(**kwargs)
        self.base = base
        self.start_urls = [base + self.first]

    def page(self, path, **kwargs):
        return scrapy.Request(self.base + path, **kwargs)

    def parse(self, response):
        yield title(response)
        yield from response.follow_all(css="a")

    def parse_title(self, response):
        yield title(response)

    def parse_echo(self, response):
        yield json.loads(response.text)


class Plain(Odd):
    name = "plain"
    first = "page/0"


class DontFilter(Odd):
    name = "dont-filter"

    def parse(self, response):
        for _ in range(2):
            yield self.page("echo?same", dont_filter=True, callback=self.parse_echo)
            yield self.page("page/5", callback=self.parse_title)


class Priority(Odd):
    name = "priority"
    custom_settings = {"CONCURRENT_REQUESTS": 1}
    order = 0

    def parse(self, response):
        for n in (-1, 2, 0, 1, 3):
            yield self.page(f"echo?{n}", priority=n, callback=self.parse_order)

    def parse_order(self, response):
        self.order += 1
        yield {"order": self.order, "query": json.loads(response.text)["query"], "priority": response.request.priority}


class Inline(Odd):
    name = "inline"

    async def parse(self, response):
        other = await self.crawler.engine.download_async(self.page("page/2", meta=response.meta))
        yield {"here": title(response), "there": title(other)}


class MetaCopied(Odd):
    name = "meta-copied"

    async def start(self):
        yield self.page("page/1", meta={"name": "ada", "list": [1, {"a": None}], "bytes": b"\0\xff"})

    def parse(self, response):
        yield {**title(response), "name": response.meta.get("name"), "bytes": list(response.meta["bytes"]), "list": response.meta["list"]}
        if "page/1" in response.url:
            yield self.page("page/2", meta=response.meta)
            yield response.request.replace(url=self.base + "page/3")
            yield response.follow("/page/4", meta=dict(response.meta))


class CloseEarly(Odd):
    name = "close-early"
    first = "page/0"

    def parse(self, response):
        yield title(response)
        yield from response.follow_all(css="a")
        if "page/1" in response.url:
            raise CloseSpider("enough")


class ItemCount(Odd):
    name = "item-count"
    first = "page/0"
    custom_settings = {"CLOSESPIDER_ITEMCOUNT": 2}


class Cookies(Odd):
    name = "cookies"

    async def start(self):
        for n in range(3):
            yield self.page(f"echo?{n}", cookies={"who": f"ada{n}"}, meta={"cookiejar": n}, callback=self.parse_echo)
        yield self.page("echo?verbose", cookies=[{"name": "who", "value": "bob"}], headers={"X-Test": "é"}, callback=self.parse_echo)


class Callbacks(Odd):
    name = "callbacks"

    async def start(self):
        yield {"item": "of start"}
        for name in ("generator", "list", "coroutine", "async_generator", "nothing", "one"):
            yield self.page(f"echo?{name}", callback=getattr(self, f"parse_{name}"))
            await asyncio.sleep(0.05)

    def parse_generator(self, response):
        yield {"by": "generator"}

    def parse_list(self, response):
        return [{"by": "list"}, self.page("page/5", callback=self.parse_title)]

    async def parse_coroutine(self, response):
        await asyncio.sleep(0.01)
        return [{"by": "coroutine"}]

    async def parse_async_generator(self, response):
        yield {"by": "async generator"}
        await asyncio.sleep(0.01)
        yield self.page("page/4", callback=self.parse_title)

    def parse_nothing(self, response):
        pass

    def parse_one(self, response):
        return {"by": "one"}


class HandleStatus(Odd):
    name = "handle-status"
    first = "status/404"
    handle_httpstatus_list = [404]

    def parse(self, response):
        yield {"status": response.status}
        yield self.page("status/500", meta={"handle_httpstatus_list": [500]}, callback=self.parse_status)

    def parse_status(self, response):
        yield {"status": response.status}


class Drop:
    def process_item(self, item):
        if item["path"] == "page/4":
            raise DropItem("not wanted")
        return item


class Dropping(Odd):
    name = "dropping"
    custom_settings = {"ITEM_PIPELINES": {Drop: 1}}


class Kwargs(Odd):
    name = "kwargs"

    def parse(self, response):
        yield self.page("page/5", callback=self.parse_kwargs, cb_kwargs={"a": 1, "b": {"c": [True, 2.5]}, "d": b"x"}, flags=["f"])

    def parse_kwargs(self, response, a, b, d):
        yield {**title(response), "a": a, "b": b, "d": d.decode(), "flags": response.request.flags}


class Crawl(CrawlSpider):
    name = "crawl"
    rules = [
        Rule(LinkExtractor(allow=r"/page/[0-3]$"), callback="parse_page", follow=True, cb_kwargs={"rule": "low"}),
        Rule(LinkExtractor(allow=r"/page/4$"), callback="parse_page"),
    ]

    def __init__(self, base, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = [base + "page/0"]

    def parse_page(self, response, rule=None):
        yield {**title(response), "rule": rule, "link_text": response.meta["link_text"]}


class Sitemap(SitemapSpider):
    name = "sitemap"
    sitemap_rules = [("/page/3", "parse_three"), ("/page/", "parse_other")]

    def __init__(self, base, **kwargs):
        super().__init__(**kwargs)
        self.sitemap_urls = [base + "sitemap.xml"]

    def parse_three(self, response):
        yield {"three": title(response)}

    def parse_other(self, response):
        yield {"other": title(response)}


class Login(Odd):
    name = "login"
    first = "login"

    def parse(self, response):
        return scrapy.FormRequest.from_response(response, formdata={"user": "ada"}, callback=self.parse_title)


class Posts(Odd):
    name = "posts"

    def parse(self, response):
        for n in range(2):
            yield JsonRequest(self.base + "echo", data={"n": n}, callback=self.parse_echo)
            yield scrapy.FormRequest(self.base + "echo", formdata={"n": str(n), "text": "é"}, callback=self.parse_echo)
            yield self.page("echo", method="POST", body=b"again", callback=self.parse_echo)


class Refresh(Odd):
    name = "refresh"
    first = "refresh/5"


class Redirected(Odd):
    name = "redirected"

    async def start(self):
        yield self.page("redirect/3", callback=self.parse_redirected, cb_kwargs={"a": 1})

    def parse_redirected(self, response, a):
        yield {**title(response), "a": a, "times": response.meta["redirect_times"], "urls": len(response.meta["redirect_urls"])}


class Paused(Odd):
    name = "paused"
    first = "page/0"

    async def parse(self, response):
        yield title(response)
        for n in range(20):
            yield self.page(f"echo?{n}", callback=self.parse_echo)
        self.crawler.engine.pause()
        asyncio.get_running_loop().call_later(6, self.crawler.engine.unpause)


class Offsite(Odd):
    name = "offsite"
    first = "elsewhere"
    allowed_domains = ["example.com"]


class Robots(Odd):
    name = "robots"
    custom_settings = {"ROBOTSTXT_OBEY": True}

    def parse(self, response):
        yield title(response)
        yield self.page("status/200", callback=self.parse_title)


class Feeding(Odd):
    """Gives itself more to do when it is idle, as spiders do that read a queue."""

    name = "feeding"
    fed = 0

    @classmethod
    def from_crawler(cls, crawler, **kwargs):
        spider = super().from_crawler(crawler, **kwargs)
        crawler.signals.connect(spider.idle, signals.spider_idle)
        return spider

    def idle(self):
        if self.fed < 2:
            self.fed += 1
            self.crawler.engine.crawl(self.page(f"echo?fed{self.fed}", callback=self.parse_echo))
            raise DontCloseSpider


class Labeled(scrapy.Request):
    attributes = (*scrapy.Request.attributes, "label")

    def __init__(self, *args, label=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.label = label


class Subclass(Odd):
    name = "subclass"

    def parse(self, response):
        yield Labeled(self.base + "page/5", label=["blue"], callback=self.parse_label)

    def parse_label(self, response):
        yield {**title(response), "label": response.request.label}


class Slow(Odd):
    name = "slow"
    first = "slow/0"

    def parse(self, response):
        yield title(response)
        for n in range(1, 60):
            yield self.page(f"slow/{n}")


class Scheduled(Odd):
    name = "scheduled"
    first = "page/5"
    custom_settings = {"SCHEDULER": "scrapy.core.scheduler.Scheduler", "DOWNLOAD_DELAY": 3, "AUTOTHROTTLE_ENABLED": True}


class Private(Odd):
    name = "private"

    def parse(self, response):
        yield self.page("page/5", callback=self.__parse)

    def __parse(self, response):
        yield title(response)
