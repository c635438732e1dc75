"""Odd runs: how a crawl begins, idles, is held and ends."""

import asyncio
import contextlib
import time
import types
import unittest.mock

from case import FAST, equal, true
from crawlee import ConcurrencySettings, Request
from crawlee.crawlers import BeautifulSoupCrawler, HttpCrawler
from crawlee.proxy_configuration import ProxyConfiguration
from crawlee.request_loaders import RequestList, ThrottlingRequestManager
from crawlee.storages import RequestQueue
from testsite import page

from waggle_collector import v1
from waggle_crawlee import SourceMissing, WaggleRequestManager
from waggle_crawlee._crawl import Crawl


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
    true(c.log.has("all requests are known already (DONE 1, DEAD 1). To crawl pages again", "INFO"), "not logged that nothing was left")
    equal(len(c.site.times("/")), 1)
    await c.client.ApplySources(v1.ApplySourcesRequest(specs=[v1.SourceSpec(id=c.source, retry=FAST, revisit_after={"seconds": 600})]))
    await c.crawler(links=True).run([c.site.url + "/"])
    true(c.log.has("(DONE 1, DEAD 1). Pages are crawled again when they are added 600 s after their last crawl"), "not logged that pages are crawled again")


async def second_run(c):
    await c.begin({"/": page("a"), "/b": page("b")})
    crawler = c.crawler()
    with unittest.mock.patch("waggle_crawlee._manager.refuse_throttling") as check:
        await crawler.run([c.site.url + "/"])
        await crawler.run([c.site.url + "/b"])
    equal(check.call_count, 2)  # reading the frame of a caller is slow
    equal((await c.state("/"), await c.state("/b")), (("DONE", ""), ("DONE", "")))


async def limited_links(c):
    await c.begin({"/": page("a", *(f"/l{i}" for i in range(300)))}, max_outstanding=1)
    await c.crawler(links=True, max_requests_per_crawl=5).run([c.site.url + "/"])
    true(c.log.has("was refused and is not crawled", "WARNING"), c.log.lines)


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
    equal((await c.state("/"), c.log.count("the hold is lifted, the crawl goes on")), (("DONE", ""), 1))


FOUR = ConcurrencySettings(min_concurrency=4, desired_concurrency=4, max_concurrency=4)


def fails_once():
    """A handler that fails for the first page."""
    async def handler(context):
        failed.append(context.request.url)
        if len(failed) == 1:
            raise KeyError("boom")

    failed = []
    return handler


async def abort_on_error(c):
    await c.begin({f"/{i}": page(i) for i in range(30)})
    crawler = c.crawler(handler=fails_once(), abort_on_error=True, concurrency_settings=FOUR)
    await crawler.run([c.site.url + f"/{i}" for i in range(30)])
    await c.leases_nothing()
    await crawler.run()
    equal({(await c.state(f"/{i}"))[0] for i in range(30)}, {"DONE"})


async def failed_run(c):
    await c.begin({f"/{i}": page(i) for i in range(30)})
    crawler = c.crawler(handler=fails_once(), concurrency_settings=FOUR)

    @crawler.error_handler
    async def fails(context, error):
        raise ValueError("boom")

    try:
        await crawler.run([c.site.url + f"/{i}" for i in range(30)])
    except Exception as error:
        true("error handler" in str(error), error)
    else:
        raise AssertionError("it ended without an error")
    await c.leases_nothing()
    await crawler.run()
    equal({(await c.state(f"/{i}"))[0] for i in range(30)}, {"DONE"})


async def failed_proxy(c):
    async def proxy(session_id=None, request=None):
        asked.append(request)
        if len(asked) == 1:
            raise ValueError("boom")

    asked = []
    await c.begin({"/": page("a"), "/b": page("b")})
    crawler = c.crawler(proxy_configuration=ProxyConfiguration(new_url_function=proxy))
    try:
        await crawler.run([c.site.url + "/", c.site.url + "/b"])
    except Exception as error:
        true("new_url_function" in str(error), error)
    else:
        raise AssertionError("it ended without an error")
    await crawler.run()
    equal((await c.state("/"), await c.state("/b")), (("DONE", ""), ("DONE", "")))


async def tandem(c):
    await c.begin({"/": page("a", "/b"), "/b": page("b")})
    manager = await RequestList([c.site.url + "/"]).to_tandem(c.manager())
    await c.crawler(links=True, request_manager=manager).run()
    equal((await c.state("/"), await c.state("/b")), (("DONE", ""), ("DONE", "")))


async def lasting_hold(c):
    """What holds a crawl is logged again if it lasts longer than it was to: here 10 s."""
    class Client:
        async def Explain(self, request, timeout):
            until = now[0] + 10 if now[0] < 1020 else 1030
            return v1.ExplainResponse(gates=[v1.ExplainedGate(gate=v1.Gate(kind=v1.GATE_KIND_HOST_BLOCKED, until={"seconds": until}))])

    now = [1000]
    clock = types.SimpleNamespace(monotonic=lambda: now[0], time=lambda: now[0])
    with unittest.mock.patch("waggle_crawlee._crawl.time", clock):
        crawl = Crawl(Client(), c.source, None)
        lines = []
        for now[0] in 1000, 1009, 1011, 1020, 1022, 1030, 1033, 1043, 1044:
            await crawl._explain(v1.SourceStatus(outstanding=1))
            lines.append(c.log.count("nothing to crawl now"))
    equal(lines, [1, 1, 2, 2, 3, 3, 4, 5, 5])


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
