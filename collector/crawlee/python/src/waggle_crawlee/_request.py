"""Requests as they travel: what of a request of Crawlee is in a task's payload."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from crawlee import Request
from crawlee.errors import RequestCollisionError

from waggle_collector import Task, v1

MAX_KEY = 2048  # bytes
MAX_PAYLOAD = 256 << 10  # bytes
TAG = "crawlee-python"  # the field of a payload that has its version: other packages have other fields
VERSION = 1
HIGHEST = 9  # priority of what goes to the front


class RequestRefused(RequestCollisionError, ValueError):
    """A request that cannot be handed to another process. The page that adds it fails with this message.

    It is a RequestCollisionError, because a crawler lets only the page fail of an error of this kind, and does not try it again."""


def item_of(request: Request, source: str, forefront: bool = False) -> v1.SubmitItem:
    """The item to submit for a request. RequestRefused: it cannot travel."""
    payload = payload_of(request)
    item = v1.SubmitItem(source_id=source, url=request.url)
    if request.unique_key != Request.from_url(request.url).unique_key:
        item.key = request.unique_key
        if len(request.unique_key.encode()) > MAX_KEY:
            item.key = "sha256:" + hashlib.sha256(request.unique_key.encode()).hexdigest()
    if payload:
        text = json.dumps({TAG: VERSION, **payload}, ensure_ascii=False, separators=(",", ":"))
        item.payload = text.encode()
        if len(item.payload) > MAX_PAYLOAD:
            raise RequestRefused(f"request {request.url}: {len(item.payload)} bytes of payload, headers and user_data, limit {MAX_PAYLOAD}")
    if forefront:
        item.priority = HIGHEST
    return item


def payload_of(request: Request) -> dict[str, Any]:
    """What of a request is not its URL; empty for a plain GET."""
    if request.session_id is not None:
        raise RequestRefused(f"request {request.url}: session_id: a session belongs to its process, and cannot travel")
    payload: dict[str, Any] = {}
    if request.method != "GET":
        payload["method"] = request.method
    if request.payload is not None:
        payload["payload"] = packed(request.payload)
    if headers := dict(request.headers):
        payload["headers"] = headers
    if request.label is not None:
        payload["label"] = request.label
    if user_data := {key: value for key, value in request.user_data.items() if key not in ("label", "__crawlee")}:
        check(request.url, "user_data", user_data)
        payload["userData"] = user_data
    if request.no_retry:
        payload["noRetry"] = True
    if request.retry_count:  # of a request that an error handler put in place of another
        payload["retryCount"] = request.retry_count
    data = request.crawlee_data
    for name, value in (("crawlDepth", data.crawl_depth), ("maxRetries", data.max_retries), ("enqueueStrategy", data.enqueue_strategy),
                        ("skipNavigation", data.skip_navigation), ("sessionRotationCount", data.session_rotation_count)):
        if value or name == "maxRetries" and value is not None:
            payload[name] = value
    return payload


def packed(data: bytes) -> str | dict[str, str]:
    """Bytes in JSON: as text if they are UTF-8, else as base64 with a tag."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def check(url: str, field: str, value: Any) -> None:
    """Raises RequestRefused for what JSON cannot carry, by the name of its field."""
    if isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str):
                raise RequestRefused(f"request {url}: {field}: the key {key!r} is of type {type(key).__name__}; only str can travel")
            check(url, f"{field}[{key!r}]", part)
    elif isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            check(url, f"{field}[{i}]", part)
    elif value is not None and not isinstance(value, (str, int, float, bool)):
        raise RequestRefused(f"request {url}: {field} is of type {type(value).__name__}; only JSON can travel")
    elif isinstance(value, float) and not abs(value) < float("inf"):
        raise RequestRefused(f"request {url}: {field} is {value}; only JSON can travel")


def fields_of(task: Task) -> dict[str, Any]:
    """The fields of a task's request, but for its counts. ValueError, TypeError, KeyError: the task has none."""
    if not task.url:
        raise ValueError("the task has no URL")
    payload: dict[str, Any] = {}
    if task.payload:
        try:
            payload = json.loads(task.payload)
        except ValueError:
            pass
        tag = next((name for name in payload if name.startswith("crawlee")), None) if isinstance(payload, dict) else None
        if tag is None:
            payload = {}  # somebody else's
        elif tag != TAG or payload[tag] != VERSION:
            raise ValueError(f"the payload has the tag {tag} {payload[tag]!r}; this package reads {TAG} {VERSION}")
    body = payload.get("payload")
    if isinstance(body, dict):
        body = base64.b64decode(body["base64"])
    data: dict[str, Any] = {
        name: payload[name] for name in ("maxRetries", "enqueueStrategy", "skipNavigation", "sessionRotationCount") if name in payload}
    data["crawlDepth"] = payload.get("crawlDepth", task.depth)
    user_data: dict[str, Any] = {**payload.get("userData", {}), "__crawlee": data}
    if "label" in payload:
        user_data["label"] = payload["label"]
    return {
        "url": task.url, "unique_key": task.key, "method": payload.get("method", "GET"), "payload": body,
        "headers": payload.get("headers", {}), "user_data": user_data, "no_retry": payload.get("noRetry", False),
        "retry_count": payload.get("retryCount", 0)}
