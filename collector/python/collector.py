"""A collector for Waggle, to copy: it fetches pages, stores them, and reports their links.

proto/README.md is the manual of the protocol. Install what this file imports, and generate the modules of the protocol:

    pip install grpcio grpcio-status grpcio-tools
    mkdir -p out
    python -m grpc_tools.protoc -I proto --python_out=out --grpc_python_out=out proto/waggle/v1/*.proto
    PYTHONPATH=out python collector/python/collector.py --server localhost:7070 --id py-1 --out pages

--server may be given several times. With --tls-ca, --tls-cert and --tls-key it connects by TLS, and each dispatcher shows a
certificate for the name in its own --server. With --token-file it sends a token. The variables WAGGLE_TLS_CA,
WAGGLE_TLS_CERT, WAGGLE_TLS_KEY and WAGGLE_TOKEN_FILE do the same. A new token is sent from the next call on; new certificates
need a restart.

Two processes need two ids. For a crawl of sites that are not yours, add robots.txt and a contact in USER_AGENT.
"""

import argparse
import collections
import html.parser
import http.client
import json
import os
import queue
import random
import signal
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from waggle.v1 import collector_pb2, dispatch_service_pb2_grpc, task_pb2
from waggle.v1 import dispatch_service_pb2 as pb

USER_AGENT = "waggle-python/1"
MAX_BODY = 8 << 20          # bytes of a page
MAX_LINKS = 1000            # items of a report; more go by SubmitDiscovered
MAX_REDIRECTS = 10          # from a page to its end
FETCH_WAIT = 10             # seconds that a fetch waits for a task
BEAT_PAUSE = 0.1            # seconds from one beat to the next, at least
REPORT_GRACE = 30           # seconds after the deadline in which a report is repeated

# The call may or may not have had its effect: repeat it with the same tokens. UNAUTHENTICATED: the file may get a new token.
RETRY = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAUTHENTICATED,
         grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL}

# The dispatcher, or its store, is away, or stops: another one may answer.
AWAY = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}

# No other heartbeat stream is taken: a newer session has the id, another identity has it, or the beat is invalid.
REFUSED = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.PERMISSION_DENIED}


class Stopped(Exception):
    """The lease has ended, or its task is to end: the handler stops."""


def duration(seconds):
    d = Duration()
    d.FromNanoseconds(int(seconds * 1e9))
    return d


def seconds(d):
    return d.ToNanoseconds() / 1e9


def details(error):
    """The reason of a failed call, or "", and the least pause before it is repeated, or None without RetryInfo."""
    reason, pause = "", None
    status = rpc_status.from_call(error)
    for packed in status.details if status else ():
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        if packed.Unpack(info):
            reason = info.reason
        elif packed.Unpack(retry):
            pause = seconds(retry.retry_delay)
    return reason, pause


def repeatable(error):
    """Whether a call may be repeated. RESOURCE_EXHAUSTED without a reason is gRPC's: the message is too large."""
    return error.code() in RETRY and (error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED or details(error)[0] != "")


class Backoff:
    """Pauses between repetitions: twice as long each time up to 5 s, at random between half and all of it."""

    def __init__(self):
        self.pause = 0.1

    def next(self, error):
        pause = max(self.pause * random.uniform(0.5, 1), details(error)[1] or 0)
        self.pause = min(self.pause * 2, 5)
        return pause


