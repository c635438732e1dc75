"""The search: a form that is sent by POST, and the pages of what it finds."""

import scrapy


class Search(scrapy.Spider):
    name = "search"

    def __init__(self, site="http://127.0.0.1:7090", **kwargs):
        super().__init__(**kwargs)
        self.site = site

    async def start(self):
        yield scrapy.Request(f"{self.site}/search", callback=self.parse_form)

    def parse_form(self, response):
        for words in ("bees", "honey"):
            yield scrapy.FormRequest.from_response(
                response, formdata={"q": words}, callback=self.parse_found, errback=self.failed, cb_kwargs={"words": words})

    def parse_found(self, response, words):
        for row in response.css("li::text").getall():
            yield {"words": words, "found": row}

    def failed(self, failure):
        self.logger.error("search failed: %s", failure.value)
