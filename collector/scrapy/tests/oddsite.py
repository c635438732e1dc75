"""A site with what odd spiders ask for. It counts requests by host and path."""

import collections
import http.cookies
import json
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Site(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self):
        super().__init__(("0.0.0.0", 0), Page)
        self.lock = threading.Lock()
        self.asked = collections.Counter()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def count(self, host, path):
        with self.lock:
            self.asked[host, path] += 1
            return self.asked[host, path]


class Page(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.answer(b"")

    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"] or 0)))

    def answer(self, body):
        path, _, query = self.path.partition("?")
        host = self.headers["Host"]
        kind, _, rest = path.strip("/").partition("/")
        times = self.server.count(host, self.path)
        if kind == "page":
            n = int(rest)
            more = f'<a href="/page/{n + 1}">next</a>' if n < 5 else ""
            self.send(f'<h1>Page {n}</h1>{more}')
        elif kind == "echo":
            cookies = {name: morsel.value for name, morsel in http.cookies.SimpleCookie(self.headers["Cookie"] or "").items()}
            self.send(json.dumps({"method": self.command, "query": query, "body": body.decode(), "cookies": cookies,
                                  "x": self.headers.get("X-Test", ""), "referer": self.headers.get("Referer", "")}), "application/json")
        elif kind == "status":
            self.send("status", status=int(rest))
        elif kind == "flaky" and times == 1:
            self.send("flaky", status=503)
        elif kind == "later" and times == 1:
            self.send("later", status=429, headers={"Retry-After": "1"})
        elif kind == "oddly" and times == 1:
            self.send("oddly", status=429, headers={"Retry-After": "²"})
        elif kind == "captcha" and times == 1:
            self.send("<h1>captcha</h1>")
        elif kind in ("flaky", "later", "oddly", "captcha"):
            self.send(f"<h1>{kind} {rest}</h1>")
        elif kind == "redirect":
            self.send("", status=302, headers={"Location": f"/page/{rest}"})
        elif kind == "loop":
            self.send("", status=302, headers={"Location": f"/loop/{int(rest) + 1}"})
        elif kind == "refresh":
            self.send(f'<html><head><meta http-equiv="refresh" content="0; url=/page/{rest}"></head></html>')
        elif kind == "slow":
            time.sleep(1.5)
            self.send(f"<h1>slow {rest}</h1>")
        elif kind == "login" and self.command == "POST":
            self.send("", status=302, headers={"Location": "/home", "Set-Cookie": "session=ada; Path=/"})
        elif kind == "login":
            self.send('<form action="/login" method="post"><input name="user"><input name="token" value="t7"></form>')
        elif kind == "home":
            self.send("<h1>home of ada</h1>" if "session=ada" in (self.headers["Cookie"] or "") else "<h1>who are you</h1>")
        elif kind == "elsewhere":
            port = self.server.server_address[1]
            self.send("<h1>elsewhere</h1>" + "".join(f'<a href="http://127.9.9.9:{port}/page/{n}">away</a>' for n in range(3)))
        elif kind == "many":
            self.send("<h1>many</h1>" + "".join(f'<a href="http://127.9.9.8/page/{n}">away</a>' for n in range(2500)))
        elif kind == "robots.txt":
            self.send("User-agent: *\nDisallow: /status/\nCrawl-delay: 0.3\n", "text/plain")
        elif kind == "sitemap.xml":
            urls = "".join(f"<url><loc>http://{host}/page/{n}</loc></url>" for n in (3, 4))
            self.send(f'<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{urls}</urlset>', "text/xml")
        else:
            self.send("no such page", status=404)

    def send(self, text, content_type="text/html", status=200, headers=None):
        body = text.encode()
        self.send_response(status)
        for name, value in {"Content-Type": content_type, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
