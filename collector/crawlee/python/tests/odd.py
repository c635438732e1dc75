"""Odd crawls of Crawlee on a dispatcher, each a function. Prints a line for each, and fails if one does.

python odd.py SERVER NAME...    those with these names
python odd.py SERVER 2/3        the second third of all
"""

import asyncio
import contextlib
import datetime
import logging
import sys
import time
import traceback

from crawlee import ConcurrencySettings, Request
from crawlee.crawlers import BeautifulSoupCrawler, HttpCrawler, ParselCrawler
from crawlee.request_loaders import RequestList, ThrottlingRequestManager
from crawlee.storages import RequestQueue
from testsite import Site, page

from waggle_collector import AsyncClient, Failed, v1
from waggle_crawlee import RequestRefused, SourceMissing, WaggleRequestManager, task_of

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

    async def submit(self, *paths):
        items = [v1.SubmitItem(source_id=self.source, url=self.site.url + path) for path in paths]
        return await self.client.SubmitTasks(v1.SubmitTasksRequest(items=items))


def equal(got, want):
    if got != want:
        raise AssertionError(f"got {got!r}, want {want!r}")


def true(condition, what):
    if not condition:
        raise AssertionError(what)


async def missing_source(c):
    try:
        await c.crawler().run(["http://127.0.0.1:1/"])
    except SourceMissing as error:
        equal(str(error), f"source {c.source} does not exist; create it by: waggle source create {c.source}")
    else:
        raise AssertionError("it ran")


async def missing_source_without_requests(c):
    try:
        await c.crawler().run()
    except SourceMissing:
        return
    raise AssertionError("it ran")


async def deleted_source(c):
    await c.begin({"/": page("a")})
    began = asyncio.Event()

    async def slow(context):
        began.set()
        await asyncio.sleep(3)

    run = asyncio.create_task(c.crawler(handler=slow).run([c.site.url + "/"]))
    await began.wait()
    await c.client.DeleteSources(v1.DeleteSourcesRequest(ids=[c.source]))
    try:
        await run
    except SourceMissing as error:
        true(c.source in str(error), error)
    else:
        raise AssertionError("it ended without an error")


async def second_start(c):
    await c.begin({"/": page("a", "/gone"), })
    await c.crawler(links=True).run([c.site.url + "/"])
    equal(await c.state("/"), ("DONE", ""))
    equal(await c.state("/gone"), ("DEAD", "NOT_FOUND"))
    await c.crawler(links=True).run([c.site.url + "/"])
    true(c.log.has("all requests are known already (DONE 1, DEAD 1)", "INFO"), "it does not say that nothing was left")
    equal(len(c.site.times("/")), 1)


async def second_run(c):
    await c.begin({"/": page("a"), "/b": page("b")})
    crawler = c.crawler()
    await crawler.run([c.site.url + "/"])
    await crawler.run([c.site.url + "/b"])
    equal((await c.state("/"), await c.state("/b")), (("DONE", ""), ("DONE", "")))


async def refused_link(c):
    async def handler(context):
        await context.add_requests(["http://ada:secret@127.0.0.1:1/x", "http://ada:secret@127.0.0.1:1/y", "/b"])

    await c.begin({"/": page("a"), "/b": page("b")})
    await c.crawler(handler=handler).run([c.site.url + "/"])
    equal(c.log.count("was refused and is not crawled"), 1)
    true(c.log.has("2 requests to 127.0.0.1:1 were refused", "WARNING"), "the end does not count them")
    equal(await c.state("/b"), ("DONE", ""))


async def limited_links(c):
    await c.begin({"/": page("a", *(f"/l{i}" for i in range(300)))}, max_outstanding=1)
    await c.crawler(links=True, max_requests_per_crawl=5).run([c.site.url + "/"])
    true(c.log.has("was refused and is not crawled", "WARNING"), c.log.lines)


