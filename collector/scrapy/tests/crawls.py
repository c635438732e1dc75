"""One process of a spider, with a source and a host of its own. Site and dispatcher are the same for all."""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time

from google.protobuf.duration_pb2 import Duration
from oddsite import Site
from waggle_collector import Client, v1

HERE = os.path.dirname(os.path.abspath(__file__))
SERVER = sys.argv[1]
SITE = Site()
CLIENT = Client([SERVER])
HOSTS = itertools.count(1)
LIMIT = 60


class Crawl:
    """One process of a spider, with a source of its own, and a host of its own on the one site."""

    def __init__(self, name, settings=None, waggle=True, source=None, host=None, server=SERVER):
        n = next(HOSTS)
        self.host = host or f"127.0.{n // 250 + 1}.{n % 250 + 1}:{SITE.server_address[1]}"
        self.source = source or f"{name}-{n}"
        self.settings = dict(settings or {})
        if waggle:
            self.settings |= {"ADDONS": {"waggle_scrapy.AddOn": 100}, "WAGGLE_SERVERS": [server], "WAGGLE_SOURCE": self.source}
        self.dir = tempfile.mkdtemp()
        self.name = name
        self.waggle = waggle

    def create(self, hosts=None, **retry):
        CLIENT.SetQueueRule(v1.SetQueueRuleRequest(
            rule=v1.QueueRule(pattern=self.host, min_delay=Duration(), max_in_flight=16), by="test", reason="test"))
        CLIENT.CreateSource(v1.CreateSourceRequest(spec=v1.SourceSpec(
            id=self.source, follow=v1.Follow(allow_hosts=hosts or [self.host, "127.0.0.1:1"]),
            retry=v1.RetryPolicy(min_backoff=Duration(nanos=10**8), max_backoff=Duration(nanos=10**8), **{"max_throttled": 3, **retry}))))
        return self

    def start(self):
        with open(os.path.join(self.dir, "log"), "w") as log:
            self.process = subprocess.Popen(
                [sys.executable, os.path.join(HERE, "runodd.py"), self.name, f"http://{self.host}/", os.path.join(self.dir, "items"),
                 json.dumps(self.settings)], cwd=self.dir, stdout=log, stderr=subprocess.STDOUT)
        return self

    @property
    def log(self):
        with open(os.path.join(self.dir, "log")) as log:
            return log.read()

    def until(self, text):
        until(lambda: text in self.log, text)

    def wait(self):
        try:
            self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.name} has not ended within {LIMIT} s\n{self.log}") from None
        self.code = self.process.returncode
        return self

    def run(self):
        return self.start().wait()

    def items(self):
        path = os.path.join(self.dir, "items")
        return sorted(line.strip() for line in open(path)) if os.path.exists(path) else []

    def status(self):
        return CLIENT.GetSource(v1.GetSourceRequest(id=self.source)).source.status

    def failures(self):
        """The reasons of the tasks that are DEAD, by path."""
        tasks = CLIENT.ListTasks(v1.ListTasksRequest(
            filter=v1.Filter(source_id=self.source, states=[v1.TASK_STATE_DEAD]), page_size=1000)).tasks
        return {task.url.split("/", 3)[3]: v1.FailureReason.Name(task.last_error.reason).removeprefix("FAILURE_REASON_") for task in tasks}

    def requests(self):
        return sum(count for (host, _), count in list(SITE.asked.items()) if host == self.host)

    def asked(self, path):
        return SITE.asked[self.host, path]


def until(condition, what):
    end = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {LIMIT} s: {what}")
        time.sleep(0.05)
