"""The request of a task that this process has leased."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from crawlee import Request, RequestState
from pydantic import PrivateAttr

from waggle_collector import Failed, Outcome, Succeeded, Task, v1
from waggle_crawlee._outcome import failed_of
from waggle_crawlee._request import fields_of

FORBIDDEN_ATTEMPTS = 3  # of a one-shot task, whatever the source's max_attempts is


class LeasedRequest(Request):
    """Follows what its crawler does by the changes of its state: when the fetch began, and which error was handled. Crawlee tells a request
    manager only that a request is "handled" or "reclaimed". It also decides whether the crawler gives up, which is Waggle's to know."""

    if TYPE_CHECKING:  # a property of Crawlee, where Crawlee is not installed
        no_retry: bool

    _task: Task | None = PrivateAttr(default=None)
    _budgets: tuple[int, int] = PrivateAttr(default=(1, 1))  # max_attempts and max_throttled of the source
    _began: float | None = PrivateAttr(default=None)
    _failed: Failed | None = PrivateAttr(default=None)
    _goes_on: bool = PrivateAttr(default=False)  # there is a further attempt, whatever the crawler's own limit is
    _final: bool = PrivateAttr(default=False)  # the user wants no further attempt

    @classmethod
    def of(cls, task: Task, budgets: tuple[int, int]) -> LeasedRequest:
        """The request of a task. ValueError, TypeError, KeyError: the task has none."""
        fields = fields_of(task)
        fields["retry_count"] += task.message.failures + task.message.expirations
        request = cls(**fields)
        request._task, request._budgets = task, budgets
        return request

    @property
    def task(self) -> Task | None:
        """The task, with its id, cycle and fence."""
        return self._task

    @property
    def state(self) -> RequestState:
        return self.crawlee_data.state

    @state.setter
    def state(self, state: RequestState) -> None:
        self.crawlee_data.state = state
        if state == RequestState.BEFORE_NAV:
            self._began = time.monotonic()
        elif state in (RequestState.ERROR_HANDLER, RequestState.ERROR) and self._failed is None:
            if (error := sys.exc_info()[1]) is not None:  # the crawler changes the state where it handles the error
                self._failed = failed_of(error)
                self._judge(self._failed)

    def _judge(self, failed: Failed) -> None:
        """Lets the crawler give up exactly if there is no further attempt. It asks for that after the change of the state."""
        self._final = self.no_retry
        if self._task is None or self._final:
            return
        message, (attempts, throttled) = self._task.message, self._budgets
        if failed.reason < v1.FAILURE_REASON_DNS:  # of the page itself: the crawler may give up earlier
            if failed.reason == v1.FAILURE_REASON_FORBIDDEN and not message.recurring:
                attempts = min(attempts, FORBIDDEN_ATTEMPTS)
            self.no_retry = failed.permanent or message.failures + 1 >= attempts
            return
        costs = failed.reason < v1.FAILURE_REASON_PROXY or failed.reason >= v1.FAILURE_REASON_TIMEOUT
        self.no_retry = costs and message.throttled + 1 >= throttled
        self._goes_on = not self.no_retry

    @property
    def max_retries(self) -> int | None:
        return self.retry_count + 1 if self._goes_on else self.crawlee_data.max_retries

    def outcome(self, handled: bool, queue_delay: float | None) -> Outcome:
        """The outcome of a request that its crawler has handled, or gives back to be tried again."""
        took = None if self._began is None else time.monotonic() - self._began
        if handled and self.state == RequestState.DONE:
            return Succeeded(fetch_duration=took, queue_delay=queue_delay)
        failed = self._failure(handled)
        failed.fetch_duration, failed.queue_delay = took, queue_delay
        return failed

    def _failure(self, handled: bool) -> Failed:
        failed = self._failed
        if handled and self.state == RequestState.SKIPPED:
            return Failed(v1.FAILURE_REASON_ROBOTS_DENIED, "robots.txt forbids it", permanent=True)
        if failed is None and self.loaded_url not in (None, self.url):
            return Failed(
                v1.FAILURE_REASON_REDIRECT, f"redirects to {self.loaded_url}, which the enqueue strategy excludes", permanent=True)
        if failed is None:
            return Failed(v1.FAILURE_REASON_OTHER, f"dropped by the crawler in the state {self.state.name}", permanent=handled)
        if not handled:
            return failed
        if self.state != RequestState.ERROR:  # the page is not to be crawled again beside the one in its place
            return Failed(v1.FAILURE_REASON_OTHER, f"replaced by the error handler: {failed.message}", failed.http_status, permanent=True)
        if failed.reason < v1.FAILURE_REASON_DNS:
            failed.permanent = True
        elif self._final:  # only a failure of the page itself can be final
            name = v1.FailureReason.Name(failed.reason).removeprefix("FAILURE_REASON_")
            return Failed(v1.FAILURE_REASON_OTHER, f"no_retry after {name}: {failed.message}", failed.http_status, permanent=True)
        return failed
