"""The two backends of the tutorial: books on port 9001, reviews on port 9002.

Run it with `python3 backends.py`. Each request is printed. To disturb the reviews:

    curl -X POST http://127.0.0.1:9002/fault/slow     # each answer takes 2 seconds
    curl -X POST http://127.0.0.1:9002/fault/down     # each answer is a 500
    curl -X POST http://127.0.0.1:9002/fault/none     # healthy again
"""

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

BOOKS = {
    "1": {"id": 1, "title": "The Left Hand of Darkness", "price": 12.50, "stock": 4},
    "2": {"id": 2, "title": "Kindred", "price": 9.90, "stock": 0},
}
REVIEWS = {"1": [{"stars": 5, "text": "Cold and clever."}, {"stars": 4, "text": "Slow start."}]}


class Backend(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        url = urlsplit(self.path)
        if self.server.fault == "slow":
            time.sleep(2)
        if self.server.fault == "down":
            return self.answer(500, {"error": "down"})
        if url.path.startswith("/books/"):
            book = BOOKS.get(url.path.removeprefix("/books/"))
            return self.answer(200, book) if book else self.answer(404, {"error": "no such book"})
        if url.path == "/reviews":
            book = parse_qs(url.query).get("book", [""])[0]
            return self.answer(200, {"reviews": REVIEWS.get(book, [])})
        self.answer(404, {"error": "no such path"})

    def do_POST(self):
        if self.path.startswith("/fault/"):
            self.server.fault = self.path.removeprefix("/fault/")
            return self.answer(200, {"fault": self.server.fault})
        self.answer(404, {"error": "no such path"})

    def answer(self, status, value):
        body = json.dumps(value).encode()
        try:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            # The caller did not wait for the answer.
            self.close_connection = True

    def log_message(self, form, *values):
        print(self.server.name, form % values, flush=True)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        # A caller that leaves early is no error.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def start(name, port):
    server = Server(("127.0.0.1", port), Backend)
    server.name, server.fault = name, "none"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"{name}: http://127.0.0.1:{server.server_port}", flush=True)


if __name__ == "__main__":
    start("books", int(os.environ.get("BOOKS_PORT", "9001")))
    start("reviews", int(os.environ.get("REVIEWS_PORT", "9002")))
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
