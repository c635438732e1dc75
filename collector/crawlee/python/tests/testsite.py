"""A site for tests: each path has a behavior, and each request is noted."""

import http.server
import threading
import time


class Site(http.server.ThreadingHTTPServer):
    """pages: path to (status, headers, body), or to a function of the number of requests so far that returns one."""

    daemon_threads = True

    def __init__(self, pages):
        super().__init__(("127.0.0.1", 0), Handler)
        self.pages = pages
        self.asked = []  # (time, method, path, headers, body)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def times(self, path):
        return [at for at, _, asked, _, _ in self.asked if asked == path]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((time.time(), self.command, self.path, self.headers, body))
        page = self.server.pages.get(self.path, (404, {}, ""))
        if callable(page):
            page = page(len(self.server.times(self.path)))
        status, headers, text = page
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "text/plain" if self.path.endswith(".txt") else "text/html")
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    do_POST = do_PUT = do_GET


def page(title, *links):
    return 200, {}, f"<h1>{title}</h1>" + "".join(f'<a href="{link}">link</a>' for link in links)
