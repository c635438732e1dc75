"""What no spider provokes: defects, and versions of Scrapy that are another inside."""

import asyncio
import logging
import unittest
from types import SimpleNamespace
from unittest import mock

from scrapy.utils.test import get_crawler
from waggle_collector import Task, v1
from waggle_scrapy import Scheduler, _scheduler
from waggle_scrapy._connection import Connection
from waggle_scrapy._engine import ScrapyEngine
from waggle_scrapy._lease import Lease
from waggle_scrapy._outcome import seconds
from waggle_scrapy._settings import Settings


class Units(unittest.TestCase):
    def scheduler(self):
        scheduler = Scheduler.from_crawler(get_crawler())
        scheduler._connection, scheduler._engine = mock.Mock(), mock.Mock(closing=False)
        scheduler._engine.has.return_value = False
        scheduler._opened = None
        return scheduler

    def test_retry_after(self):
        self.assertEqual([seconds(text) for text in ("3", " 3 ", "²", "٣", "-1", "")], [3.0, 3.0, None, None, None, None])

    def test_defect_of_a_lease(self):
        """It fails its page, and no other one."""
        scheduler = self.scheduler()
        for n in range(2):
            scheduler.running[str(n)] = Lease(
                Task(v1.Task(url=f"http://a/{n}")), n, str(n), request=SimpleNamespace(url=f"http://a/{n}"), scraping=True,
                items=[{"wrong": 1}] * (1 - n))
        with self.assertLogs("waggle_scrapy", "ERROR") as logs:
            scheduler.next_request()
        self.assertIn("http://a/0", logs.output[0])
        (first, failed, _), (second, succeeded, _) = (call.args for call in scheduler._connection.settle.call_args_list)
        self.assertEqual((first, failed.reason, second, succeeded.discovered), (0, v1.FAILURE_REASON_HANDLER, 1, []))
        self.assertEqual(scheduler.running, {})

    def test_defect_on_the_engine(self):
        """What the event loop calls, and would only log."""
        scheduler = self.scheduler()
        with mock.patch.object(_scheduler, "MAX_WAIT", "no number"), self.assertLogs("waggle_scrapy", "ERROR"):
            scheduler.waiting.append(Lease(Task(v1.Task()), None, "1"))
            scheduler._guarded(scheduler.tick)
        scheduler._engine.refuse.assert_called_once()
        self.assertIn("TypeError", str(scheduler._error()))

    def test_defect_of_the_connection(self):
        async def broken():
            raise KeyError("x")
        engine = mock.Mock()
        connection = Connection(engine, lambda function, *args: function(*args), "s", None, None, None)
        with self.assertLogs("waggle_scrapy", "ERROR"):
            asyncio.run(connection._guard(broken()))
        engine.failed.assert_called_once_with("the connection to Waggle has ended: KeyError('x')")

    def test_two_of_a_process(self):
        settings = Settings(get_crawler(settings_dict={"WAGGLE_SERVERS": ["127.0.0.1:1"]}).settings, SimpleNamespace(name="s"))
        names = {settings.collector(None)._config.id for _ in range(2)}
        self.assertEqual(len(names), 2, names)

    def test_grpc_log(self):
        log = logging.getLogger("grpc")
        for level, want in (("INFO", logging.NOTSET), ("DEBUG", logging.INFO)):
            log.setLevel(logging.NOTSET)
            get_crawler(settings_dict={"ADDONS": {"waggle_scrapy.AddOn": 1}, "LOG_LEVEL": level})
            self.assertEqual(log.level, want)

    def test_other_scrapy(self):
        class Engine:
            def __init__(self):
                self._slot = SimpleNamespace(inprogress=set(), nextcall=SimpleNamespace(schedule=print), closing=None)
                self._start = self.spider = object()

            async def start_async(self):
                pass

            async def close_spider_async(self):
                pass
        ScrapyEngine(Engine(), lambda: None)
        for name in ("inprogress", "nextcall", "closing"):
            engine = Engine()
            delattr(engine._slot, name)
            with self.assertRaisesRegex(RuntimeError, f"this version of Scrapy has no engine._slot.{name}"):
                ScrapyEngine(engine, lambda: None)
        for name in ("_slot", "_start", "start_async", "close_spider_async"):
            engine = Engine()
            setattr(engine, name, None)
            with self.assertRaisesRegex(RuntimeError, f"this version of Scrapy has no engine.{name}"):
                ScrapyEngine(engine, lambda: None)

    def test_start_elsewhere(self):
        scheduler = self.scheduler()
        scheduler._engine.started = False
        with self.assertLogs("waggle_scrapy", "ERROR"):
            self.assertIsNone(scheduler.next_request())
        scheduler._engine.refuse.assert_called_once()
