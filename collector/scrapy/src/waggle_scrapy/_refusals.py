"""What Waggle does not take: counted by host, and logged once for each, so that no link is lost in silence."""

from __future__ import annotations

import collections
import logging
import re
from urllib.parse import urlsplit

from waggle_collector import v1

_USER = re.compile(r"//[^/@\s]*@")  # in a URL
MOST = 20  # requests or hosts that are logged one by one

log = logging.getLogger("waggle_scrapy")


def public(text: str) -> str:
    """A text without the user and password of its URLs."""
    return _USER.sub("//", text)


class Refusals:
    def __init__(self, source: str) -> None:
        self._source = source
        self._unfollowed: collections.Counter[str] = collections.Counter()  # links by host
        self._filtered: collections.Counter[str] = collections.Counter()  # links by the name of the rule
        self._limited = 0
        self._bad = 0
        self._followed: list[str] = []

    def follow(self, spec: v1.SourceSpec) -> None:
        """Notes the hosts that the source follows: the flag that adds one names them all."""
        self._followed = list(spec.follow.allow_hosts) or sorted({urlsplit(seed.url).netloc for seed in spec.seeds})

    def discovered(self, item: v1.DiscoveredItem, result: v1.DiscoverResult) -> None:
        if result.code == v1.DISCOVER_CODE_FILTERED:
            if result.filter_reason in (v1.FILTER_REASON_HOST, v1.FILTER_REASON_NO_RULE):
                host = urlsplit(public(item.url)).netloc.lower()
                self._unfollowed[host] += 1
                if self._unfollowed[host] == 1 and len(self._unfollowed) <= MOST:
                    log.warning("links refused: %s is not followed", host)
                    self._advise()
                return
            rule = v1.FilterReason.Name(result.filter_reason).removeprefix("FILTER_REASON_")
            self._filtered[rule] += 1
            if self._filtered[rule] == 1:
                log.info("links refused by the rule %s of the source, the first is %s", rule, public(item.url))
        elif result.code == v1.DISCOVER_CODE_LIMITED:
            self._limited += 1
            if self._limited == 1:
                log.warning("links refused: %s; waggle source update %s --max-outstanding NUMBER", result.message, self._source)
        elif result.code == v1.DISCOVER_CODE_INVALID:
            self.cannot_travel(f"{item.url} cannot become a task: {result.message}")

    def limited(self, message: str) -> None:
        self._limited += 1
        if self._limited == 1:
            log.info("requests wait, they are submitted again: %s", message)

    def cannot_travel(self, message: str) -> str:
        """Logs a request that became no task. Returns what it has logged: without the password of a URL."""
        message = public(message)
        self._bad += 1
        if self._bad <= MOST:
            log.error("%s", message)
        return message

    def sum_up(self) -> None:
        """Logs the counts at the end."""
        for host, count in sorted(self._unfollowed.items()):
            log.warning("%d links refused: %s is not followed", count, host)
        if self._unfollowed:
            self._advise()
        for rule, count in sorted(self._filtered.items()):
            log.info("%d links refused by the rule %s of the source", count, rule)
        if self._limited:
            log.warning("%d requests met the limit max_outstanding of the source", self._limited)
        if self._bad > MOST:
            log.error("%d requests could not become tasks", self._bad)

    def _advise(self) -> None:
        """Logs the one command that follows all these hosts: a second one would replace what the first has set."""
        hosts = "".join(f" --follow-host {name}" for name in dict.fromkeys([*self._followed, *list(self._unfollowed)[:MOST]]))
        log.warning("to follow %s: waggle source update %s%s",
                    "all these hosts" if len(self._unfollowed) <= MOST else f"the first {MOST} hosts", self._source, hosts)