class Dispatchers:
    """Stubs of all dispatchers, each on a connection of its own: TLS knows a dispatcher by the name in its address. Calls go to the
    first; when a call has found it away, the next one is the first."""

    def __init__(self, channels):
        """channels: address -> channel"""
        self.stubs = collections.deque(
            (address, dispatch_service_pb2_grpc.DispatchServiceStub(channel)) for address, channel in channels.items())
        self.stubs.rotate(random.randrange(len(self.stubs)))
        self.away = set()                   # addresses of which that was printed
        # One that cannot be reached is reported at once, not when a call to it has waited for long.
        checks = {address: channel.unary_unary("/grpc.health.v1.Health/Check").future(b"", timeout=3)
                  for address, channel in channels.items()}
        for address, check in checks.items():
            if check.exception() is not None and check.code() in AWAY:
                self.leave(address, check)

    def first(self):
        return self.stubs[0]

    def leave(self, address, error=None):
        """Goes on to the next dispatcher, unless another thread has. Prints why, once until it answers again."""
        if error is not None and address not in self.away:
            self.away.add(address)
            why = "no answer in time" if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED else error.details()
            print("dispatcher", address, "does not serve, will try again:", why, flush=True)
        if self.stubs[0][0] == address:
            self.stubs.rotate(-1)

    def answered(self, address):
        if address in self.away:
            self.away.discard(address)
            print("dispatcher", address, "serves", flush=True)


class Held:
    """A lease, and until when this collector may trust it, by its own monotonic clock."""

    def __init__(self, leased, sent, waited):
        self.task, self.lease = leased.task, leased.lease
        self.duration = seconds(self.lease.duration)
        self.deadline = sent + waited + self.duration   # beats move it
        self.lost = False                               # the lease is gone: do not report
        self.canceled = False                           # the task is to end: stop, and report
        self.cursor = None                              # bytes, set by the handler; sent with the next beat

    def left(self):
        """Seconds of work left, without the margin. At zero or less, stop."""
        if self.lost or self.canceled:
            return 0.0
        return self.deadline - min(2.0, self.duration / 10) - time.monotonic()

    def check(self):
        """Raises Stopped where the work must end. Call it before each step that has effects."""
        if self.left() <= 0:
            raise Stopped()


