"""Odd crawls of Crawlee on a dispatcher, each a function. Prints a line for each, and fails if one does.

python odd.py SERVER NAME...    those with these names
python odd.py SERVER 2/3        the second third of all
"""

import asyncio
import logging
import sys
import time
import traceback

import oddrequests
import oddruns
from case import Case

from waggle_collector import AsyncClient

CASES = [
    value for module in (oddruns, oddrequests) for value in vars(module).values()
    if asyncio.iscoroutinefunction(value) and value.__module__ == module.__name__
]


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
