"""Requests as tasks: what of a request travels, and the request that a task stands for. Only JSON travels."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

from scrapy import Request
from scrapy.http.request import NO_CALLBACK

from waggle_collector import Task, v1

MAX_PAYLOAD = 256 << 10  # bytes that a task may have
LEASE = "_waggle_lease"  # in meta: the lease that a request works on
PARENT = "_waggle_parent"  # in meta: the lease whose page has yielded it
NEUTRAL = 5  # the priority of a request whose priority is 0

# What Scrapy sets in meta itself, for each attempt anew.
LOCAL = {
    LEASE, PARENT, "depth", "download_latency", "download_slot", "is_start_request", "retry_times", "_auth_proxy", "_scheme_proxy",
}
BYTES = "$bytes"  # the only key of an object that stands for bytes, in base64


class CannotTravel(ValueError):
    """A request has something that another process could not restore. The message names the field and its type."""


def plain(value: Any, field: str) -> Any:
    """A value as JSON has it. CannotTravel: it would come back as something else."""
    if value is None or isinstance(value, (bool, int, str)) or isinstance(value, float) and value - value == 0:
        return value
    if isinstance(value, bytes):
        return {BYTES: base64.b64encode(value).decode()}
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{field}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, dict) and BYTES not in value:
        for key in value:
            if not isinstance(key, str):
                raise CannotTravel(f"{field} has the key {key!r} of type {type(key).__name__}: keys of JSON are texts")
        return {key: plain(item, f"{field}[{key!r}]") for key, item in value.items()}
    raise CannotTravel(f"{field} is of type {type(value).__name__}: only JSON and bytes travel")


def checked(value: Any, field: str) -> Any:
    """As plain; what contains itself is refused, too."""
    try:
        return plain(value, field)
    except RecursionError:
        raise CannotTravel(f"{field} contains itself or is too deep") from None


def restored(value: Any) -> Any:
    """The value that plain was given."""
    if isinstance(value, list):
        return [restored(item) for item in value]
    if isinstance(value, dict):
        if set(value) == {BYTES}:
            return base64.b64decode(value[BYTES])
        return {key: restored(item) for key, item in value.items()}
    return value


def name_of(spider: Any, function: Any, field: str) -> str:
    """The name by which another process finds a callback in its spider. Empty: the spider's default."""
    if function is None:
        return ""
    function = getattr(function, "original", function)  # of an errback that is watched
    if function is None:
        return ""
    if function is not NO_CALLBACK and getattr(function, "__self__", None) is spider:
        name: str = function.__name__
        for candidate in (name, *(f"_{cls.__name__.lstrip('_')}{name}" for cls in type(spider).__mro__)):
            if getattr(spider, candidate, None) == function:
                return candidate
    kind = getattr(function, "__qualname__", type(function).__name__)
    raise CannotTravel(f"{field} {kind} of type {type(function).__name__} has no name in the spider: use a method of it")


def method_of(spider: Any, name: str) -> Any:
    if not name:
        return None
    method = None if name.startswith("__") else getattr(spider, name, None)
    if getattr(method, "__self__", None) is not spider:
        raise ValueError(f"the spider {spider.name} has no method {name}")
    return method


def is_plain_get(request: Any) -> bool:
    return bool(request.method == "GET" and not request.body)


def _headers(payload: dict[str, Any]) -> dict[bytes, list[bytes]]:
    """The headers, as bytes: texts would be encoded as UTF-8."""
    return {name.encode("latin-1"): [value.encode("latin-1") for value in values] for name, values in payload.get("headers", {}).items()}