class Collector:
    """Fetches tasks for free slots, keeps their leases, and reports what handler(collector, held) returns."""

    def __init__(self, dispatchers, name, slots, handler):
        if not 1 <= slots <= 1000:
            raise ValueError("slots: 1 to 1000, so that one beat names all leases")
        self.dispatchers = dispatchers
        self.name, self.slots, self.handler = name, slots, handler
        self.session = str(uuid.uuid4())    # new at each start of the process
        self.free = threading.Semaphore(slots)
        self.lock = threading.Lock()        # guards leases
        self.leases = {}                    # lease token -> Held
        self.due = queue.SimpleQueue()      # when to beat at the latest; of the stream that is open
        self.on_hold = False                # operators hold this collector: fetch nothing
        self.stopping = threading.Event()   # fetch no more
        self.ended = threading.Event()      # everything is reported
        self.fetching = None                # the FetchTask under way

    def run(self):
        beats = threading.Thread(target=self.beat, daemon=True)
        beats.start()
        try:
            with ThreadPoolExecutor(self.slots) as workers:     # at its end it waits for handlers and their reports
                self.fetch(workers)
        finally:
            self.stopping.set()
            self.ended.set()
            self.due.put(0)                 # say goodbye
            beats.join(5)                   # if that fails, the collector counts as gone after 45 s

    def stop(self, *_):
        """Fetches no more. The leases that stand are finished. For signals."""
        self.stopping.set()
        if self.fetching:
            self.fetching.cancel()          # what was just granted is given back

    # Fetch.

    def fetch(self, workers):
        want, token, backoff = 0, "", Backoff()
        while not self.stopping.is_set():
            if want == 0:
                if self.on_hold or not self.free.acquire(timeout=0.5):
                    self.stopping.wait(0.5 if self.on_hold else 0)
                    continue
                want, token = 1, str(uuid.uuid4())          # a new fetch has a new token, its repetition the same
                while self.free.acquire(blocking=False):    # ask only for what can start now
                    want += 1
            sent, (address, stub) = time.monotonic(), self.dispatchers.first()
            try:
                self.fetching = stub.FetchTask.future(pb.FetchTaskRequest(
                    collector_id=self.name, session=self.session, client_token=token,
                    max_tasks=want, wait=duration(FETCH_WAIT)), timeout=FETCH_WAIT + 10)
                if self.stopping.is_set():
                    self.fetching.cancel()
                reply = self.fetching.result()
                self.dispatchers.answered(address)
            except grpc.FutureCancelledError:
                return
            except grpc.RpcError as e:
                if not repeatable(e):
                    raise                   # COLLECTOR_REPLACED, PERMISSION_DENIED, or a request that can never succeed
                if e.code() == grpc.StatusCode.UNAUTHENTICATED:
                    print("credentials refused, will try again:", e.details(), flush=True)
                elif e.code() in AWAY:
                    self.dispatchers.leave(address, e)
                self.stopping.wait(backoff.next(e))
                continue
            backoff = Backoff()
            held = [Held(leased, sent, seconds(reply.waited)) for leased in reply.leased_tasks]
            with self.lock:
                self.leases.update((h.lease.lease_token, h) for h in held)
            self.due.put(0)                 # the new leases may be shorter than the others
            for h in held:
                workers.submit(self.work, h)
            if want > len(held):
                self.free.release(want - len(held))
            want = 0
            if not held:
                self.stopping.wait(seconds(reply.retry_after))

    def work(self, held):
        try:
            if self.stopping.is_set():
                raise Stopped()
            held.check()
            outcome = self.handler(self, held)
        except Stopped:
            outcome = task_pb2.Outcome(released=task_pb2.Released())
        except Exception as e:
            outcome = failed(task_pb2.FAILURE_REASON_HANDLER, repr(e))
        try:
            self.report(held, outcome)
        finally:
            with self.lock:
                self.leases.pop(held.lease.lease_token, None)
            self.free.release()

    # Report.

    def report(self, held, outcome):
        request = pb.ReportTaskRequest(collector_id=self.name, session=self.session, reports=[
            pb.TaskReport(task_id=held.task.id, lease_token=held.lease.lease_token, outcome=outcome)])
        while not held.lost:
            try:
                result = self.call(held, "ReportTask", request).results[0]
            except (Stopped, grpc.RpcError) as e:
                print("report of", held.task.id, "failed:", e, flush=True)
                return
            if result.code not in (pb.REPORT_CODE_STORE_FULL, pb.REPORT_CODE_STORE_UNAVAILABLE):
                return                      # OK, ALREADY_REPORTED; or LEASE_LOST, NOT_FOUND: nothing to be done
            time.sleep(seconds(result.retry_after) or 1)

    def discover(self, held, items):
        """Submits what the page leads to, and returns what is left for the report."""
        while len(items) > MAX_LINKS:
            self.call(held, "SubmitDiscovered", pb.SubmitDiscoveredRequest(
                task_id=held.task.id, lease_token=held.lease.lease_token, items=items[:MAX_LINKS]))
            items = items[MAX_LINKS:]
        return items

    def call(self, held, method, request):
        """Makes a call for a lease, and repeats it until it is answered or the lease has ended. Beats go on meanwhile."""
        backoff = Backoff()
        while True:
            address, stub = self.dispatchers.first()
            try:
                return getattr(stub, method)(request, timeout=5)
            except grpc.RpcError as e:
                if e.code() in AWAY:
                    self.dispatchers.leave(address, e)
                if details(e)[0] == "LEASE_LOST":
                    held.lost = True
                    raise Stopped() from e
                if not repeatable(e) or held.lost or time.monotonic() > held.deadline + REPORT_GRACE:
                    raise
                time.sleep(backoff.next(e))

    # Heartbeat.

    def beat(self):
        """Keeps a heartbeat stream open until everything is reported."""
        backoff = Backoff()
        while True:
            address, stub = self.dispatchers.first()
            try:
                self.stream(stub)
                self.dispatchers.leave(address)             # it stops
                backoff = Backoff()
            except grpc.RpcError as e:
                if e.code() in AWAY:
                    self.dispatchers.leave(address, e)
                if e.code() in REFUSED:
                    print("heartbeat refused:", e.details(), flush=True)
                    with self.lock:
                        for h in self.leases.values():
                            h.lost = True
                    self.stop()
                    return
                time.sleep(min(1, backoff.next(e))) # the leases run on; be back before they end
            if self.ended.is_set():
                return

    def stream(self, stub):
        """Beats on one stream until it ends, or the dispatcher says reconnect."""
        due, asked = queue.SimpleQueue(), collections.deque()
        self.due = due
        call = stub.Heartbeat(self.beats(due, asked))
        try:
            for message in call:
                status = message.status
                if status.HasField("next_heartbeat"):       # the answer to a beat; others are pushed
                    self.renewed(status, *asked.popleft())
                    due.put(time.monotonic() + seconds(status.next_heartbeat))
                self.on_hold = status.held
                canceled = {c.task_id for c in status.cancel}
                with self.lock:
                    for h in self.leases.values():
                        h.canceled = h.canceled or h.task.id in canceled
                if message.reconnect:
                    return
        finally:
            due.put(None)
            call.cancel()

    def beats(self, due, asked):
        """The beats of one stream: the first at once, the others when they are due, and the one before is answered. Each names
        all leases that are held when it is sent."""
        while True:
            ended = self.ended.is_set()
            with self.lock:
                leases = list(self.leases.values())
            sent = time.monotonic()         # never later than the true renewal
            asked.append((sent, leases))
            yield pb.HeartbeatRequest(
                collector=collector_pb2.CollectorInfo(
                    id=self.name, session=self.session, version=USER_AGENT, hostname=socket.gethostname(),
                    slots=self.slots, stopping=self.stopping.is_set(), ended=ended),
                leases=[pb.LeaseBeat(task_id=h.task.id, lease_token=h.lease.lease_token, cursor=h.cursor)
                        for h in leases])
            if ended:
                return
            at = sent + min([15.0] + [h.duration / 3 for h in leases])
            while True:
                try:
                    sooner = due.get(timeout=None if asked else max(0, at - time.monotonic()))
                except queue.Empty:
                    break
                if sooner is None:
                    return
                at = max(min(at, sooner), sent + BEAT_PAUSE)

    def renewed(self, status, sent, leases):
        """Moves the deadlines of the leases that a beat has named. A renewal never shortens one."""
        lost = {lease.lease_token for lease in status.lost}
        limited = {lease.task_id: seconds(lease.duration) for lease in status.limited}
        for h in leases:
            if h.lease.lease_token in lost:
                h.lost = True
            else:
                given = limited.get(h.task.id, seconds(status.lease_duration))
                h.deadline = max(h.deadline, sent + given)


