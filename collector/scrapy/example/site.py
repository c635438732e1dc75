"""A small shop for the example: site.py PORT. It is a proxy for itself as well, and shows some books to those only who come by it."""

import sys
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BOOKS, PER_PAGE = 30, 10


class Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = urllib.parse.urlsplit(self.path).path
        by_proxy = self.path.startswith("http://")
        kind, _, rest = path.strip("/").partition("/")
        if kind == "list":
            self.send(self.books(int(rest)))
        elif kind == "book" or kind == "members" and by_proxy:
            self.send(f'<h1>Book {rest}</h1><p class="price">{int(rest) + 0.5}</p>')
        elif kind == "members":
            self.send("<h1>not in your country</h1>", 403)
        elif kind == "search":
            self.send('<form action="/search" method="post"><input name="q"></form>')
        else:
            self.send("<h1>no such page</h1>", 404)

    def do_POST(self):
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send("<ul>" + "".join(f"<li>{form['q'][0]} {n}</li>" for n in range(3)) + "</ul>")

    def books(self, page):
        first = (page - 1) * PER_PAGE + 1
        links = "".join(
            f'<a class="book" href="/{"members" if n % 7 == 0 else "book"}/{n}">Book {n}</a>' for n in range(first, first + PER_PAGE))
        return links + (f'<a class="next" href="/list/{page + 1}">next</a>' if first + PER_PAGE <= BOOKS else "")

    def send(self, html, status=200):
        body = f"<html><body>{html}</body></html>".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Shop).serve_forever()
