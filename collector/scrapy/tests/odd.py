"""Odd spiders against a real site and a real dispatcher: each gives the items that it gives without Waggle, or is refused by name.

odd.py SERVER [TEST...]. The environment has the packages in its PYTHONPATH."""

import concurrent.futures
import signal
import sys
import threading
import time
import unittest

import scrapy
from crawls import CLIENT, SITE, Crawl, until
from google.protobuf.timestamp_pb2 import Timestamp
from scrapy.core.scheduler import BaseScheduler
from scrapy.utils.test import get_crawler
from units import Units
from waggle_collector import v1
from waggle_scrapy import Scheduler


class Odd(unittest.TestCase):
    maxDiff = 4000

    def same(self, name, items=None, dead=None, settings=None, **retry):
        """Runs a spider with and without Waggle: both give the same items, so many of them."""
        plain = Crawl(name, settings, waggle=False).run()
        crawl = Crawl(name, settings).create(**retry).run()
        if items is not None:
            self.assertEqual(len(crawl.items()), items, crawl.log)
        self.assertEqual([one.replace(plain.host, "HOST") for one in plain.items()],
                         [one.replace(crawl.host, "HOST") for one in crawl.items()], crawl.log)
        self.assertEqual(crawl.code, 0, crawl.log)
        self.assertEqual(crawl.failures(), dead or {}, crawl.log)
        self.assertEqual(crawl.status().tasks.leased, 0)
        return crawl

    def refused(self, name, *texts):
        """Runs a spider with a request that cannot travel: that is logged, and its page is no success."""
        crawl = Crawl(name).create(max_attempts=1).run()
        for text in texts:
            self.assertIn(text, crawl.log)
        return crawl

    def test_interface(self):
        """The tests of Scrapy's test_scheduler_base.py that apply; those of single calls want answers at once, and False for duplicates."""
        self.assertTrue(issubclass(Scheduler, BaseScheduler))
        self.assertIsInstance(Scheduler.from_crawler(get_crawler()), BaseScheduler)

    def test_plain(self):
        self.same("plain", 6)

    def test_dont_filter(self):
        self.same("dont-filter", 3)

    def test_priority(self):
        crawl = self.same("priority", 5)
        self.assertIn('{"order": 1, "query": "3", "priority": 3}', crawl.items())

    def test_errback(self):
        self.same("errback", 5, {"status/404": "NOT_FOUND", "status/403": "FORBIDDEN", "": "CONNECT"}, max_throttled=1)

    def test_inline(self):
        self.same("inline", 1)

    def test_meta_copied(self):
        self.same("meta-copied", 4)

    def test_retry(self):
        crawl = self.same("retry", 1)
        self.assertEqual(crawl.asked("/captcha/1"), 2)

    def test_again(self):
        self.same("again", 1)

    def test_cookies(self):
        self.same("cookies", 4)

    def test_callbacks(self):
        self.same("callbacks", 8)

    def test_handle_status(self):
        self.same("handle-status", 2)

    def test_dropping(self):
        self.same("dropping", 1)

    def test_kwargs(self):
        self.same("kwargs", 1)

    def test_crawl_spider(self):
        self.same("crawl", 4)

    def test_sitemap_spider(self):
        self.same("sitemap", 2)

    def test_login(self):
        crawl = self.same("login", 1)
        self.assertIn("home of ada", crawl.items()[0])

    def test_posts(self):
        self.same("posts", 5)

    def test_refresh(self):
        self.same("refresh", 1)

    def test_redirected(self):
        self.same("redirected", 1)

    def test_loop(self):
        self.same("loop", 0, {"loop/3": "REDIRECT"})

    def test_flaky(self):
        self.same("flaky", 1)

    def test_subclass(self):
        self.same("subclass", 1)

    def test_feeding(self):
        self.same("feeding", 4)

    def test_offsite(self):
        self.same("offsite", 1)

    def test_private_callback(self):
        self.same("private", 1)

    def test_robots(self):
        crawl = self.same("robots", 1, {"status/200": "ROBOTS_DENIED"})
        self.assertEqual(crawl.asked("/status/200"), 0)

    @unittest.skipUnless(hasattr(scrapy.signals, "robots_parsed"), "this Scrapy does not read Crawl-delay")
    def test_crawl_delay(self):
        crawl, other = Crawl("robots").create(), Crawl("plain").create()
        due = Timestamp(seconds=int(time.time()) + 3600)  # it keeps the queue
        CLIENT.SubmitTasks(v1.SubmitTasksRequest(items=[v1.SubmitItem(source_id=other.source, url=f"http://{crawl.host}/", due_time=due)]))
        crawl.run()
        queue = CLIENT.GetQueue(v1.GetQueueRequest(name=crawl.host)).queue
        self.assertEqual(queue.queue_delay.ToMilliseconds(), 300)

    def test_breaking_pipeline(self):
        crawl = Crawl("breaking-pipeline").create(max_attempts=2).run()
        self.assertEqual((crawl.items(), crawl.failures()), ([], {"page/5": "HANDLER"}), crawl.log)
        self.assertEqual(crawl.asked("/page/5"), 2)
        self.assertIn("/page/5 failed at attempt 2: HANDLER: pipeline: OSError: disk full; it is tried again", crawl.log)

    def test_raising(self):
        crawl = Crawl("raising").create(max_attempts=2).run()
        self.assertEqual(crawl.failures(), {"page/4": "HANDLER"}, crawl.log)
        self.assertIn('"path": "page/5"', "".join(crawl.items()))

    def test_lambda(self):
        crawl = self.refused("lambda", "page/5 cannot become a task: callback Lambda.parse.<locals>.<lambda> of type function has no name")
        self.assertEqual(crawl.failures(), {"page/4": "HANDLER"}, crawl.log)

    def test_bad_meta(self):
        crawl = self.refused("bad-meta", "page/5 cannot become a task: meta['thing']['deep'] is of type object")
        self.assertEqual(crawl.failures(), {"page/4": "HANDLER"}, crawl.log)

    def test_bad_start(self):
        crawl = self.refused("bad-start", "page/5 cannot become a task: cb_kwargs['numbers'] has the key 1 of type int")
        self.assertNotEqual(crawl.code, 0, crawl.log)

    def test_circular(self):
        crawl = self.refused("circular", "cannot become a task: meta contains itself or is too deep")
        self.assertNotEqual(crawl.code, 0, crawl.log)
        self.assertNotIn("secret", crawl.log)

    def test_oddly(self):
        self.same("oddly", 1)

    def test_changing(self):
        crawl = self.same("changing", 2)
        self.assertEqual((crawl.asked("/echo"), crawl.status().tasks.done), (2, 2))

    def test_endless(self):
        crawl = Crawl("endless").create(max_attempts=2).run()
        self.assertEqual((crawl.failures(), crawl.asked("/page/4")), ({"page/4": "OTHER"}, 42), crawl.log)

    def test_no_copy(self):
        crawl = Crawl("no-copy").create().run()
        self.assertEqual(crawl.failures(), {"page/4": "OTHER"}, crawl.log)
        self.assertIn("a middleware that returns another request must return a copy", crawl.log)

    def test_paused(self):
        crawl = Crawl("paused").create().start()
        until(lambda: crawl.status().tasks.leased > 3, "tasks are leased for the paused engine")
        until(lambda: crawl.status().tasks.leased < 2, "tasks are given back")
        self.assertLess(crawl.requests(), 10, "it is paused yet")
        self.assertEqual((crawl.wait().code, len(crawl.items())), (0, 21), crawl.log)

    def test_failed_links(self):
        crawl = Crawl("failed-links").create().run()
        self.assertEqual((crawl.code, len(crawl.items()), crawl.failures()), (0, 1, {"status/404": "NOT_FOUND", "status/403": "FORBIDDEN"}), crawl.log)
        self.assertIn("1 links refused: 127.9.9.9 is not followed", crawl.log)
        self.assertIn(f"2 pages are DEAD: waggle task list --source {crawl.source} --state dead", crawl.log)
        tasks = CLIENT.ListTasks(v1.ListTasksRequest(filter=v1.Filter(source_id=crawl.source), page_size=1000)).tasks
        self.assertEqual({task.url.split("/", 3)[3]: task.depth for task in tasks}, {"status/404": 0, "status/403": 1})

    def test_close_early(self):
        crawl = Crawl("close-early").create().run()
        self.assertEqual((crawl.code, crawl.status().tasks.leased, len(crawl.items())), (0, 0, 2), crawl.log)
        again = Crawl("plain", source=crawl.source, host=crawl.host).run()
        self.assertEqual(len(again.items()), 4, again.log)
        self.assertEqual(again.asked("/page/1"), 1)

    def test_item_count(self):
        crawl = Crawl("item-count").create().run()
        self.assertEqual(crawl.code, 0, crawl.log)
        until(lambda: crawl.status().tasks.leased == 0, crawl.log)
        self.assertIn("closespider_itemcount", crawl.log)

    def test_throttled(self):
        crawl = self.same("throttled", 1)
        self.assertEqual(crawl.log.count(f"{crawl.host} asks for less (429, Retry-After: 1)"), 1, crawl.log)

    def test_elsewhere(self):
        crawl = Crawl("elsewhere").create().run()
        away = f"127.9.9.9:{SITE.server_address[1]}"
        hosts = f"--follow-host {crawl.host} --follow-host 127.0.0.1:1 --follow-host {away}"
        hint = f"links refused: {away} is not followed"
        self.assertEqual(crawl.log.count(hint), 2, crawl.log)
        self.assertEqual(crawl.log.count("3 " + hint), 1, crawl.log)
        self.assertEqual(crawl.log.count(f"to follow all these hosts: waggle source update {crawl.source} {hosts}"), 2, crawl.log)

    def test_many_links(self):
        """More links than a report can carry."""
        crawl = Crawl("many").create().run()
        self.assertIn("2500 links refused: 127.9.9.8 is not followed", crawl.log)

    def test_nothing_to_do(self):
        crawl = Crawl("plain").create().run()
        again = Crawl("plain", source=crawl.source, host=crawl.host).run()
        self.assertEqual((again.code, again.items()), (0, []), again.log)
        self.assertIn("nothing to do: all start requests are known already (DONE 1)", again.log)

    def test_no_source(self):
        crawl = Crawl("plain").run()
        self.assertNotEqual(crawl.code, 0, crawl.log)
        self.assertIn(f"there is no source {crawl.source}: waggle source create {crawl.source} --follow-host HOST:PORT", crawl.log)
        self.assertIn("Spider closed (waggle_refused)", crawl.log)
        self.assertLess(crawl.log.count("Traceback"), 2, crawl.log)

    def test_held(self):
        crawl = Crawl("plain").create()
        target = v1.HoldTarget(source_id=crawl.source)
        CLIENT.SetHolds(v1.SetHoldsRequest(targets=[target], by="test", reason="they asked"))
        crawl.start()
        crawl.until("waiting: ")
        time.sleep(3)
        CLIENT.LiftHolds(v1.LiftHoldsRequest(targets=[target], by="test", reason="test"))
        crawl.wait()
        self.assertEqual((len(crawl.items()), crawl.code), (6, 0), crawl.log)
        self.assertEqual(crawl.log.count("waiting: SOURCE_HELD (they asked)"), 1, crawl.log)
        self.assertEqual(crawl.log.count("going on"), 1, crawl.log)

    def test_source_deleted(self):
        crawl = Crawl("slow", {"CONCURRENT_REQUESTS": 2}).create().start()
        until(lambda: crawl.requests() > 1, "the second page is asked for")
        CLIENT.DeleteSources(v1.DeleteSourcesRequest(ids=[crawl.source], by="test", reason="test"))
        crawl.wait()
        self.assertNotEqual(crawl.code, 0, crawl.log)
        self.assertIn(f"there is no source {crawl.source}", crawl.log)

    def test_no_dispatcher(self):
        crawl = Crawl("plain", server="127.0.0.1:1").start()
        crawl.until("does not serve")
        crawl.until("Crawled 0 pages")
        crawl.until("WARNING: no dispatcher has answered for")
        crawl.process.send_signal(signal.SIGTERM)
        crawl.wait()
        self.assertEqual(crawl.log.count("127.0.0.1:1 does not serve"), 1, crawl.log)
        self.assertIn("Spider closed (shutdown)", crawl.log)

    def test_stopped_at_once(self):
        crawl = Crawl("plain", server="127.0.0.1:1").start()
        crawl.until("Spider opened")
        crawl.process.send_signal(signal.SIGTERM)
        crawl.wait()

    def test_stopped(self):
        crawl = Crawl("slow", {"CONCURRENT_REQUESTS": 4}).create().start()
        until(lambda: crawl.requests() > 3, "the fourth page is asked for")
        crawl.process.send_signal(signal.SIGTERM)
        crawl.wait()
        self.assertEqual((crawl.code, crawl.status().tasks.leased), (0, 0), crawl.log)
        self.assertGreater(crawl.status().tasks.ready, 0)

    def test_scheduler_of_a_project(self):
        crawl = self.same("scheduled", 1)
        self.assertIn("not used on Waggle: SCHEDULER, DOWNLOAD_DELAY, AUTOTHROTTLE_ENABLED", crawl.log)
        self.assertEqual(crawl.status().tasks.done, 1)

    def test_default_source(self):
        crawl = Crawl("feeding", source="feeding").create()
        del crawl.settings["WAGGLE_SOURCE"]
        crawl.run()
        self.assertEqual((crawl.code, crawl.status().tasks.done), (0, 4), crawl.log)

    def test_password_in_url(self):
        crawl = Crawl("password").create().run()
        self.assertNotEqual(crawl.code, 0, crawl.log)
        self.assertIn("cannot become a task", crawl.log)
        self.assertNotIn("secret", crawl.log)

    def test_jobdir(self):
        crawl = Crawl("jobdir").create().run()
        self.assertNotEqual(crawl.code, 0)
        self.assertIn("JOBDIR: the state of the crawl is in Waggle", crawl.log)

    def test_no_servers(self):
        crawl = Crawl("plain", {"ADDONS": {"waggle_scrapy.AddOn": 100}}, waggle=False).run()
        self.assertNotEqual(crawl.code, 0)
        self.assertIn("WAGGLE_SERVERS", crawl.log)

    def test_foreign_task(self):
        crawl = Crawl("plain").create(max_attempts=1)
        item = v1.SubmitItem(source_id=crawl.source, url=f"http://{crawl.host}/page/1", kind="parse_nothing", payload=b"{}")
        CLIENT.SubmitTasks(v1.SubmitTasksRequest(items=[item]))
        crawl.run()
        self.assertIn("the spider plain has no method parse_nothing", crawl.log)
        self.assertEqual(crawl.failures(), {"page/1": "HANDLER"}, crawl.log)


def main():
    tests = {name: case for case in (Units, Odd) for name in unittest.defaultTestLoader.getTestCaseNames(case)}
    names = sys.argv[2:] or tests
    result, lock = unittest.TestResult(), threading.Lock()

    def run(name):
        own = unittest.TestResult()
        began = time.monotonic()
        tests[name](name).run(own)
        with lock:
            result.testsRun += 1
            result.failures += own.failures + own.errors
            print("ok  " if own.wasSuccessful() else "FAIL", name, f"{time.monotonic() - began:.1f} s", flush=True)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(run, names))
    for test, text in result.failures:
        print(f"\n=== {test}\n{text}")
    print(f"{result.testsRun} spiders, {len(result.failures)} failures")
    sys.exit(bool(result.failures))


main()