def failed(reason, message, **more):
    text = message.encode()[:1024].decode(errors="ignore")
    return task_pb2.Outcome(failed=task_pb2.Failed(reason=reason, message=text, **more))


class PassedOn(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: its target takes its turn in its queue, and is reported as discovered."""

    def redirect_request(self, request, fp, code, msg, headers, url):
        return None                         # raises HTTPError


class Links(html.parser.HTMLParser):
    """The links of a page, each once, without fragments."""

    def __init__(self, base, text):
        super().__init__()
        self.base, self.found = base, {}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        href = dict(attributes).get("href")
        if tag not in ("a", "area", "base") or not href:
            return
        try:
            url = urllib.parse.urldefrag(urllib.parse.urljoin(self.base, href.strip())).url
        except ValueError:
            return                          # no URL
        if tag == "base":
            self.base = url
        elif url.startswith(("http://", "https://")) and len(url.encode()) <= 2048:
            self.found[url] = True


class Crawler:
    """The handler: fetches one page, stores its body, and reports its links."""

    def __init__(self, out):
        self.out = out
        self.opener = urllib.request.build_opener(PassedOn)
        os.makedirs(out, exist_ok=True)

    def __call__(self, collector, held):
        task, start = held.task, time.monotonic()

        def took():
            return duration(time.monotonic() - start)

        request = urllib.request.Request(task.url, headers={"User-Agent": USER_AGENT})
        if task.memo:
            request.add_header("If-None-Match", task.memo.decode())     # the ETag of the last crawl
        try:
            with self.opener.open(request, timeout=max(0.1, min(20, held.left()))) as page:
                body = b""
                while chunk := page.read1(64 << 10):
                    held.check()            # lost or canceled: the connection closes
                    body += chunk
                    if len(body) > MAX_BODY:
                        return failed(task_pb2.FAILURE_REASON_TOO_LARGE, "more than %d bytes" % MAX_BODY, permanent=True)
                if page.length:             # bytes that the header promised and that did not come
                    return failed(task_pb2.FAILURE_REASON_CONNECTION_LOST, "the page is cut", fetch_duration=took())
                headers, status, url = page.headers, page.status, page.url
        except urllib.error.HTTPError as e:
            return refused(e, task, took())
        except (OSError, http.client.HTTPException) as e:   # URLError, timeouts, broken connections
            held.check()                    # a read that waits ends with its timeout, after the lease perhaps
            cause = getattr(e, "reason", e)
            reason = (task_pb2.FAILURE_REASON_DNS if isinstance(cause, socket.gaierror)
                      else task_pb2.FAILURE_REASON_TIMEOUT if isinstance(e, TimeoutError)      # while connecting it is a URLError
                      else task_pb2.FAILURE_REASON_CONNECTION_LOST if isinstance(cause, (http.client.HTTPException, ConnectionResetError))
                      else task_pb2.FAILURE_REASON_CONNECT)
            return failed(reason, str(e), fetch_duration=took())
        fetched = took()
        held.check()
        try:
            self.store(held, status, body)
        except OSError as e:
            return failed(task_pb2.FAILURE_REASON_DISK, str(e))         # this collector's fault, not the page's
        links = []
        if headers.get_content_type() == "text/html":
            text = body.decode(headers.get_content_charset() or "utf-8", errors="replace")
            links = [task_pb2.DiscoveredItem(url=link, relation=task_pb2.RELATION_LINK) for link in Links(url, text).found]
        return task_pb2.Outcome(succeeded=task_pb2.Succeeded(
            http_status=status, bytes=len(body), fetch_duration=fetched,
            memo=headers.get("ETag", "").encode()[:4096], discovered=collector.discover(held, links)))

    def store(self, held, status, body):
        """Writes NAME.body, then a line of pages.jsonl that names it. Of one task and cycle the highest fence counts."""
        task, fence = held.task, held.lease.fence
        name = "%s.%d.%d.body" % (task.id, task.cycle, fence)
        path = os.path.join(self.out, name)
        with open(path + ".tmp", "wb") as file:
            file.write(body)
        os.replace(path + ".tmp", path)
        line = json.dumps({"task": task.id, "cycle": task.cycle, "fence": fence, "url": task.url, "status": status, "file": name})
        with open(os.path.join(self.out, "pages.jsonl"), "a") as file:
            file.write(line + "\n")         # one write of an append: lines of other threads stay whole


def refused(error, task, took):
    """The outcome of a page that answered with another status than 2xx."""
    code, location = error.code, error.headers.get("Location")
    if code == 304:
        return task_pb2.Outcome(succeeded=task_pb2.Succeeded(http_status=304, changed=False, fetch_duration=took))
    if 300 <= code < 400 and location and task.redirects >= MAX_REDIRECTS:
        return failed(task_pb2.FAILURE_REASON_REDIRECT, "more than %d redirects" % MAX_REDIRECTS, http_status=code, fetch_duration=took)
    if 300 <= code < 400 and location:
        target = task_pb2.DiscoveredItem(url=urllib.parse.urljoin(task.url, location), relation=task_pb2.RELATION_REDIRECT)
        return task_pb2.Outcome(succeeded=task_pb2.Succeeded(http_status=code, fetch_duration=took, discovered=[target]))
    after = error.headers.get("Retry-After", "")
    reason = {401: task_pb2.FAILURE_REASON_FORBIDDEN, 403: task_pb2.FAILURE_REASON_FORBIDDEN,
              451: task_pb2.FAILURE_REASON_FORBIDDEN, 404: task_pb2.FAILURE_REASON_NOT_FOUND,
              410: task_pb2.FAILURE_REASON_GONE, 429: task_pb2.FAILURE_REASON_THROTTLED}.get(code)
    if reason is None:
        reason = (task_pb2.FAILURE_REASON_THROTTLED if code == 503 and after
                  else task_pb2.FAILURE_REASON_SERVER_ERROR if code >= 500
                  else task_pb2.FAILURE_REASON_CLIENT_ERROR)
    return failed(reason, str(error), http_status=code, fetch_duration=took,
                  retry_after=duration(min(int(after), 366 * 86400)) if after.isdigit() else None)


class Token(grpc.AuthMetadataPlugin):
    """Sends the token that a file holds; the last good one while the file cannot be read."""

    def __init__(self, path):
        self.path, self.token = path, ""
        self.read()

    def read(self):
        with open(self.path) as file:
            self.token = file.read().strip() or self.token

    def __call__(self, context, callback):
        try:
            self.read()
        except OSError:
            pass
        callback((("authorization", "Bearer " + self.token),), None)


def credentials(args):
    """The credentials of the channel, or None for plain text. A token is sent over TLS only."""
    def content(path):
        if not path:
            return None
        with open(path, "rb") as file:
            return file.read()

    if not (args.tls or args.tls_ca or args.tls_cert):
        if args.token_file:
            raise SystemExit("--token-file needs --tls or --tls-ca")
        return None
    channel = grpc.ssl_channel_credentials(content(args.tls_ca), content(args.tls_key), content(args.tls_cert))
    if args.token_file:
        channel = grpc.composite_channel_credentials(channel, grpc.metadata_call_credentials(Token(args.token_file)))
    return channel


def main():
    flags = argparse.ArgumentParser(description="Fetch tasks from Waggle, store pages, report their links.")
    flags.add_argument("--server", action="append",
                       help="dispatcher, HOST:PORT; several times: all of them, or one name for all [localhost:7070]")
    flags.add_argument("--id", required=True, help="the name of this collector, the same after a restart")
    flags.add_argument("--slots", type=int, default=4, help="tasks at the same time")
    flags.add_argument("--out", default="pages", help="the folder for pages")
    flags.add_argument("--tls", action="store_true", help="connect by TLS; --tls-ca and --tls-cert turn it on")
    for name, text in (("tls-ca", "authorities to trust, instead of the usual ones"), ("tls-cert", "certificate to show"),
                       ("tls-key", "key of the certificate"), ("token-file", "token to send")):
        variable = "WAGGLE_" + name.upper().replace("-", "_")
        flags.add_argument("--" + name, default=os.environ.get(variable), help="a file: %s [%s]" % (text, variable))
    args = flags.parse_args()
    options = [
        ("grpc.service_config", '{"loadBalancingConfig":[{"round_robin":{}}]}'),
        # To notice a frozen dispatcher: no ping may wait 60 s for its answer, as gRPC's own pings do by default.
        ("grpc.keepalive_time_ms", 10_000), ("grpc.keepalive_timeout_ms", 5_000), ("grpc.http2.ping_timeout_ms", 5_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.min_reconnect_backoff_ms", 4_000),   # how long to connect may take; the first check is shorter
        ("grpc.max_receive_message_length", 16 << 20)]
    by = credentials(args)
    dispatchers = Dispatchers({
        address: grpc.secure_channel(address, by, options) if by else grpc.insecure_channel(address, options)
        for address in args.server or ["localhost:7070"]})
    collector = Collector(dispatchers, args.id, args.slots, Crawler(args.out))
    signal.signal(signal.SIGTERM, collector.stop)
    signal.signal(signal.SIGINT, collector.stop)
    collector.run()


if __name__ == "__main__":
    main()