async def request_that_cannot_travel(c):
    async def handler(context):
        request = Request.from_url(c.site.url + "/b")  # which checks what it is given
        request.user_data["when"] = datetime.date(2026, 1, 2)
        await context.add_requests([request])

    await c.begin({"/": page("a"), "/b": page("b")})
    await c.crawler(handler=handler).run([c.site.url + "/"])
    task = await c.task("/")
    equal(await c.state("/"), ("DEAD", "HANDLER"))
    true(f"{c.site.url}/b: user_data['when'] is of type date" in task.last_error.message, task.last_error.message)
    true(c.log.has("user_data['when'] is of type date", "ERROR"), "not logged")


async def session_id_cannot_travel(c):
    await c.begin({})
    try:
        await c.crawler().run([Request.from_url(c.site.url + "/", session_id="s1")])
    except RequestRefused as error:
        true("session_id" in str(error), error)
    else:
        raise AssertionError("it ran")


async def idle_start(c):
    await c.begin({f"/{i}": page(i) for i in range(20)})
    manager = c.manager()
    calls = []
    for name in "is_empty", "is_finished", "fetch_next_request":
        def counted(call=getattr(manager, name)):
            async def count(*args):
                calls.append(time.monotonic())
                return await call(*args)
            return count
        setattr(manager, name, counted())
    crawler = c.crawler(request_manager=manager, keep_alive=True)
    run = asyncio.create_task(crawler.run())
    await asyncio.sleep(3)
    began, n = time.monotonic(), len(calls)
    await asyncio.sleep(3)
    rate = (len(calls) - n) / (time.monotonic() - began)
    late = []
    for i in range(20):
        await asyncio.sleep(0.17)
        sent = time.time()
        await c.submit(f"/{i}")
        while not c.site.times(f"/{i}"):
            await asyncio.sleep(0.005)
        late.append(c.site.times(f"/{i}")[0] - sent)
    began = time.monotonic()
    crawler.stop()
    await run
    stopped = time.monotonic() - began
    true(max(late) < 0.3, f"late by {max(late)} s")
    true(rate < 60, f"{rate} calls a second")
    true(stopped < 3, f"{stopped} s to stop")
    return f"{max(late) * 1000:.0f} ms at most, {sorted(late)[10] * 1000:.0f} ms in the middle; {rate:.0f} calls a second while idle; stopped in {stopped:.1f} s"


async def handler_error(c):
    async def handler(context):
        retries.append(context.request.retry_count)
        raise KeyError("boom")

    retries, failed = [], []
    await c.begin({"/": page("a")})
    crawler = c.crawler(handler=handler)

    @crawler.failed_request_handler
    async def gave_up(context, error):
        failed.append(error)

    await crawler.run([c.site.url + "/"])
    equal(await c.state("/"), ("DEAD", "HANDLER"))
    equal((retries, len(failed)), ([0, 1, 2, 3], 1))


async def server_error(c):
    failed = []
    await c.begin({"/": (500, {}, "no")}, retry=v1.RetryPolicy(max_throttled=3, min_backoff=FAST.min_backoff, max_backoff=FAST.max_backoff))
    crawler = c.crawler()

    @crawler.failed_request_handler
    async def gave_up(context, error):
        failed.append(error)

    await crawler.run([c.site.url + "/"])
    equal(await c.state("/"), ("DEAD", "SERVER_ERROR"))
    equal((len(c.site.times("/")), len(failed)), (3, 1))


async def no_retry(c):
    async def handler(context):
        raise KeyError("boom")

    await c.begin({"/": page("a")})
    await c.crawler(handler=handler).run([Request.from_url(c.site.url + "/", no_retry=True)])
    equal((await c.state("/"), len(c.site.times("/"))), (("DEAD", "HANDLER"), 1))


async def no_retry_of_a_host(c):
    await c.begin({"/": (500, {}, "no")})
    await c.crawler().run([Request.from_url(c.site.url + "/", method="POST", no_retry=True)])
    equal((await c.state("/"), len(c.site.times("/"))), (("DEAD", "OTHER"), 1))


