"""Measures how many trivial tasks one process works on in a second, with functions and with coroutines, in turns:

    python throughput.py --server 127.0.0.1:7070 --slots 1 16 --rounds 3

Each turn is a new process, which prints its seconds. With --beside COMMAND that program takes turns too, and the ratio to it is printed. It
is called with the server, the slots and the number of tasks, and works on so many tasks of the pool "default"."""

import argparse
import asyncio
import shlex
import statistics
import subprocess
import sys
import time
import uuid

from waggle_collector import AsyncCollector, Client, Collector, Task, v1


def submit(server: str, tasks: int) -> None:
    """Makes a source, and a queue for each hundred tasks, without delays."""
    with Client([server]) as client:
        rule = v1.QueueRule(pattern="*", max_in_flight=100)
        rule.min_delay.FromNanoseconds(0)
        client.SetQueueRule(v1.SetQueueRuleRequest(rule=rule))
        source = f"throughput.{uuid.uuid4().hex[:12]}"
        client.CreateSource(v1.CreateSourceRequest(spec=v1.SourceSpec(id=source)))
        for begin in range(0, tasks, 1000):
            client.SubmitTasks(v1.SubmitTasksRequest(items=[
                v1.SubmitItem(source_id=source, url=f"http://h{i // 100}.test/{i}") for i in range(begin, min(begin + 1000, tasks))]))


def work(kind: str, server: str, slots: int, tasks: int) -> float:
    """Works on the tasks, and returns how many seconds that took."""
    left = tasks

    def handle(_: Task) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            collector.stop()

    async def handle_async(task: Task) -> None:
        handle(task)

    begin = time.monotonic()
    collector: Collector | AsyncCollector
    if kind == "asyncio":
        collector = AsyncCollector([server], "throughput", slots=slots)
        asyncio.run(collector.run(handle_async))
    else:
        collector = Collector([server], "throughput", slots=slots)
        collector.run(handle)
    return time.monotonic() - begin


def main() -> None:
    flags = argparse.ArgumentParser(description="Measure tasks a second of one process.")
    flags.add_argument("--server", default="127.0.0.1:7070")
    flags.add_argument("--slots", type=int, nargs="+", default=[1, 16])
    flags.add_argument("--tasks", type=int, default=3000)
    flags.add_argument("--rounds", type=int, default=3)
    flags.add_argument("--beside", help="a program to compare with")
    flags.add_argument("--work", help=argparse.SUPPRESS)
    args = flags.parse_args()
    if args.work:
        print(work(args.work, args.server, args.slots[0], args.tasks))
        return
    for slots in args.slots:
        ours = [sys.executable, __file__, "--server", args.server, "--slots", str(slots), "--tasks", str(args.tasks), "--work"]
        commands = {kind: [*ours, kind] for kind in ("threads", "asyncio")}
        if args.beside:
            commands["beside"] = [*shlex.split(args.beside), args.server, str(slots), str(args.tasks)]
        rates: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(args.rounds):
            for name, command in commands.items():
                submit(args.server, args.tasks)
                took = float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1])
                rates[name].append(args.tasks / took)
        for name, rate in rates.items():
            ratio = f", {statistics.median(rate) / statistics.median(rates['beside']):.2f} of beside" if args.beside else ""
            print(f"slots {slots}, {name}: {statistics.median(rate):.0f} tasks/s{ratio} ({' '.join(f'{r:.0f}' for r in rate)})", flush=True)


if __name__ == "__main__":
    main()
