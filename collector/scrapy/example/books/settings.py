"""Settings of a project as `scrapy startproject` makes it."""

BOT_NAME = "books"
SPIDER_MODULES = ["books.spiders"]
NEWSPIDER_MODULE = "books.spiders"

USER_AGENT = "books (+https://example.com/bot)"
ROBOTSTXT_OBEY = True
CONCURRENT_REQUESTS = 8
LOG_LEVEL = "INFO"
TELNETCONSOLE_ENABLED = False
ITEM_PIPELINES = {"books.pipelines.Lines": 300}
