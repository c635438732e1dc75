"""Odd requests: what travels, what is refused, and what becomes of failures."""

import asyncio
import datetime

from case import FAST, equal, true
from crawlee import Request
from testsite import page

from waggle_collector import Failed, v1
from waggle_crawlee import RequestRefused, task_of


async def refused_link(c):
    async def handler(context):
        await context.add_requests(["http://ada:secret@127.0.0.1:1/x", "http://ada:secret@127.0.0.1:1/y", "/b"])

    await c.begin({"/": page("a"), "/b": page("b")})
    await c.crawler(handler=handler).run([c.site.url + "/"])
    equal(c.log.count("was refused and is not crawled"), 1)
    true(c.log.has("2 requests to 127.0.0.1:1 were refused", "WARNING"), "the end does not count them")
    equal(await c.state("/b"), ("DONE", ""))


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


async def start_that_cannot_travel(c):
    await c.begin({})
    for options, text in (({"session_id": "s1"}, "session_id"), ({"user_data": {"big": "x" * (256 << 10)}}, "limit 262144")):
        try:
            await c.crawler().run([Request.from_url(c.site.url + "/", **options)])
        except RequestRefused as error:
            true(text in str(error), error)
        else:
            raise AssertionError("it ran")


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


async def no_session_pool(c):
    await c.begin({"/": (403, {}, "no")})
    await c.crawler(use_session_pool=False).run([c.site.url + "/"])
    equal((await c.state("/"), len(c.site.times("/"))), (("DEAD", "FORBIDDEN"), 1))


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
        v1.SubmitItem(source_id=c.source, url=c.site.url + "/js", payload=b'{"crawlee-js":1,"method":"POST"}'),
        v1.SubmitItem(source_id=c.source, url=c.site.url + "/newer", payload=b'{"crawlee-python":2}'),
        v1.SubmitItem(source_id=c.source, key="no-url", queue="q")]))
    await c.crawler().run()
    equal(await c.state("/"), ("DONE", ""))
    for path, tag in ("/js", "crawlee-js 1"), ("/newer", "crawlee-python 2"):
        task = await c.task(path)
        equal((await c.state(path), len(c.site.times(path))), (("DEAD", "BAD_REQUEST"), 0))
        true(f"the tag {tag}; this package reads crawlee-python 1" in task.last_error.message, task.last_error.message)
    task = (await c.client.GetTask(v1.GetTaskRequest(source_id=c.source, key="no-url", queue="q"))).task
    equal(task.last_error.reason, v1.FAILURE_REASON_BAD_REQUEST)