async def max_request_retries(c):
    failed = []
    await c.begin({"/": lambda n: (500, {}, "no") if n < 3 else page("a"), "/b": page("b")})

    async def handler(context):
        if context.request.url.endswith("/b"):
            raise KeyError("boom")

    crawler = c.crawler(handler=handler, max_request_retries=0)

    @crawler.failed_request_handler
    async def gave_up(context, error):
        failed.append(context.request.url)

    await crawler.run([c.site.url + "/", c.site.url + "/b"])
    equal((await c.state("/"), len(c.site.times("/"))), (("DONE", ""), 3))  # the server's failures are Waggle's
    equal((await c.state("/b"), failed), (("DEAD", "HANDLER"), [c.site.url + "/b"]))


async def closed(c):
    await c.begin({"/": page("a"), "/b": page("b")})
    manager = c.manager()
    crawler = c.crawler(request_manager=manager, keep_alive=True)
    run = asyncio.create_task(crawler.run([c.site.url + "/"]))
    while not c.site.times("/"):
        await asyncio.sleep(0.05)
    crawler.stop()
    await run
    await manager.close()
    collectors = (await c.client.ListCollectors(v1.ListCollectorsRequest())).collectors
    equal([one.state for one in collectors if one.info.id.startswith(c.source)], [v1.COLLECTOR_STATE_ENDED])


async def own_reason(c):
    async def handler(context):
        raise Failed(v1.FAILURE_REASON_PARSE, "no price", permanent=True)

    await c.begin({"/": page("a")})
    await c.crawler(handler=handler).run([c.site.url + "/"])
    equal((await c.state("/"), len(c.site.times("/"))), (("DEAD", "PARSE"), 1))


async def replacement(c):
    await c.begin({"/": (500, {}, "no"), "/b": page("b")})
    crawler = c.crawler()

    @crawler.error_handler
    async def replace(context, error):
        return Request.from_url(c.site.url + "/b")

    await crawler.run([c.site.url + "/"])
    equal(await c.state("/b"), ("DONE", ""))
    equal((await c.state("/"), len(c.site.times("/"))), (("DEAD", "OTHER"), 1))


async def throttled(c):
    await c.begin({"/": lambda n: (429, {"Retry-After": "1"}, "") if n == 1 else page("a")})
    await c.crawler().run([c.site.url + "/"])
    first, second = c.site.times("/")
    true(second - first >= 1, f"again after {second - first} s")
    true(c.log.has("answers 429, Retry-After: 1 s", "INFO"), "not logged")
    equal(c.log.count("session"), 0)


async def unavailable(c):
    await c.begin({"/": lambda n: (503, {"Retry-After": "2"}, "") if n == 1 else page("a")})
    await c.crawler().run([c.site.url + "/"])
    first, second = c.site.times("/")
    true(second - first >= 2, f"again after {second - first} s")


async def blocked_session(c):
    await c.begin({"/": (403, {}, "no")})
    crawler = c.crawler(keep_alive=True)
    run = asyncio.create_task(crawler.run([c.site.url + "/"]))
    await asyncio.sleep(2)
    crawler.stop()
    await run
    equal((await c.state("/"), len(c.site.times("/"))), (("SCHEDULED", "FORBIDDEN"), 1))


async def robots(c):
    await c.begin({"/robots.txt": (200, {}, "User-agent: *\nDisallow: /private\nCrawl-delay: 1\n"), "/": page("a", "/b"), "/b": page("b", "/c"), "/c": page("c", "/d"), "/d": page("d")})
    await c.crawler(respect_robots_txt_file=True, links=True).run([c.site.url + "/"])
    await c.submit("/private")
    await c.crawler(respect_robots_txt_file=True).run()
    equal((await c.state("/private"), len(c.site.times("/private"))), (("DEAD", "ROBOTS_DENIED"), 0))
    times = sorted(at for path in ("/", "/b", "/c", "/d") for at in c.site.times(path))
    gaps = [after - before for before, after in zip(times, times[1:])]
    true(gaps[2] >= 0.9, gaps)  # what was handed out before the first report does not wait
    return "starts " + ", ".join(f"{gap:.2f}" for gap in gaps) + " s apart"


