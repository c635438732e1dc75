"""The catalog: lists of books over several pages, and a page of each book. Some are shown to a proxy in the country only."""

import scrapy


class Catalog(scrapy.Spider):
    name = "catalog"

    def __init__(self, site="http://127.0.0.1:7090", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = [f"{site}/list/1"]
        self.proxy = site  # the example's shop is a proxy as well

    def parse(self, response):
        for book in response.css("a.book"):
            abroad = "members" in book.attrib["href"]
            yield response.follow(book, callback=self.parse_book, meta={"proxy": self.proxy} if abroad else None)
        yield from response.follow_all(css="a.next")

    def parse_book(self, response):
        yield {"book": response.css("h1::text").get(), "price": float(response.css(".price::text").get())}
