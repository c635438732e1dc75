"""A collector that fetches pages, stores them, and reports their links: waggle_collector with the Python standard library.

    pip install waggle_collector-*.whl
    python crawl.py --server 127.0.0.1:7070 --id py-1 --out pages

--server may be given several times. With --tls-ca, --tls-cert and --tls-key it connects by TLS, and with --token-file it sends a token;
the variables WAGGLE_TLS_CA, WAGGLE_TLS_CERT, WAGGLE_TLS_KEY and WAGGLE_TOKEN_FILE do the same.

Two processes need two ids. For a crawl of sites that are not yours, add robots.txt and a contact in USER_AGENT.
"""

import argparse
import html.parser
import http.client
import json
import logging
import os
import signal
import socket
import time
import urllib.error
import urllib.parse
import urllib.request

from waggle_collector import TLS, Collector, Failed, Outcome, Succeeded, Task, v1

USER_AGENT = "waggle-crawl/1"
MAX_BODY = 8 << 20  # bytes of a page
MAX_REDIRECTS = 10  # from a page to its end


class PassedOn(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: its target takes its turn in its queue, and is reported as discovered."""

    def redirect_request(self, *_: object) -> None:
        return None  # raises HTTPError


class Links(html.parser.HTMLParser):
    """The links of a page, each once, without fragments."""

    def __init__(self, base: str, text: str) -> None:
        super().__init__()
        self.base = base
        self.found: dict[str, bool] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href")
        if tag not in ("a", "area", "base") or not href:
            return
        try:
            url = urllib.parse.urldefrag(urllib.parse.urljoin(self.base, href.strip())).url
        except ValueError:
            return  # no URL
        if tag == "base":
            self.base = url
        elif url.startswith(("http://", "https://")) and len(url.encode()) <= 2048:
            self.found[url] = True


class Crawler:
    """The handler: fetches one page, stores its body, and reports its links."""

    def __init__(self, out: str) -> None:
        self.out = out
        self.opener = urllib.request.build_opener(PassedOn)
        os.makedirs(out, exist_ok=True)

    def __call__(self, task: Task) -> Outcome:
        start = time.monotonic()
        request = urllib.request.Request(task.url, headers={"User-Agent": USER_AGENT})
        if task.memo:
            request.add_header("If-None-Match", task.memo.decode())  # the ETag of the last crawl
        try:
            with self.opener.open(request, timeout=max(0.1, min(20, task.remaining()))) as page:
                body = b""
                while chunk := page.read1(64 << 10):
                    task.check()  # lost or canceled: the connection closes
                    body += chunk
                    if len(body) > MAX_BODY:
                        return Failed(v1.FAILURE_REASON_TOO_LARGE, f"more than {MAX_BODY} bytes", permanent=True)
                if page.length:  # bytes that the header promised and that did not come
                    return Failed(v1.FAILURE_REASON_CONNECTION_LOST, "the page is cut", fetch_duration=time.monotonic() - start)
        except urllib.error.HTTPError as error:
            return answered(error, task, time.monotonic() - start)
        except (OSError, http.client.HTTPException) as error:  # URLError, timeouts, broken connections
            task.check()  # a read that waits ends with its timeout, after the lease perhaps
            return Failed(reason_of(error), str(error), fetch_duration=time.monotonic() - start)
        fetched = time.monotonic() - start
        task.check()
        try:
            self.store(task, page.status, body)
        except OSError as error:
            return Failed(v1.FAILURE_REASON_DISK, str(error))  # this collector's fault, not the page's
        links: list[str] = []
        if page.headers.get_content_type() == "text/html":
            text = body.decode(page.headers.get_content_charset() or "utf-8", errors="replace")
            links = list(Links(page.url, text).found)
        return Succeeded(http_status=page.status, bytes=len(body), fetch_duration=fetched,
                         memo=page.headers.get("ETag", "").encode()[:4096], discovered=links)

    def store(self, task: Task, status: int, body: bytes) -> None:
        """Writes NAME.body, then a line of pages.jsonl that names it. Of one task and cycle the highest fence counts."""
        name = f"{task.id}.{task.cycle}.{task.fence}.body"
        path = os.path.join(self.out, name)
        with open(path + ".tmp", "wb") as file:
            file.write(body)
        os.replace(path + ".tmp", path)
        line = json.dumps({"task": task.id, "cycle": task.cycle, "fence": task.fence, "url": task.url, "status": status, "file": name})
        with open(os.path.join(self.out, "pages.jsonl"), "a") as lines:
            lines.write(line + "\n")  # one write of an append: lines of other threads stay whole


def answered(error: urllib.error.HTTPError, task: Task, took: float) -> Outcome:
    """The outcome of a page that answered with another status than 2xx."""
    status, location = error.code, error.headers.get("Location")
    if status == 304:
        return Succeeded(http_status=304, changed=False, fetch_duration=took)
    if 300 <= status < 400 and location:
        if task.message.redirects >= MAX_REDIRECTS:
            return Failed(v1.FAILURE_REASON_REDIRECT, f"more than {MAX_REDIRECTS} redirects", status, fetch_duration=took)
        target = v1.DiscoveredItem(url=urllib.parse.urljoin(task.url, location), relation=v1.RELATION_REDIRECT)
        return Succeeded(http_status=status, fetch_duration=took, discovered=[target])
    after = error.headers.get("Retry-After", "")
    reason = {401: v1.FAILURE_REASON_FORBIDDEN, 403: v1.FAILURE_REASON_FORBIDDEN, 451: v1.FAILURE_REASON_FORBIDDEN,
              404: v1.FAILURE_REASON_NOT_FOUND, 410: v1.FAILURE_REASON_GONE, 429: v1.FAILURE_REASON_THROTTLED}.get(status)
    if reason is None:
        reason = (v1.FAILURE_REASON_THROTTLED if status == 503 and after
                  else v1.FAILURE_REASON_SERVER_ERROR if status >= 500 else v1.FAILURE_REASON_CLIENT_ERROR)
    # Retry-After is reported, never slept through: the queue waits, and this collector works on other sites meanwhile.
    return Failed(reason, str(error), status, retry_after=min(int(after), 366 * 86400) if after.isdigit() else None, fetch_duration=took)


def reason_of(error: Exception) -> v1.FailureReason:
    """What a fetch without an answer failed of."""
    cause = getattr(error, "reason", error)
    if isinstance(cause, socket.gaierror):
        return v1.FAILURE_REASON_DNS
    if isinstance(error, TimeoutError):  # while connecting it is a URLError
        return v1.FAILURE_REASON_TIMEOUT
    if isinstance(cause, (http.client.HTTPException, ConnectionResetError)):
        return v1.FAILURE_REASON_CONNECTION_LOST
    return v1.FAILURE_REASON_CONNECT


def main() -> None:
    flags = argparse.ArgumentParser(description="Fetch tasks from Waggle, store pages, report their links.")
    flags.add_argument("--server", action="append", help="dispatcher, HOST:PORT; may be repeated [127.0.0.1:7070]")
    flags.add_argument("--id", required=True, help="the name of this collector, the same after a restart")
    flags.add_argument("--slots", type=int, default=4, help="tasks at the same time")
    flags.add_argument("--out", default="pages", help="the folder for pages")
    flags.add_argument("--tls", action="store_true", help="connect by TLS; --tls-ca and --tls-cert turn it on")
    for name, text in (("tls-ca", "authorities to trust, instead of the usual ones"), ("tls-cert", "certificate to show"),
                       ("tls-key", "key of the certificate"), ("token-file", "token to send")):
        variable = "WAGGLE_" + name.upper().replace("-", "_")
        flags.add_argument("--" + name, default=os.environ.get(variable), help=f"a file: {text} [{variable}]")
    args = flags.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    collector = Collector(
        args.server or ["127.0.0.1:7070"], args.id, slots=args.slots, version=USER_AGENT, token_file=args.token_file,
        tls=TLS(args.tls_ca, args.tls_cert, args.tls_key) if args.tls or args.tls_ca or args.tls_cert else None)
    signal.signal(signal.SIGTERM, lambda *_: collector.stop())
    signal.signal(signal.SIGINT, lambda *_: collector.stop())
    collector.run(Crawler(args.out))


if __name__ == "__main__":
    main()