async def redirect_off_strategy(c):
    await c.begin({"/": page("a", "/away"), "/away": (302, {"Location": f"http://localhost:{0}/b"}, "")})
    c.site.pages["/away"] = (302, {"Location": f"http://localhost:{c.site.server_port}/b"}, "")
    c.site.pages["/b"] = page("b")
    await c.crawler(links=True).run([c.site.url + "/"])
    equal(await c.state("/away"), ("DEAD", "REDIRECT"))


async def form(c):
    async def handler(context):
        if context.request.label == "start":
            await context.add_requests([
                Request.from_url(c.site.url + "/form", method="POST", payload=body, label="found", headers={"x-a": "1"},
                                 user_data={"deep": {"n": [1, 2.5, None, True]}}, use_extended_unique_key=True)
                for body in (b"q=1", b"\xff\x00", "q=ä".encode())])
        else:
            got.append((context.request.method, context.request.payload, context.request.headers["x-a"], context.request.user_data["deep"]))

    got = []
    await c.begin({"/": page("a"), "/form": page("found")})
    crawler = c.crawler(handler=handler)
    crawler.router.handler("found")(handler)
    crawler.router.handler("start")(handler)
    await crawler.run([Request.from_url(c.site.url + "/", label="start")])
    equal(sorted(body for _, method, path, _, body in c.site.asked if path == "/form" and method == "POST"),
          sorted([b"q=1", b"\xff\x00", "q=ä".encode()]))
    equal({one[1] for one in got}, {b"q=1", b"\xff\x00", "q=ä".encode()})
    equal(got[0][2:], ("1", {"n": [1, 2.5, None, True]}))


async def depth(c):
    await c.begin({f"/{i}": page(i, f"/{i + 1}") for i in range(5)})
    await c.crawler(links=True, max_crawl_depth=2).run([c.site.url + "/0"])
    equal([len(c.site.times(f"/{i}")) for i in range(5)], [1, 1, 1, 0, 0])


async def always_enqueue(c):
    await c.begin({"/": page("a")})
    await c.crawler().run([Request.from_url(c.site.url + "/", always_enqueue=True) for _ in range(3)])
    equal(len(c.site.times("/")), 3)


async def limit(c):
    await c.begin({"/": page("a", *(f"/{i}" for i in range(50))), **{f"/{i}": page(i) for i in range(50)}})
    await c.crawler(links=True, max_requests_per_crawl=10).run([c.site.url + "/"])
    true(10 <= len(c.seen) <= 25, len(c.seen))
    await c.crawler(links=True).run()
    equal(sum(len(c.site.times(f"/{i}")) > 0 for i in range(50)), 50)


async def hold(c):
    await c.begin({"/": page("a")})
    target = v1.HoldTarget(source_id=c.source)
    await c.client.SetHolds(v1.SetHoldsRequest(targets=[target], by="ada", reason="they asked"))
    run = asyncio.create_task(c.crawler().run([c.site.url + "/"]))
    await asyncio.sleep(8)
    equal(c.log.count("nothing to crawl now"), 1)
    true(c.log.has("by ada (they asked)", "INFO"), [line for line in c.log.lines if "nothing to crawl" in line[2]])
    await c.client.LiftHolds(v1.LiftHoldsRequest(targets=[target], by="ada"))
    await run
    equal(await c.state("/"), ("DONE", ""))


async def abort_on_error(c):
    async def handler(context):
        raise KeyError("boom")

    await c.begin({"/": page("a"), "/b": page("b")})
    await c.crawler(handler=handler, abort_on_error=True, concurrency_settings=ConcurrencySettings(
        min_concurrency=1, desired_concurrency=1, max_concurrency=1)).run([c.site.url + "/", c.site.url + "/b"])
    true((await c.state("/"))[0] != "DONE", "DONE")


async def tandem(c):
    await c.begin({"/": page("a", "/b"), "/b": page("b")})
    manager = await RequestList([c.site.url + "/"]).to_tandem(c.manager())
    await c.crawler(links=True, request_manager=manager).run()
    equal((await c.state("/"), await c.state("/b")), (("DONE", ""), ("DONE", "")))