class Codec:
    """Makes tasks of a spider's requests, and requests of tasks."""

    def __init__(self, spider: Any, fingerprinter: Any, is_default: bool) -> None:
        self._spider = spider
        self._fingerprinter = fingerprinter
        self._is_default = is_default  # the fingerprint is of method, URL and body

    def fingerprint(self, request: Any) -> str:
        digest: bytes = self._fingerprinter.fingerprint(request)
        return digest.hex()

    def key(self, request: Any, repeated: str = "") -> str:
        """What identifies a request. Empty: its URL, as of pages that other collectors find. repeated sets apart what is asked for
        although it was asked for before: it names the page that asks."""
        if repeated:
            return f"{self.fingerprint(request)}:{repeated}"
        return "" if self._is_default and is_plain_get(request) else self.fingerprint(request)

    def item(self, request: Any, *, start: bool, repeated: str = "", hop: bool = False) -> dict[str, Any]:
        """The fields of a SubmitItem or a DiscoveredItem. CannotTravel names what cannot be restored."""
        payload = self._payload(request, start)
        content = json.dumps(payload, separators=(",", ":"), allow_nan=False).encode() if payload else b""
        if len(content) > MAX_PAYLOAD:
            raise CannotTravel(f"body, meta, cb_kwargs and headers have {len(content)} bytes, limit {MAX_PAYLOAD}")
        fields: dict[str, Any] = {
            "url": request.url, "key": self.key(request, repeated), "kind": name_of(self._spider, request.callback, "callback"),
            "payload": content,
        }
        if request.priority and not hop:  # a hop goes before other tasks anyway
            fields["priority"] = min(max(NEUTRAL + request.priority, 0), 9)
        return fields

    def _payload(self, request: Any, start: bool) -> dict[str, Any]:
        fields = {
            "errback": name_of(self._spider, request.errback, "errback"),
            "method": request.method if request.method != "GET" else "",
            "headers": {name.decode("latin-1"): [value.decode("latin-1") for value in values]
                        for name, values in request.headers.items()},
            "body": base64.b64encode(request.body).decode(),
            "cookies": checked(request.cookies, "cookies"),
            "meta": checked({key: value for key, value in request.meta.items() if key not in LOCAL}, "meta"),
            "cb_kwargs": checked(request.cb_kwargs, "cb_kwargs"),
            "encoding": request.encoding if request.encoding != "utf-8" else "",
            "priority": request.priority,
            "flags": checked(request.flags, "flags"),
            "start": start,
            "dont_filter": request.dont_filter and not start,
        }
        kind = type(request)
        if kind.__module__.split(".")[0] != "scrapy":
            fields["class"] = f"{kind.__module__}:{kind.__qualname__}"
            more = set(kind.attributes) - set(Request.attributes)
            fields["attributes"] = {name: checked(getattr(request, name), name) for name in sorted(more)}
        return {key: value for key, value in fields.items() if value}

    def request(self, task: Task) -> tuple[Any, bool]:
        """The request that a task stands for, and whether it is one of the spider's start. ValueError: this spider cannot make it."""
        try:
            payload = json.loads(task.payload) if task.payload else {}
        except ValueError as error:
            raise ValueError(f"the payload is none of this add-on: {error}") from None
        if not isinstance(payload, dict):
            raise ValueError("the payload is none of this add-on")
        if not task.url:
            raise ValueError("the task has no URL")
        start = bool(payload.get("start", not task.payload and task.depth == 0))
        meta = restored(payload.get("meta", {}))
        meta["depth"] = task.depth
        if start and task.message.relation != v1.RELATION_REDIRECT:
            meta["is_start_request"] = True
        if task.attempt > 1:
            meta["retry_times"] = task.attempt - 1
        request = self._class(payload)(
            task.url, callback=method_of(self._spider, task.kind), errback=method_of(self._spider, payload.get("errback", "")),
            method=payload.get("method", "GET"), headers=_headers(payload), body=base64.b64decode(payload.get("body", "")),
            cookies=restored(payload.get("cookies")), meta=meta, cb_kwargs=restored(payload.get("cb_kwargs", {})),
            encoding=payload.get("encoding", "utf-8"), priority=payload.get("priority", 0), flags=restored(payload.get("flags")),
            dont_filter=start or payload.get("dont_filter", False), **restored(payload.get("attributes", {})))
        return request, start

    def _class(self, payload: dict[str, Any]) -> Any:
        """The class of a request. One that this process has not imported is refused: a task imports nothing."""
        module, _, name = payload.get("class", "scrapy:Request").partition(":")
        kind = getattr(sys.modules.get(module), name, None)
        if not isinstance(kind, type) or not issubclass(kind, Request):
            raise ValueError(f"the spider has not imported the class {name} of {module}")
        return kind
