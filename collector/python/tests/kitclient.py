"""The program that the conformance kit runs: a collector made with waggle_collector, or with --asyncio its asyncio form.

deploy/conformance says what it reads and writes."""

import asyncio
import contextlib
import json
import logging
import sys
import threading
import time
from collections.abc import Generator
from typing import Any

from waggle_collector import TLS, AsyncCollector, CallError, Collector, Failed, Outcome, Released, Succeeded, Task, v1

writing = threading.Lock()


def event(kind: str, **more: str) -> None:
    with writing:
        print(json.dumps({"event": kind, **more}), flush=True)


def steps(task: Task, plan: dict[str, Any]) -> Generator[float, None, Outcome]:
    """What the payload of a task asks for. It yields how long to sleep next."""
    event("started", task=task.id)
    try:
        if "cursor" in plan:
            task.set_cursor(plan["cursor"].encode())
        if "progress" in plan:
            task.set_progress(plan["progress"])
        end = time.monotonic() + plan.get("work_ms", 0) / 1000
        while (left := end - time.monotonic()) > 0:
            yield min(left, 0.02)
        if plan.get("raise"):
            raise RuntimeError(plan["raise"])
    finally:
        event("finished", task=task.id)
    if plan.get("outcome") == "released":
        return Released(plan.get("delay_ms", 0) / 1000)
    if plan.get("outcome") == "failed":
        return Failed(
            v1.FailureReason.Value("FAILURE_REASON_" + plan["reason"]), plan.get("message", ""), plan.get("http_status", 0),
            retry_after=plan["retry_after_ms"] / 1000 if plan.get("retry_after_ms") else None, permanent=plan.get("permanent", False))
    found = plan.get("discover_first", 0) + plan.get("discovered", 0)
    memo = bytes(plan["memo_bytes"]) if "memo_bytes" in plan else plan["memo"].encode() if "memo" in plan else None
    return Succeeded(plan.get("http_status", 0), plan.get("bytes", 0), memo=memo,
                     discovered=[f"http://found.test/{task.id}/{i}" for i in range(found)])


def handle(task: Task) -> Outcome:
    plan = json.loads(task.payload or "{}")
    told = False
    with contextlib.closing(steps(task, plan)) as work:
        try:
            while True:
                pause = next(work)
                if plan.get("block"):
                    time.sleep(pause)
                elif task.canceled.wait(0 if told else pause):
                    if not told:
                        event("canceled", task=task.id, reason=task.cancel_reason)
                        told = True
                    if not plan.get("stubborn"):
                        task.check()
                    time.sleep(pause)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome


async def handle_async(task: Task) -> Outcome:
    plan = json.loads(task.payload or "{}")
    with contextlib.closing(steps(task, plan)) as work:
        try:
            while True:
                pause = next(work)
                try:
                    if plan.get("block"):
                        time.sleep(pause)
                    else:
                        await asyncio.sleep(pause)
                except asyncio.CancelledError:
                    event("canceled", task=task.id, reason=task.cancel_reason)
                    if not plan.get("stubborn"):
                        raise
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome


def main() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(relativeCreated)d %(message)s")
    logging.getLogger("waggle_collector").setLevel(logging.DEBUG)
    config = json.loads(sys.stdin.readline())
    kind = AsyncCollector if "--asyncio" in sys.argv else Collector
    collector = kind(
        config["servers"], config["collector_id"], slots=config["slots"], pools=config["pools"], labels=config["labels"],
        wait=config["wait_ms"] / 1000, lease_duration=config["lease_ms"] / 1000 or None, stop_timeout=config["drain_ms"] / 1000,
        tls=TLS(ca_file=config["tls_ca"]) if config["tls_ca"] else None, token_file=config["token_file"] or None)

    def stop() -> None:
        sys.stdin.read()
        collector.stop()

    threading.Thread(target=stop, daemon=True).start()
    try:
        if isinstance(collector, AsyncCollector):
            asyncio.run(collector.run(handle_async))
        else:
            collector.run(handle)
    except CallError as error:
        event("error", message=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