async def throttling_above(c):
    await c.begin({"/": page("a")})
    above = ThrottlingRequestManager(c.manager(), domains=["127.0.0.1"], request_manager_opener=RequestQueue.open)
    try:
        await c.crawler(request_manager=above).run()
    except TypeError as error:
        true("ThrottlingRequestManager" in str(error), error)
    else:
        raise AssertionError("it ran")


async def two_in_a_process(c):
    await c.begin({"/": page("a", *(f"/{i}" for i in range(50))), **{f"/{i}": page(i) for i in range(50)}})
    one, two = c.crawler(links=True), c.crawler(links=True)
    await asyncio.gather(one.run([c.site.url + "/"]), two.run([c.site.url + "/"]))
    equal([len(c.site.times(f"/{i}")) for i in range(50)], [1] * 50)


async def other_crawlers(c):
    await c.begin({"/": page("a", "/b"), "/b": page("b")})
    await c.crawler(HttpCrawler).run([c.site.url + "/"])
    await c.crawler(BeautifulSoupCrawler, links=True).run([Request.from_url(c.site.url + "/", unique_key="again")])
    equal(await c.state("/b"), ("DONE", ""))


async def fence(c):
    async def handler(context):
        tasks.append(task_of(context.request))

    tasks = []
    await c.begin({"/": page("a")})
    await c.crawler(handler=handler).run([c.site.url + "/"])
    true(tasks[0].fence > 0 and tasks[0].id == (await c.task("/")).id, tasks)


async def foreign_task(c):
    await c.begin({"/": page("a")})
    await c.client.SubmitTasks(v1.SubmitTasksRequest(items=[
        v1.SubmitItem(source_id=c.source, url=c.site.url + "/", payload=b"\x00not json"),
        v1.SubmitItem(source_id=c.source, key="no-url", queue="q")]))
    await c.crawler().run()
    equal(await c.state("/"), ("DONE", ""))
    task = (await c.client.GetTask(v1.GetTaskRequest(source_id=c.source, key="no-url", queue="q"))).task
    equal(task.last_error.reason, v1.FAILURE_REASON_BAD_REQUEST)


async def no_dispatcher(c):
    run = asyncio.create_task(c.crawler(request_manager=WaggleRequestManager(["127.0.0.1:9"], "x")).run(["http://127.0.0.1:1/"]))
    ticks = 0
    for _ in range(60):
        began = time.monotonic()
        await asyncio.sleep(0.05)
        ticks += time.monotonic() - began < 0.2
    run.cancel()
    with contextlib.suppress(BaseException):
        await run
    true(ticks >= 55, "the loop was blocked")
    equal(c.log.count("does not serve"), 1)
    return f"{sum(name.startswith('waggle') for _, name, _ in c.log.lines)} lines in 3 s"


CASES = [value for value in list(globals().values()) if asyncio.iscoroutinefunction(value) and value.__module__ == __name__]


async def main():
    server, names = sys.argv[1], sys.argv[2:]
    if names and "/" in names[0]:
        part, parts = map(int, names[0].split("/"))
        names = [case.__name__ for case in CASES[part - 1::parts]]
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    failed = 0
    async with AsyncClient([server]) as client:
        for case in CASES:
            if names and case.__name__ not in names:
                continue
            c = Case(server, client, "odd." + case.__name__.replace("_", "-"))
            root.handlers = [c.log]
            began = time.monotonic()
            try:
                note = await asyncio.wait_for(case(c), 60)
                print(f"ok   {case.__name__} ({time.monotonic() - began:.1f} s){': ' + note if note else ''}", flush=True)
            except BaseException as error:
                failed += 1
                print(f"FAIL {case.__name__}: {type(error).__name__}: {error}", flush=True)
                traceback.print_exc()
                print(*(f"  {level} {name} {line[:300]}" for level, name, line in c.log.lines), sep="\n")
    sys.exit(failed > 0)


asyncio.run(main())
