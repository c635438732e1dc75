"""A crawl that is tested: its source, its site, and what was logged."""

import asyncio
import logging

from crawlee.crawlers import ParselCrawler
from testsite import Site

from waggle_collector import v1
from waggle_crawlee import WaggleRequestManager

FAST = v1.RetryPolicy(min_backoff={"nanos": 100_000_000}, max_backoff={"nanos": 200_000_000})


class Log(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append((record.levelname, record.name, record.getMessage()))

    def has(self, text, level=None):
        return any(text in line and level in (None, name) for name, _, line in self.lines)

    def count(self, text):
        return sum(text in line for _, _, line in self.lines)


class Case:
    """A source, a site and what was logged."""

    def __init__(self, server, client, name):
        self.server, self.client, self.source = server, client, name
        self.log = Log()
        self.site = None

    def manager(self, **options):
        return WaggleRequestManager([self.server], self.source, **options)

    async def begin(self, pages, **spec):
        self.site = Site({"/robots.txt": (404, {}, ""), **pages})
        spec.setdefault("retry", FAST)
        await self.client.ApplySources(v1.ApplySourcesRequest(specs=[v1.SourceSpec(id=self.source, **spec)]))
        await self.client.SetQueueRule(v1.SetQueueRuleRequest(rule=v1.QueueRule(
            pattern=f"127.0.0.1:{self.site.server_port}", min_delay={}, max_in_flight=10)))

    def crawler(self, kind=ParselCrawler, links=False, handler=None, **options):
        options.setdefault("request_manager", self.manager())
        crawler = kind(configure_logging=False, **options)
        self.seen = []

        @crawler.router.default_handler
        async def default(context):
            self.seen.append(context.request)
            if handler is not None:
                await handler(context)
            if links:
                await context.enqueue_links()

        return crawler

    async def task(self, path):
        return (await self.client.GetTask(v1.GetTaskRequest(source_id=self.source, url=self.site.url + path))).task

    async def state(self, path):
        task = await self.task(path)
        reason = v1.FailureReason.Name(task.last_error.reason).removeprefix("FAILURE_REASON_") if task.HasField("last_error") else ""
        return v1.TaskState.Name(task.state).removeprefix("TASK_STATE_"), reason

    async def leases_nothing(self):
        """Fails unless the process, whose run has ended, leases nothing any more although tasks are left."""
        await asyncio.sleep(3)
        for _ in range(12):
            tasks = (await self.client.GetSource(v1.GetSourceRequest(id=self.source))).source.status.tasks
            equal(tasks.leased, 0)
            await asyncio.sleep(0.2)
        true(tasks.ready + tasks.scheduled > 0, f"nothing is left to be leased: {tasks}")

    async def submit(self, *paths):
        items = [v1.SubmitItem(source_id=self.source, url=self.site.url + path) for path in paths]
        return await self.client.SubmitTasks(v1.SubmitTasksRequest(items=items))


def equal(got, want):
    if got != want:
        raise AssertionError(f"got {got!r}, want {want!r}")


def true(condition, what):
    if not condition:
        raise AssertionError(what)
