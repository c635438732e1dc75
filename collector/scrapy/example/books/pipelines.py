"""Where items go."""

import json
import os


class Lines:
    """Appends each item to a file of its spider and process, and hands it to the system at once. The lease of a page is settled
    after this, so a killed process loses no item of a page that counts as done."""

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler.spider.name)

    def __init__(self, name):
        self.path = f"{name}-{os.getpid()}.jsonl"

    def open_spider(self):
        self.file = open(self.path, "a")

    def close_spider(self):
        self.file.close()

    def process_item(self, item):
        self.file.write(json.dumps(dict(item)) + "\n")
        self.file.flush()
        return item
